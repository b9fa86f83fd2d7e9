"""Documents of verification: noise among the evidence, and how a verifying policy is shown them.

Noise has to be seen through (the paper's Section 4.4). Three kinds ship: from the batch's other
games (the paper's), from the corpus, and *near*: found for the question, but not by the proposer.

The paper verifies with the solver itself, given the documents (Section 3.3: v(.|q, O_T) =
pi(.|x_solve, q, O_T)). If that looked different from solving, a question could ask for one answer
in verification and for another one later; ``docs/environment.md`` says how alike the two are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from numpy.random import Generator

from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import Prompts
from ssp_env.types import Document, Immutable

Documents = Sequence[Document]
Retrieved = Sequence[tuple[int, Document]]
"""``(slot, document)``: documents by the games whose proposers retrieved them, in slot order."""


@dataclass(frozen=True, slots=True)
class NoiseDocument(Immutable):
    """A document that this game's proposer did not retrieve, and where it came from."""

    document: Document
    origin: str
    """``game <slot>`` whose proposer retrieved it, ``near`` the question, or ``corpus``."""


class NoiseSource(Protocol):
    """Draws noise documents; :func:`draw_noise` is the default.

    Optional: an attribute ``searches``, true for a source that wants what a search for the question
    finds as its ``others``, best first, in place of what other games have retrieved."""

    def __call__(
        self, rng: Generator, count: int, own: Documents, others: Retrieved, corpus: Documents
    ) -> tuple[NoiseDocument, ...]:
        """At most ``count`` documents, none of them among ``own``; draws from ``rng`` alone.

        ``own`` and ``others`` are what this game's and the other games' proposers retrieved. A
        ``ServiceError``, of a service that is down, voids the game."""
        ...


def draw_noise(
    rng: Generator, count: int, own: Documents, others: Retrieved, corpus: Documents
) -> tuple[NoiseDocument, ...]:
    """Noise from the other games of the batch, then from the corpus if they have too few."""
    # A document that several games retrieved counts for the first of them.
    pool: dict[str, tuple[int, Document]] = {}
    for retrieved in others:
        pool.setdefault(retrieved[1].id, retrieved)
    for document in own:
        pool.pop(document.id, None)

    # A uniform sample without replacement: the first ``count`` of a permutation.
    candidates = list(pool.values())
    chosen: list[int] = rng.permutation(len(candidates))[:count].tolist() if count else []
    noise = [NoiseDocument(candidates[i][1], f"game {candidates[i][0]}") for i in chosen]
    return _filled_up(rng, count, noise, own, corpus)


def draw_from_corpus(
    rng: Generator, count: int, own: Documents, others: Retrieved, corpus: Documents
) -> tuple[NoiseDocument, ...]:
    """Noise from all of the corpus."""
    return draw_noise(rng, count, own, (), corpus)


class NearNoise:
    """The best of what a search for the question finds, then noise from the corpus."""

    searches = True

    def __call__(
        self, rng: Generator, count: int, own: Documents, others: Retrieved, corpus: Documents
    ) -> tuple[NoiseDocument, ...]:
        taken = {document.id for document in own}
        fresh = {document.id: document for _, document in others if document.id not in taken}
        near = [NoiseDocument(document, "near") for document in [*fresh.values()][:count]]
        return _filled_up(rng, count, near, own, corpus)


NOISE: Mapping[str, NoiseSource] = {
    "batch": draw_noise,
    "corpus": draw_from_corpus,
    "near": NearNoise(),
}
"""Kinds of noise that ship, by the name that ``game.noise_kind`` has for them."""


def _filled_up(
    rng: Generator, count: int, noise: list[NoiseDocument], own: Documents, corpus: Documents
) -> tuple[NoiseDocument, ...]:
    """Noise so far, and as much of the corpus as is missing; ids may be of another corpus."""
    taken = {document.id for document in own} | {item.document.id for item in noise}
    count -= len(noise)
    if count <= 0:
        return tuple(noise)

    # Most of a small corpus may be taken, so the free passages are listed first.
    if len(corpus) < 2 * (len(taken) + count):
        free = [document for document in corpus if document.id not in taken]
        order = rng.permutation(len(free))[:count].tolist()
        return (*noise, *(NoiseDocument(free[i], "corpus") for i in order))

    # At least half of a large corpus is free, so a free passage takes two draws at most on average.
    drawn: dict[str, NoiseDocument] = {}
    while len(drawn) < count:
        document = corpus[int(rng.integers(len(corpus)))]
        if document.id not in taken:
            drawn.setdefault(document.id, NoiseDocument(document, "corpus"))
    return (*noise, *drawn.values())


# -- showing -----------------------------------------------------------------------------------


def fit_documents(
    prompts: Prompts,
    config: GameConfig,
    question: str,
    materials: tuple[Document, ...],
    noise: Sequence[NoiseDocument],
    orders: Callable[[Sequence[Document]], Iterable[Sequence[Document]]] = lambda kept: (kept,),
) -> tuple[Document, ...]:
    """Documents for which a verification has room: all of the evidence, and as much noise as fits.

    ``materials`` are both, in the order of reading; of the noise, the last one yields first.
    ``orders`` gives all orders in which documents are going to be read: what a document takes
    depends on its neighbours. The solver's prompt with the question fits ``max_prompt_tokens``."""
    if config.verifies_by_attempt:
        return materials

    # Prompt: solver's + max_prompt_tokens + max_response_tokens. The proposer was shown all of the
    # evidence within max_response_tokens, and the question takes at most max_prompt_tokens.
    most = len(prompts.solver(question, config.max_searches)) + config.verification_tokens

    def fits(documents: Sequence[Document]) -> bool:
        read = (verification_prompt(prompts, config, question, o) for o in orders(documents))
        return all(len(ids) <= most for ids in read)

    kept = list(materials)
    for item in reversed(noise):
        if fits(tuple(kept)):
            break
        # Whole passages of noise are left out: a stump would give itself away.
        kept.remove(item.document)
    return tuple(kept)


def verification_prompt(
    prompts: Prompts, config: GameConfig, question: str, documents: Sequence[Document]
) -> list[int]:
    """Token ids that a verifying policy is given at first; none of them is its own."""
    limit = config.max_document_tokens
    if config.verification_prompt == "documents":
        return prompts.verifier(question, documents, limit)

    asked = prompts.solver(question, config.max_searches)
    if config.verifies_by_attempt:
        return asked
    turn = prompts.search(question)
    return [*asked, *turn, *prompts.information(documents, limit, question)]


def find_among(
    library: Sequence[Document], query: str, found: Sequence[Document]
) -> list[Document]:
    """Result of a search among a few documents alone, as many as it ``found`` in everything.

    Documents that it found and the library has come first, in the same order, so that a search for
    what is there looks as in solving. The rest of the library follows by BM25, then in its own
    order."""
    known = {document.id for document in library}
    first = [document for document in found if document.id in known]
    taken = {document.id for document in first}
    rest = [document for document in library if document.id not in taken]
    missing = len(found) - len(first)
    if not missing or not rest:
        return first

    # Imported here: a retriever of one's own can do without.
    from ssp_env.search.postings import TRAINED_K1, BM25Index

    best = BM25Index(rest, TRAINED_K1).best(query, missing)
    order = dict.fromkeys([*(place for place, _ in best), *range(len(rest))])
    return [*first, *(rest[place] for place in order)][: len(found)]

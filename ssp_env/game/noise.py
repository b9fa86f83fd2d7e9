"""Noise: documents among the evidence that the question's proposer did not retrieve.

A verifier has to see through it (the paper's Section 4.4). Three kinds ship: from the batch's other
games (the paper's), from the corpus, and *near*: found for the question, but not by the proposer.
One of your own is a :class:`NoiseSource`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from numpy.random import Generator

from ssp_env.types import Document, Immutable

Documents = Sequence[Document]
Retrieved = Sequence[tuple[int, Document]]
"""``(index, document)``: documents by the games whose proposers retrieved them, in index order."""


@dataclass(frozen=True, slots=True)
class NoiseDocument(Immutable):
    """A document that this game's proposer did not retrieve, and where it came from."""

    document: Document
    origin: str
    """``game <index>`` whose proposer retrieved it, ``near`` the question, or ``corpus``."""


class NoiseSource(Protocol):
    """Draws noise documents; :func:`draw_noise` is the default.

    Optional: an attribute ``searches``, true for a source that wants what a search for the question
    finds as its ``others``, best first, in place of what other games have retrieved."""

    def __call__(
        self, rng: Generator, count: int, evidence: Documents, others: Retrieved, corpus: Documents
    ) -> tuple[NoiseDocument, ...]:
        """At most ``count`` documents, none of them among ``evidence``; draws from ``rng`` alone.

        ``evidence`` and ``others`` are what this game's and the other games' proposers retrieved. A
        ``ServiceError``, of a service that is down, voids the game."""
        ...


def draw_noise(
    rng: Generator, count: int, evidence: Documents, others: Retrieved, corpus: Documents
) -> tuple[NoiseDocument, ...]:
    """Noise from the other games of the batch, then from the corpus if they have too few.

    >>> from numpy.random import default_rng
    >>> pages = [Document(str(i), f"Page {i}", "") for i in range(4)]
    >>> rng, retrieved = default_rng(0), [(7, pages[0]), (7, pages[1])]
    >>> [(n.document.id, n.origin) for n in draw_noise(rng, 2, pages[:1], retrieved, pages)]
    [('1', 'game 7'), ('2', 'corpus')]
    """
    # A document that several games retrieved counts for the first of them.
    pool: dict[str, tuple[int, Document]] = {}
    for retrieved in others:
        pool.setdefault(retrieved[1].id, retrieved)
    for document in evidence:
        # What this game's own proposer found as well is evidence, whoever else found it.
        pool.pop(document.id, None)

    # A uniform sample without replacement: the first ``count`` of a permutation.
    candidates = list(pool.values())
    chosen: list[int] = rng.permutation(len(candidates))[:count].tolist() if count else []
    noise = [NoiseDocument(candidates[i][1], f"game {candidates[i][0]}") for i in chosen]
    return _filled_up(rng, count, noise, evidence, corpus)


def draw_from_corpus(
    rng: Generator, count: int, evidence: Documents, others: Retrieved, corpus: Documents
) -> tuple[NoiseDocument, ...]:
    """Noise from all of the corpus."""
    return draw_noise(rng, count, evidence, (), corpus)


class NearNoise:
    """The best of what a search for the question finds, then noise from the corpus."""

    searches = True

    def __call__(
        self, rng: Generator, count: int, evidence: Documents, others: Retrieved, corpus: Documents
    ) -> tuple[NoiseDocument, ...]:
        taken = {document.id for document in evidence}
        fresh = {document.id: document for _, document in others if document.id not in taken}
        # The first that the search found are nearest to the question.
        near = [NoiseDocument(document, "near") for document in [*fresh.values()][:count]]
        return _filled_up(rng, count, near, evidence, corpus)


NOISE: Mapping[str, NoiseSource] = {
    "batch": draw_noise,
    "corpus": draw_from_corpus,
    "near": NearNoise(),
}
"""Kinds of noise that ship, by the name that ``game.noise_kind`` has for them."""


def _filled_up(
    rng: Generator, count: int, noise: list[NoiseDocument], evidence: Documents, corpus: Documents
) -> tuple[NoiseDocument, ...]:
    """Noise so far, and as much of the corpus as is missing; ids may be of another corpus."""
    taken = {document.id for document in evidence} | {item.document.id for item in noise}
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

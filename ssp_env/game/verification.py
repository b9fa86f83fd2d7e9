"""How a policy that verifies is shown the evidence and the noise.

The paper verifies with the solver itself, given the documents (Section 3.3: v(.|q, O_T) =
pi(.|x_solve, q, O_T)). If that looked different from solving, a question could ask for one answer
in verification and for another one later; ``docs/environment.md`` says how alike the two are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ssp_env.game.config import GameConfig
from ssp_env.game.game import Game
from ssp_env.game.prompts import Prompts
from ssp_env.judge.base import Verdict
from ssp_env.types import Document
from ssp_env.wording.normal import normalise


def fit_documents(
    prompts: Prompts,
    config: GameConfig,
    game: Game,
    orders: Callable[[Sequence[Document]], Iterable[Sequence[Document]]] = lambda kept: (kept,),
) -> tuple[Document, ...]:
    """Documents for which a verification has room: all of the evidence, and as much noise as fits.

    Of the game's noise, the last one yields first. ``orders`` gives all orders in which documents
    are going to be read: what a document takes depends on its neighbours. The solver's prompt with
    the question fits ``max_prompt_tokens``."""
    if config.verifies_by_attempt:
        return game.materials

    # Prompt: solver's + max_prompt_tokens + max_response_tokens. The proposer was shown all of the
    # evidence within max_response_tokens, and the question takes at most max_prompt_tokens.
    most = config.verification_tokens + len(
        prompts.solver(game.question or "", config.max_searches)
    )

    def fits(documents: Sequence[Document]) -> bool:
        read = (verification_prompt(prompts, config, game, o) for o in orders(documents))
        return all(len(ids) <= most for ids in read)

    kept = list(game.materials)
    for item in reversed(game.noise):
        if fits(tuple(kept)):
            break
        # Whole passages of noise are left out: a stump would give itself away.
        kept.remove(item.document)
    return tuple(kept)


def verification_prompt(
    prompts: Prompts, config: GameConfig, game: Game, documents: Sequence[Document]
) -> list[int]:
    """Token ids that a verifying policy is given at first; none of them is its own."""
    question, limit = game.question or "", config.max_document_tokens
    if config.sees_candidate:
        return prompts.candidate(question, game.truth.answer, documents, limit)
    if config.verification_prompt == "documents":
        return prompts.verifier(question, documents, limit)

    prompt = prompts.solver(question, config.max_searches)
    if config.verifies_by_attempt:
        return prompt
    turn = prompts.search(question)
    return [*prompt, *turn, *prompts.information(documents, limit, question)]


def says_yes(result: str | None) -> Verdict:
    """The verdict of a policy that was shown the candidate answer."""
    said = normalise(result or "")
    return Verdict(said == "yes", "" if said in ("yes", "no") else "neither yes nor no")


def find_among(
    library: Sequence[Document], query: str, found: Sequence[Document]
) -> list[Document]:
    """Result of a search among a few documents alone, as many as it ``found`` in everything.

    Documents that it found and the library has come first, in the same order, so that a search for
    what is there looks as in solving. The rest of the library follows by BM25, then in its own
    order.

    >>> emma = Document("1", "Emma", "A novel by Jane Austen.")
    >>> persuasion = Document("2", "Persuasion", "Another novel.")
    >>> found = [Document("9", "Jane Austen", "She wrote Emma."), emma]
    >>> [document.title for document in find_among([persuasion, emma], "Jane Austen", found)]
    ['Emma', 'Persuasion']
    """
    known = {document.id for document in library}
    first = [document for document in found if document.id in known]
    taken = {document.id for document in first}
    rest = [document for document in library if document.id not in taken]
    missing = len(found) - len(first)
    if not missing or not rest:
        return first

    # Imported here: a retriever of one's own can do without.
    from ssp_env.search.postings import TRAINED_K1, BM25Index

    # Only what shares a word with the query is ranked; all else follows in its own order.
    best = BM25Index(rest, TRAINED_K1).best(query, missing)
    order = dict.fromkeys([*(place for place, _ in best), *range(len(rest))])
    return [*first, *(rest[place] for place in order)][: len(found)]

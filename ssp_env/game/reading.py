"""Material of verification: the solver's prompt with documents in it, cut to its own budget.

The paper verifies with the solver itself, given the documents (Section 3.3: v(.|q, O_T) =
pi(.|x_solve, q, O_T)). If that looked different from solving, a question could ask for one answer
in verification and for another one later. So the documents come as search results do: after a
search for the question, which the policy did not write. A solver that has searched sees the same.

A solver that has not searched yet sees less, though, and one that writes its own queries finds
fewer documents at a time. In the form ``attempt`` verification is an attempt like any other, whose
searches find the documents alone (:func:`find_among`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import Prompts
from ssp_env.types import Document


@dataclass(frozen=True)
class Reading:
    """Material of one verification; :func:`fit_reading` makes it."""

    question: str
    materials: tuple[Document, ...]
    """Evidence and noise, in the order of reading."""
    documents: tuple[Document, ...]
    """Those of them that fit."""
    limit: int
    """Number of tokens of each title and text that are given."""

    def shown(self, prompts: Prompts) -> tuple[Document, ...]:
        """The documents with the parts of their texts that are given."""
        return tuple(prompts.as_shown(document, self.limit) for document in self.documents)

    def ids(self, prompts: Prompts, config: GameConfig) -> list[int]:
        """All tokens that a verifying policy is given at first; none of them is its own."""
        return _spell(prompts, config, self.question, self.documents, self.limit)


def fit_reading(
    prompts: Prompts,
    config: GameConfig,
    question: str,
    materials: tuple[Document, ...],
    noise: Sequence[Document],
) -> Reading:
    """Lays out a verification: at most ``verification_tokens`` more than the solver's prompt.

    Args:
        prompts: what is shown around the documents.
        config: ``verification_prompt`` and the budgets.
        question: what is asked; the solver's prompt with it fits ``max_prompt_tokens``.
        materials: evidence and noise, in the order of reading.
        noise: those among them that yield first, the last one before the others.
    """
    if config.verifies_by_attempt:
        return Reading(question, materials, materials, config.max_document_tokens)

    room = len(prompts.solver(question, config.max_searches)) + config.verification_tokens
    room -= len(_spell(prompts, config, question, (), 1))

    kept, limit = _fit(prompts, list(materials), noise, room, config.max_document_tokens)
    return Reading(question, materials, tuple(kept), limit)


def find_among(
    library: Sequence[Document], query: str, found: Sequence[Document]
) -> list[Document]:
    """Result of a search among a few documents alone: as many as it found elsewhere.

    What it found and the library has comes first, in the same order, so that a search for what is
    there looks as in solving. The rest of the library follows by BM25, then in its own order.

    Args:
        library: all that can be found; ids are unique.
        query: what is searched for.
        found: what the same search found in everything there is.
    """
    known = {document.id for document in library}
    first = [document for document in found if document.id in known]
    taken = {document.id for document in first}
    rest = [document for document in library if document.id not in taken]
    missing = len(found) - len(first)
    if not missing or not rest:
        return first

    # Imported here: it brings scipy along, which a retriever of one's own can do without.
    from ssp_env.search.bm25 import BM25Index, tokenize

    best, _ = BM25Index(rest).best(list(dict.fromkeys(tokenize(query))), missing)
    order = dict.fromkeys([*best, *range(len(rest))])
    return [*first, *(rest[place] for place in order)][: len(found)]


def frame(prompts: Prompts, config: GameConfig) -> int:
    """Number of tokens that verification adds to the solver's prompt, without documents."""
    empty = _spell(prompts, config, "", (), 1)
    return len(empty) - len(prompts.solver("", config.max_searches))


def _spell(
    prompts: Prompts, config: GameConfig, question: str, documents: Sequence[Document], limit: int
) -> list[int]:
    if config.verification_prompt == "documents":
        return prompts.verifier(question, documents, limit)

    asked = prompts.solver(question, config.max_searches)
    if config.verifies_by_attempt:
        return asked

    # The query of a small budget is cut before any document is.
    room = config.verification_tokens
    room -= len(prompts.search("", 0)) + len(prompts.information((), 1))
    turn = prompts.search(question, max(0, min(room, config.max_query_tokens)))

    return [*asked, *turn, *prompts.information(documents, limit)]


def _fit(
    prompts: Prompts, kept: list[Document], noise: Sequence[Document], room: int, limit: int
) -> tuple[list[Document], int]:
    """The documents that fit into ``room`` tokens, and how many tokens of each."""

    def fits(most: int) -> bool:
        listed = (prompts.listed(document, most, place) for place, document in enumerate(kept, 1))
        return sum(listed) <= room

    # Whole passages of noise are left out: a stump would give itself away.
    for document in reversed(noise):
        if fits(limit):
            break
        kept.remove(document)

    if fits(limit):
        return kept, limit

    # Budgets below the default need not hold all that the proposer was shown: then the longest
    # passages are cut, all to one length, and no passage is lost while a token of each fits.
    while kept and not fits(1):
        kept.pop()

    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return kept, low

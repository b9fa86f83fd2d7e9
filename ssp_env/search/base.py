"""What every retriever is: queries in, ranked documents out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Document:
    """One passage, as retrieved. Two documents are equal when id, title and text are."""

    id: str
    """Identifier, unique within its corpus."""
    title: str
    """Title of the page that the passage comes from; may be empty."""
    text: str
    """The passage."""
    score: float | None = field(default=None, compare=False)
    """Retrieval score, in the retriever's own unit; ``None`` outside a ranking."""


@runtime_checkable
class Retriever(Protocol):
    """Ranks the passages of a corpus for queries.

    ``search`` takes many queries at once and returns, in the same order, one list a query of at most
    ``k`` documents, best first. A query that matches nothing gets an empty list; a failure raises
    :class:`~ssp_env.errors.ServiceError`, never an empty list. Same queries, same answer.
    """

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked documents for each query.

        Args:
            queries: any strings, the empty one included.
            k: how many documents a query, at least 1.

        Raises:
            ServiceError: the retriever could not answer.
        """
        ...

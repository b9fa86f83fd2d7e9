"""The interface of retrievers: queries in, ranked documents out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast, runtime_checkable

from ssp_env.errors import ServiceError, UsageError
from ssp_env.types import Document, Passages

Results = list[list[Document] | ServiceError]
"""Per query its ranking, or the error that hit it."""


@runtime_checkable
class Retriever(Protocol):
    """Ranks the passages of a corpus for queries.

    ``search`` takes many queries at once and returns, in the same order, one list per query of at
    most ``k`` documents, best first. A query that matches nothing gets an empty list; a failure
    raises :class:`~ssp_env.errors.ServiceError`, never an empty list. Same queries, same answer.

    Optional methods: ``search_each``, for one that knows which queries of a batch failed, as the
    function :func:`search_each` describes; and ``describe``, for what results depend on (see
    :func:`identify`)."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked documents for each query: any strings, the empty one included."""


def search_each(retriever: Retriever, queries: Sequence[str], k: int) -> Results:
    """One ranking or error per query, from any retriever.

    One without a method of this name is asked for the whole batch; if that fails, for one query at
    a time, so that only those that are hit are errors. ``UsageError`` if the retriever does not
    return one error or at most ``k`` Documents per query."""
    if each := getattr(retriever, "search_each", None):
        results: Results = each(queries, k)
    else:
        try:
            results = [*retriever.search(queries, k)]
        except ServiceError as error:
            if len(queries) == 1:
                return [error]
            return [result for query in queries for result in search_each(retriever, [query], k)]

    check_count(results, queries)
    for query, ranking in zip(queries, results, strict=True):
        if isinstance(ranking, ServiceError):
            continue
        if len(ranking) > k or not all(isinstance(document, Document) for document in ranking):
            what = f"the retriever gave {ranking!r:.200} for {query!r:.200}"
            raise UsageError(f"{what}: at most {k} Documents are wanted")
    return results


def whole(results: Results) -> list[list[Document]]:
    """The rankings of a batch; raises the first error among the results."""
    for result in results:
        if isinstance(result, ServiceError):
            raise result
    return cast(list[list[Document]], results)


def check_count(results: Sequence[object], queries: Sequence[str]) -> None:
    """Refuses the answer of a retriever that has not one result per query."""
    if len(results) != len(queries):
        raise UsageError(f"the retriever gave {len(results)} rankings for {len(queries)} queries")


def identify(retriever: Retriever) -> dict[str, Any]:
    """A retriever's class and what its ``describe``, else its ``corpus`` says, as plain data."""
    parts: dict[str, Any] = {"class": type(retriever).__name__}
    if own := getattr(retriever, "describe", None):
        return {**parts, **own()}
    if isinstance(corpus := getattr(retriever, "corpus", None), Passages):
        parts["corpus"] = corpus.digest()
    return parts

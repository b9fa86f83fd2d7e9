"""What every retriever is: queries in, ranked documents out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ssp_env.checks import check_positive_count, describe
from ssp_env.errors import ServiceError, UsageError
from ssp_env.types import Document

Results = list[list[Document] | ServiceError]
"""Per query its ranking, or the error that hit it."""


@runtime_checkable
class Retriever(Protocol):
    """Ranks the passages of a corpus for queries.

    ``search`` takes many queries at once and returns, in the same order, one list per query of at
    most ``k`` documents, best first. A query that matches nothing gets an empty list; a failure
    raises :class:`~ssp_env.errors.ServiceError`, never an empty list. Same queries, same answer.

    One that knows which queries of a batch failed has a method ``search_each`` too, as the
    function :func:`search_each` describes; the game asks it this way.
    """

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked documents for each query.

        Args:
            queries: any strings, the empty one included.
            k: how many documents per query, at least 1.

        Raises:
            ServiceError: the retriever could not answer.
        """
        ...


def search_each(retriever: Retriever, queries: Sequence[str], k: int) -> Results:
    """One ranking or error per query, from any retriever.

    One without a method of this name is asked for the whole batch; if that fails, for one query at
    a time, so that only those that are hit are errors.

    What is in the rankings is not checked here: see :mod:`ssp_env.game.checked`.

    Raises:
        UsageError: the retriever does not return one result per query.
    """
    if each := getattr(retriever, "search_each", None):
        results: Results = each(queries, k)
        return results

    try:
        rankings = retriever.search(queries, k)
    except ServiceError as error:
        if len(queries) == 1:
            return [error]
        return [result for query in queries for result in search_each(retriever, [query], k)]
    check_count(rankings, queries)
    return [*rankings]


def whole(results: Results) -> list[list[Document]]:
    """The rankings of a batch.

    Raises:
        ServiceError: the first one among the results.
    """
    for result in results:
        if isinstance(result, ServiceError):
            raise result
    return [result for result in results if not isinstance(result, ServiceError)]


def check_request(queries: Sequence[str], k: int) -> None:
    """
    Raises:
        ConfigError: ``k`` is not a whole number, or below 1.
        UsageError: ``queries`` is one string, which would be searched letter by letter; no
            sequence; or one of something else than strings.
    """
    check_positive_count("k", k)
    if isinstance(queries, str) or not hasattr(queries, "__len__"):
        what = "one string" if isinstance(queries, str) else type(queries).__name__
        raise UsageError(f"search takes a sequence of queries, not {what}")
    for number, query in enumerate(queries, start=1):
        if not isinstance(query, str):
            what = f"query {number} of {len(queries)} is {describe(query)}"
            raise UsageError(f"search takes strings; {what}")


def check_count(results: Sequence[object], queries: Sequence[str]) -> None:
    """
    Raises:
        UsageError: the retriever did not give a list with one result per query.
    """
    if not isinstance(results, list | tuple):
        what = f"the retriever gave {describe(results)} for {len(queries)} queries"
        raise UsageError(f"{what}: a list is wanted, with one list of Documents per query")
    if len(results) != len(queries):
        raise UsageError(f"the retriever gave {len(results)} rankings for {len(queries)} queries")

"""One call of the HTTP retriever: its requests, their repetitions, and the search for the queries that are to blame."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from ssp_env.errors import ServiceError, TransientServiceError
from ssp_env.http_call import Caller, NoAnswer
from ssp_env.retry import RetryPolicy
from ssp_env.search.base import Document
from ssp_env.search.client.breaker import CircuitBreaker, Outcome
from ssp_env.search.client.config import HTTPConfig
from ssp_env.search.client.wire import WrongReply, read_reply, write_request

Results = list[list[Document] | ServiceError]

_OVERLOADED = frozenset({408, 425, 429, 502, 503, 504})
_ABOUT_THE_QUERIES = frozenset({400, 413, 422})


@dataclass
class _Request:
    """One request, and what its last try found out."""

    queries: list[str]
    divisible: bool = False
    """Whether the server was there, so that a part of the queries may fare better."""


class Asking:
    """The requests of one call, which share ``k`` and a deadline. Lives on the loop that the caller runs on."""

    def __init__(self, config: HTTPConfig, caller: Caller, breaker: CircuitBreaker, k: int, divide: bool) -> None:
        """
        Args:
            config: limits and patience. The deadline counts from now.
            caller: the connections.
            breaker: told how requests go, and asked before new ones.
            k: documents a query.
            divide: whether to find out which queries of a failing request are to blame.
        """
        self._config, self._caller, self._breaker, self._k, self._divide = config, caller, breaker, k, divide
        self._once = replace(config.retry, attempts=1)
        self._until = asyncio.get_running_loop().time() + config.deadline

    async def chunk(self, queries: list[str]) -> Results:
        """One result a query, for as many as fit into one request."""
        return await self._results(queries, self._config.retry, guarded=True)

    async def _results(self, queries: list[str], policy: RetryPolicy, guarded: bool) -> Results:
        request = _Request(queries)
        try:
            rankings = await policy.call_async(lambda: self._try(request, guarded), self._left)
        except ServiceError as error:
            if not (self._divide and request.divisible and len(queries) > 1):
                return [error] * len(queries)
        else:
            return [*rankings]
        middle = len(queries) // 2
        parts = await asyncio.gather(self._part(queries[:middle]), self._part(queries[middle:]))
        return parts[0] + parts[1]

    async def _part(self, queries: list[str]) -> Results:
        """Results for a part of a request that failed. Only a query that stands alone is tried more than once.

        The breaker is told, but not asked: what fails here was to be expected, and must not stop the other part.
        """
        return await self._results(queries, self._config.retry if len(queries) == 1 else self._once, guarded=False)

    async def _try(self, request: _Request, guarded: bool) -> list[list[Document]]:
        """Sends a request once, when it is its turn.

        Raises:
            TransientServiceError: no answer, or one that may be better the next time.
            ServiceError: a refusal, an open circuit breaker, or no turn before the deadline.
        """
        request.divisible = False
        try:
            async with self._caller.turn(self._until):
                trying = guarded and self._breaker.enter()
                outcome, result = Outcome.UNKNOWN, None
                try:
                    outcome, result = await self._ask(request)
                finally:
                    self._breaker.leave(outcome, result.what if isinstance(result, ServiceError) else "", trying)
        except TimeoutError:
            what = f"{self._caller.url}: no connection was free within {self._config.deadline:g} s"
            raise ServiceError("search", what) from None
        if isinstance(result, ServiceError):
            raise result
        return result

    async def _ask(self, request: _Request) -> tuple[Outcome, list[list[Document]] | ServiceError]:
        """What the server says to a request, and what that says about the server."""
        single = Outcome.FAILED if len(request.queries) == 1 else Outcome.UNKNOWN
        body = write_request(request.queries, self._k)
        try:
            reply = await self._caller.post(body, max(0.0, min(self._config.timeout, self._left())), "search")
        except NoAnswer as error:
            return Outcome.FAILED, error
        except TransientServiceError as error:
            request.divisible = True
            return single, error
        complaint = self._caller.complaint(reply, "search")
        if complaint is None:
            try:
                return Outcome.ALIVE, read_reply(reply.body, len(request.queries), self._k)
            except WrongReply as error:
                what = f"{self._caller.url} sent no answer: {error}; it begins {self._caller.excerpt(reply.body)}"
                complaint = TransientServiceError("search", what)
        elif reply.status in _OVERLOADED:
            return Outcome.FAILED, complaint
        elif reply.status < 500:
            request.divisible = reply.status in _ABOUT_THE_QUERIES
            return Outcome.ALIVE, complaint
        request.divisible = True
        return single, complaint

    def _left(self) -> float:
        """Seconds until the deadline."""
        return self._until - asyncio.get_running_loop().time()

"""One call of the HTTP retriever: its requests, their repetitions, and the search for the queries
that are to blame."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from enum import Enum

from ssp_env.errors import ServiceError, TransientServiceError
from ssp_env.net.http import Caller, NoAnswer
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.client.breaker import CircuitBreaker
from ssp_env.search.client.config import HTTPConfig
from ssp_env.search.client.wire import WrongReply, read_reply, write_request
from ssp_env.types import Document

Results = list[list[Document] | ServiceError]

_OVERLOADED = frozenset({408, 425, 429, 502, 503, 504})
_ABOUT_THE_QUERIES = frozenset({400, 413, 422})


class _Outcome(Enum):
    """What a try says about the server."""

    ALIVE = "alive"
    """It answered as it should, or refused this very request."""
    FAILED = "failed"
    """It was not there, not in time, overloaded, or could not answer a single query."""
    UNKNOWN = "unknown"
    """Nothing: there was none, or one query of many may be to blame."""


@dataclass
class _Chunk:
    """What the breaker takes for one request: the whole one, and the parts into which it may be
    divided."""

    trying: bool
    """Whether it is the one that tries a server which is being left alone. Then nothing is tried
    more than once."""
    answered: bool = False
    failure: str | None = None
    """Why it was given up, or a part of it, where that is the server's failure."""


@dataclass
class _Request:
    """One request, and what its last try found out."""

    queries: list[str]
    chunk: _Chunk
    divisible: bool = False
    """Whether the server was there, so that a part of the queries may fare better."""
    # Not forgotten while the next try waits for its turn, which may not come before the deadline.
    outcome: _Outcome = _Outcome.UNKNOWN


class Asking:
    """The requests of one call, which share ``k`` and a deadline. Lives on the loop that the caller
    runs on."""

    def __init__(
        self, config: HTTPConfig, caller: Caller, breaker: CircuitBreaker, k: int, divide: bool
    ) -> None:
        """
        Args:
            config: limits and patience. The deadline counts from now.
            caller: the connections.
            breaker: asked before new requests, and told how they end.
            k: documents a query.
            divide: whether to find out which queries of a failing request are to blame.
        """
        self._config, self._caller, self._breaker, self._k, self._divide = (
            config,
            caller,
            breaker,
            k,
            divide,
        )
        self._once = replace(config.retry, attempts=1)
        self._until = asyncio.get_running_loop().time() + config.deadline

    async def chunk(self, queries: list[str]) -> Results:
        """One result a query, for as many as fit into one request, which the breaker may stop
        before its first try."""
        try:
            chunk = _Chunk(self._breaker.enter())
        except ServiceError as error:
            return [error] * len(queries)
        try:
            return await self._results(
                queries, self._once if chunk.trying else self._config.retry, chunk
            )
        finally:
            # What fails because of its queries is no failure of a server that answers the others.
            self._breaker.leave(None if chunk.answered else chunk.failure, chunk.trying)

    async def _results(self, queries: list[str], policy: RetryPolicy, chunk: _Chunk) -> Results:
        request = _Request(queries, chunk)
        try:
            rankings = await policy.call_async(lambda: self._try(request), self._left)
        except ServiceError as error:
            if request.outcome is _Outcome.FAILED:
                chunk.failure = error.what
            if not (self._divide and request.divisible and len(queries) > 1):
                return [error] * len(queries)
        else:
            return [*rankings]
        middle = len(queries) // 2
        parts = await asyncio.gather(
            self._part(queries[:middle], chunk), self._part(queries[middle:], chunk)
        )
        return parts[0] + parts[1]

    async def _part(self, queries: list[str], chunk: _Chunk) -> Results:
        """Results for a part of a request that failed. Only a query that stands alone is tried more
        than once."""
        patient = len(queries) == 1 and not chunk.trying
        return await self._results(queries, self._config.retry if patient else self._once, chunk)

    async def _try(self, request: _Request) -> list[list[Document]]:
        """Sends a request once, when it is its turn.

        Raises:
            TransientServiceError: no answer, or one that may be better the next time.
            ServiceError: a refusal, or no turn before the deadline.
        """
        request.divisible = False
        try:
            async with self._caller.turn(self._until):
                request.outcome, result = await self._ask(request)
                if request.outcome is _Outcome.ALIVE:
                    request.chunk.answered = True
                    self._breaker.answered()  # now: other searches fail until it is known
        except TimeoutError:
            what = f"{self._caller.url}: no connection was free within {self._config.deadline:g} s"
            raise ServiceError("search", what) from None
        if isinstance(result, ServiceError):
            raise result
        return result

    async def _ask(self, request: _Request) -> tuple[_Outcome, list[list[Document]] | ServiceError]:
        """What the server says to a request, and what that says about the server."""
        single = _Outcome.FAILED if len(request.queries) == 1 else _Outcome.UNKNOWN
        body = write_request(request.queries, self._k)
        try:
            reply = await self._caller.post(
                body, max(0.0, min(self._config.timeout, self._left())), "search"
            )
        except NoAnswer as error:
            return _Outcome.FAILED, error
        except TransientServiceError as error:
            request.divisible = True
            return single, error
        complaint = self._caller.complaint(reply, "search")
        if complaint is None:
            try:
                return _Outcome.ALIVE, read_reply(reply.body, len(request.queries), self._k)
            except WrongReply as error:
                what = (
                    f"{self._caller.url} sent no answer: {error}; it begins "
                    f"{self._caller.excerpt(reply.body)}"
                )
                complaint = TransientServiceError("search", what)
        elif reply.status in _OVERLOADED:
            return _Outcome.FAILED, complaint
        elif reply.status == 401:
            return _Outcome.ALIVE, ServiceError(
                "search", f"{complaint.what} ({self._about_the_token()})"
            )
        elif reply.status < 500:
            request.divisible = reply.status in _ABOUT_THE_QUERIES
            return _Outcome.ALIVE, complaint
        request.divisible = True
        return single, complaint

    def _about_the_token(self) -> str:
        if self._config.token_env is None:
            return (
                "no token was sent: name the environment variable that holds it, as token_env "
                "or --token-env"
            )
        return (
            f"the token in {self._config.token_env} was sent; token_env or --token-env names "
            f"another variable"
        )

    def _left(self) -> float:
        """Seconds until the deadline."""
        return self._until - asyncio.get_running_loop().time()

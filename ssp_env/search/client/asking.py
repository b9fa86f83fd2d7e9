"""One search over HTTP: its requests, their repetitions, and which queries are to blame."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from ssp_env.errors import ServiceError, TransientServiceError
from ssp_env.net.http import Caller, NoAnswer
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.client.config import HTTPConfig
from ssp_env.search.client.wire import WrongReply, read_reply, write_request
from ssp_env.types import Document

Results = list[list[Document] | ServiceError]

_OVERLOADED = frozenset({408, 425, 429, 502, 503, 504})
_ABOUT_THE_QUERIES = frozenset({400, 413, 422})


class Breaker:
    """Leaves a server alone for a while that keeps failing; then one request may try it.

    It lives on the one event loop of all clients, so that it needs no lock."""

    def __init__(self, url: str, limit: int, seconds: float) -> None:
        """
        Args:
            url: what errors call the server.
            limit: failures in a row after which it is left alone.
            seconds: for how long.
        """
        self._url, self._limit, self._seconds = url, limit, seconds
        self._failures, self._until, self._last = 0, 0.0, ""

    def enter(self) -> bool:
        """Whether a request is the one that tries a server which was left alone.

        Raises:
            ServiceError: the server is being left alone.
        """
        if self._failures < self._limit:
            return False
        left = self._until - time.monotonic()
        if left > 0:
            what = f"{self._url} was not called: its last {self._failures} requests failed"
            when = f"the next one is tried in {left:.1f} s"
            raise ServiceError("search", f"{what}, {when}; the last failure: {self._last}")
        self._until = time.monotonic() + self._seconds  # the others wait for what it finds out
        return True

    def answered(self) -> None:
        """The server answered, or refused the very request."""
        self._failures = 0

    def failed(self, why: str) -> None:
        """A request was given up, after all its tries."""
        self._failures, self._last = self._failures + 1, why
        self._until = time.monotonic() + self._seconds


class _Refused(Exception):
    """Why an error is one: the server will not answer these queries, however often it is asked."""


@dataclass
class _Chunk:
    """What became of a request and the parts into which it was divided."""

    answered: bool = False
    failure: str = ""


class Asking:
    """The requests of one search, which share ``k`` and a deadline."""

    def __init__(
        self, config: HTTPConfig, caller: Caller, breaker: Breaker, k: int, divide: bool
    ) -> None:
        """
        Args:
            config: limits and patience. The deadline counts from now.
            caller: the connections.
            breaker: asked before each request, and told how it ends.
            k: documents per query.
            divide: whether to find out which queries of a failing request are to blame.
        """
        self._config, self._caller, self._breaker = config, caller, breaker
        self._k, self._divide = k, divide
        self._once = replace(config.retry, attempts=1)
        self._until = asyncio.get_running_loop().time() + config.deadline

    async def chunk(self, queries: list[str]) -> Results:
        """One result per query, for as many as fit into one request."""
        try:
            trying = self._breaker.enter()
        except ServiceError as error:
            return [error] * len(queries)

        chunk = _Chunk()
        patience = self._once if trying else self._config.retry
        results = await self._results(queries, patience, chunk)
        # What fails because of its queries is not a failure of a server that answers the others.
        if not chunk.answered:
            self._breaker.failed(chunk.failure)
        return results

    async def _results(self, queries: list[str], patience: RetryPolicy, chunk: _Chunk) -> Results:
        try:
            return [*await patience.call_async(lambda: self._try(queries, chunk), self._left)]
        except ServiceError as error:
            if not (self._divide and len(queries) > 1 and _divisible(error)):
                chunk.failure = error.what
                return [error] * len(queries)

        # Only a query that stands alone is tried more than once: the halves are no new outage.
        middle = len(queries) // 2
        parts = await asyncio.gather(
            *(
                self._results(part, self._config.retry if len(part) == 1 else self._once, chunk)
                for part in (queries[:middle], queries[middle:])
            )
        )
        return parts[0] + parts[1]

    async def _try(self, queries: list[str], chunk: _Chunk) -> list[list[Document]]:
        """Sends a request once, when it is its turn.

        Raises:
            TransientServiceError: no answer (``NoAnswer``), or none of use.
            ServiceError: a refusal, or no turn before the deadline.
        """
        body = write_request(queries, self._k)
        try:
            async with self._caller.turn(self._until):
                patience = max(0.0, min(self._config.timeout, self._left()))
                reply = await self._caller.post(body, patience, "search")
        except TimeoutError:
            what = f"{self._caller.url}: no connection was free within {self._config.deadline:g} s"
            raise ServiceError("search", what) from None

        complaint = self._caller.complaint(reply, "search")
        if complaint is None:
            try:
                rankings = read_reply(reply.body, len(queries), self._k)
            except WrongReply as error:
                begins = self._caller.excerpt(reply.body)
                what = f"{self._caller.url} sent no answer: {error}; it begins {begins}"
                raise TransientServiceError("search", what) from None
            self._answered(chunk)
            return rankings

        if reply.status in _OVERLOADED:
            retry_after = getattr(complaint, "retry_after", None)
            raise NoAnswer("search", complaint.what, retry_after)
        if reply.status < 500:
            self._answered(chunk)
        if reply.status == 401:
            raise ServiceError("search", f"{complaint.what} ({self._about_the_token()})")
        if reply.status in _ABOUT_THE_QUERIES:
            raise complaint from _Refused()
        raise complaint

    def _answered(self, chunk: _Chunk) -> None:
        chunk.answered = True
        self._breaker.answered()  # at once: other searches fail until it is known

    def _about_the_token(self) -> str:
        name = self._config.token_env
        if name is None:
            what = "no token was sent: name the environment variable that holds it"
            return f"{what}, as token_env or --token-env"
        return f"the token in {name} was sent; token_env or --token-env names another variable"

    def _left(self) -> float:
        """Seconds until the deadline."""
        return self._until - asyncio.get_running_loop().time()


def _divisible(error: ServiceError) -> bool:
    """Whether the server was there, so that a part of the queries may fare better."""
    last = error.__cause__ or error  # the last try's, where the retries were spent
    if isinstance(last, TransientServiceError):
        return not isinstance(last, NoAnswer)
    return isinstance(last, _Refused)

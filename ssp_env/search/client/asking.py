"""One search over HTTP: its requests, their repetitions, and which queries are to blame."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ssp_env.errors import ServiceError, TransientServiceError
from ssp_env.net.http import Caller, NoAnswer
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.client.config import HTTPConfig
from ssp_env.search.client.wire import WrongReply, read_reply, write_request
from ssp_env.types import Document

Results = list[list[Document] | ServiceError]

_OVERLOADED = frozenset({408, 425, 429, 502, 503, 504})
_ABOUT_THE_QUERIES = frozenset({400, 413, 422})


class _Refused(Exception):
    """Why an error is one: the server will not answer these queries, however often it is asked."""


class Asking:
    """The requests of one search, which share ``k`` and a deadline."""

    def __init__(self, config: HTTPConfig, caller: Caller, k: int, divide: bool) -> None:
        """
        Args:
            config: limits and patience. The deadline counts from now.
            caller: the connections.
            k: documents per query.
            divide: whether to find out which queries of a failing request are to blame.
        """
        self._config, self._caller, self._k, self._divide = config, caller, k, divide
        self._once = replace(config.retry, attempts=1)
        self._until = asyncio.get_running_loop().time() + config.deadline

    async def request(self, queries: list[str], patience: RetryPolicy) -> Results:
        """One result per query, for as many as fit into one request."""
        try:
            return [*await patience.call_async(lambda: self._try(queries), self._left)]
        except ServiceError as error:
            if not (self._divide and len(queries) > 1 and _divisible(error)):
                return [error] * len(queries)

        # Only a query that stands alone is tried more than once: the halves are no new outage.
        middle = len(queries) // 2
        parts = await asyncio.gather(
            *(
                self.request(part, self._config.retry if len(part) == 1 else self._once)
                for part in (queries[:middle], queries[middle:])
            )
        )
        return parts[0] + parts[1]

    async def _try(self, queries: list[str]) -> list[list[Document]]:
        """Sends a request once, when it is its turn.

        Raises:
            TransientServiceError: no answer (``NoAnswer``), or none of use.
            ServiceError: a refusal, or no turn before the deadline.
        """
        body, url = write_request(queries, self._k), self._caller.url
        try:
            async with self._caller.turn(self._until):
                patience = max(0.0, min(self._config.timeout, self._left()))
                reply = await self._caller.post(body, patience, "search")
        except TimeoutError:
            what = f"{url}: no connection was free within {self._config.deadline:g} s"
            raise ServiceError("search", what) from None

        complaint = self._caller.complaint(reply, "search")
        if complaint is None:
            try:
                return read_reply(reply.body, len(queries), self._k)
            except WrongReply as error:
                begins = self._caller.excerpt(reply.body)
                what = f"{url} sent no answer: {error}; it begins {begins}"
                raise TransientServiceError("search", what) from None
        if reply.status in _OVERLOADED:
            retry_after = getattr(complaint, "retry_after", None)
            raise NoAnswer("search", complaint.what, retry_after)
        if reply.status in _ABOUT_THE_QUERIES:
            raise complaint from _Refused()
        if reply.status == 401:
            name = self._config.token_env
            sent = "no token was sent" if name is None else f"the token in {name} was sent"
            fix = "token_env or --token-env names the environment variable that holds it"
            raise ServiceError("search", f"{complaint.what} ({sent}; {fix})")
        raise complaint

    def _left(self) -> float:
        """Seconds until the deadline."""
        return self._until - asyncio.get_running_loop().time()


def _divisible(error: ServiceError) -> bool:
    """Whether the server was there, so that a part of the queries may fare better."""
    last = error.__cause__ or error  # the last try's, where the retries were spent
    if isinstance(last, TransientServiceError):
        return not isinstance(last, NoAnswer)
    return isinstance(last, _Refused)

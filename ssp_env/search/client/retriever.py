"""The HTTP retriever."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from ssp_env.errors import ServiceError, TransientServiceError
from ssp_env.net.http import Caller, NoAnswer, read_key
from ssp_env.net.loop import shared
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.base import Results, check_request, whole
from ssp_env.search.client.config import HTTPConfig
from ssp_env.search.client.wire import WrongReply, read_reply, well_formed, write_request
from ssp_env.types import Document

_OVERLOADED = frozenset({408, 425, 429, 502, 503, 504})
_ABOUT_THE_QUERIES = frozenset({400, 413, 422})


class HTTPRetriever:
    """Asks a server that speaks Search-R1's protocol. May be shared between any number of threads;
    pickled or copied, it opens its own connections.

    A failing request is tried again with back-off, as long as the deadline allows. ``search`` is
    all or nothing. ``search_each``, which the game uses, divides a request that the server cannot
    answer until the queries that are to blame stand alone. Where the server cannot be reached, is
    overloaded, or the time is up, all queries of a request fail together."""

    def __init__(self, config: HTTPConfig | str) -> None:
        """
        Args:
            config: the server, or just its address.

        Raises:
            ConfigError: a setting that cannot work, or the variable for the token is not set.
        """
        self.config = HTTPConfig(config) if isinstance(config, str) else config
        key = read_key("server.token_env", self.config.token_env, "the server's token")
        limits = self.config.connections, self.config.max_reply_bytes
        self._caller = Caller(self.config.endpoint, key, *limits)

    def __reduce__(self) -> tuple[type[Self], tuple[HTTPConfig]]:
        return type(self), (self.config,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked documents for each query; see :class:`~ssp_env.search.base.Retriever`.

        Raises:
            ServiceError: the server could not answer all of them, and why.
            ConfigError: ``k`` below 1.
            UsageError: ``queries`` is one string, or the retriever is closed.
        """
        return whole(shared().run(self._each(queries, k, divide=False)))

    def search_each(self, queries: Sequence[str], k: int) -> Results:
        """One ranking or error per query; see :func:`ssp_env.search.base.search_each`.

        Raises:
            ConfigError, UsageError: as for :meth:`search`.
        """
        return shared().run(self._each(queries, k, divide=True))

    def close(self) -> None:
        """Closes the connections; the retriever cannot be used afterwards."""
        self._caller.close()

    async def _each(self, queries: Sequence[str], k: int, divide: bool) -> Results:
        """One result per query. The same query is sent once; ``divide`` as for ``_Asking``."""
        check_request(queries, k)

        # Cut before it is cleaned: a megabyte is not worth reading for what is left out, and
        # cutting may halve a pair.
        sent = [well_formed(query[: self.config.max_query_chars]) for query in queries]
        different = list(dict.fromkeys(sent))

        asking = _Asking(self.config, self._caller, k, divide)
        size = self.config.max_batch
        chunks = [different[start : start + size] for start in range(0, len(different), size)]
        retry = self.config.retry
        answers = await asyncio.gather(*(asking.request(chunk, retry) for chunk in chunks))

        found = dict(zip(different, itertools.chain.from_iterable(answers), strict=True))
        return [
            result if isinstance(result, ServiceError) else list(result)
            for result in map(found.__getitem__, sent)
        ]


class _Refused(Exception):
    """Why an error is one: the server will not answer these queries, however often it is asked."""


class _Asking:
    """The requests of one search, which share ``k`` and a deadline."""

    def __init__(self, config: HTTPConfig, caller: Caller, k: int, divide: bool) -> None:
        """The deadline counts from now. ``divide``: whether to find out which queries of a failing
        request are to blame."""
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
            raise NoAnswer("search", complaint.what, getattr(complaint, "retry_after", None))
        if reply.status in _ABOUT_THE_QUERIES:
            raise complaint from _Refused()
        if reply.status == 401:
            fix = "token_env or --token-env names the variable that holds the server's token"
            raise ServiceError("search", f"{complaint.what} ({fix})")
        raise complaint

    def _left(self) -> float:
        """Seconds until the deadline."""
        return self._until - asyncio.get_running_loop().time()


def _divisible(error: ServiceError) -> bool:
    """Whether the server was there, so that a part of the queries may fare better."""
    last = error.__cause__ or error  # the last try's, where the retries were spent
    return isinstance(last, TransientServiceError | _Refused) and not isinstance(last, NoAnswer)

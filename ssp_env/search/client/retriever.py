"""The HTTP retriever, blocking and async."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Self

from ssp_env.errors import ServiceError
from ssp_env.net.http import Caller, read_key
from ssp_env.net.loop import shared
from ssp_env.search.base import check_request, whole
from ssp_env.search.client.asking import Asking, Results
from ssp_env.search.client.config import HTTPConfig
from ssp_env.search.client.wire import well_formed
from ssp_env.types import Document


class _Client:
    """What both faces share. Pickled or copied, it opens its own connections."""

    def __init__(self, config: HTTPConfig | str) -> None:
        """
        Args:
            config: the server, or just its address.

        Raises:
            ConfigError: a setting that cannot work, or the variable for the token is not set.
        """
        self.config = HTTPConfig(config) if isinstance(config, str) else config
        key = read_key("http.token_env", self.config.token_env, "the server's token")
        limits = self.config.connections, self.config.max_reply_bytes
        self._caller = Caller(self.config.endpoint, key, *limits)

    def __reduce__(self) -> tuple[type[Self], tuple[HTTPConfig]]:
        return type(self), (self.config,)

    async def _each(self, queries: Sequence[str], k: int, divide: bool) -> Results:
        """One result per query. The same query is sent once; ``divide`` as for ``Asking``."""
        check_request(queries, k)

        # Cut before it is cleaned: a megabyte is not worth reading for what is left out, and
        # cutting may halve a pair.
        sent = [well_formed(query[: self.config.max_query_chars]) for query in queries]
        different = list(dict.fromkeys(sent))

        asking = Asking(self.config, self._caller, k, divide)
        size = self.config.max_batch
        chunks = [different[start : start + size] for start in range(0, len(different), size)]
        retry = self.config.retry
        answers = await asyncio.gather(*(asking.request(chunk, retry) for chunk in chunks))

        found = dict(zip(different, itertools.chain.from_iterable(answers), strict=True))
        return [
            result if isinstance(result, ServiceError) else list(result)
            for result in map(found.__getitem__, sent)
        ]


class HTTPRetriever(_Client):
    """Asks a server that speaks Search-R1's protocol. May be shared between any number of threads.

    A failing request is tried again with back-off, as long as the deadline allows. ``search`` is
    all or nothing. ``search_each``, which the game uses, divides a request that the server cannot
    answer until the queries that are to blame stand alone. Where the server cannot be reached, is
    overloaded, or the time is up, all queries of a request fail together."""

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
        """One ranking or error per query; see :class:`~ssp_env.search.base.PartialRetriever`.

        Raises:
            ConfigError, UsageError: as for :meth:`search`.
        """
        return shared().run(self._each(queries, k, divide=True))

    def close(self) -> None:
        """Closes the connections; the retriever cannot be used afterwards."""
        self._caller.close()


class AsyncHTTPRetriever(_Client):
    """:class:`HTTPRetriever`, awaited: from any event loop, or several."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """As :meth:`HTTPRetriever.search`."""
        return whole(await shared().run_async(self._each(queries, k, divide=False)))

    async def search_each(self, queries: Sequence[str], k: int) -> Results:
        """As :meth:`HTTPRetriever.search_each`."""
        return await shared().run_async(self._each(queries, k, divide=True))

    async def aclose(self) -> None:
        """As :meth:`HTTPRetriever.close`."""
        self._caller.close()

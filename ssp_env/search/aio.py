"""From blocking to async retrievers, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ssp_env.errors import ConfigError, UsageError
from ssp_env.net.loop import LoopThread
from ssp_env.search.base import AsyncRetriever, Retriever
from ssp_env.types import Document


class InThreads:
    """An async retriever of a blocking one, which is called in threads; the event loop stays free.

    For a server, :class:`~ssp_env.search.client.AsyncHTTPRetriever` needs no threads.
    """

    def __init__(self, retriever: Retriever, threads: int = 1) -> None:
        """
        Args:
            retriever: what is called.
            threads: most calls at a time; more than one only for a retriever that may be shared
                between threads.

        Raises:
            ConfigError: ``threads`` below 1.
        """
        if threads < 1:
            raise ConfigError("threads", threads, "at least one thread has to do the searching")
        self.retriever = retriever
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ssp-search")

    async def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """As the retriever's own."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, self.retriever.search, queries, k
        )

    def close(self) -> None:
        """Ends the threads, when they are done; the retriever is left alone."""
        self._pool.shutdown(wait=False)


class Blocking:
    """A retriever of an async one, which runs on an event loop of its own, in a thread.

    May be shared between threads: their searches run side by side on that loop.
    """

    def __init__(self, retriever: AsyncRetriever) -> None:
        """
        Args:
            retriever: what is awaited, always on the same event loop.
        """
        self.retriever = retriever
        self._thread = LoopThread("ssp-blocking")

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """As the retriever's own.

        Raises:
            UsageError: called on that very loop, by the async retriever itself; or that one is not
                async.
        """
        return self._thread.run(self._search(queries, k))

    def close(self) -> None:
        """Ends the thread; the retriever is left alone."""
        self._thread.close()

    async def _search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        found: object = self.retriever.search(queries, k)
        if not isinstance(found, Awaitable):
            name = type(self.retriever).__name__
            raise UsageError(
                f"Blocking wraps async retrievers, and {name} is a blocking one: use it as it is"
            )
        rankings: list[list[Document]] = await found
        return rankings

    def __reduce__(self) -> tuple[type[Blocking], tuple[AsyncRetriever]]:
        return type(self), (self.retriever,)

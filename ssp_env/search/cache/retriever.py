"""Rankings that are kept, in memory and on disk, so that the same query is not asked twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ssp_env.checks import at_least
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.search import base
from ssp_env.search.base import Retriever, check_count, check_request, whole
from ssp_env.search.cache.disk import DiskCache, Key
from ssp_env.search.cache.lru import LRU
from ssp_env.types import Document

Results = list[list[Document] | ServiceError]


class CachedRetriever:
    """Puts a cache before a retriever: rankings by query and ``k``. Failures are never kept.

    The misses of a call go onward as one batch, each different query once. May be shared between
    threads. Pickled or copied, it takes nothing from memory along; the file stays shared."""

    def __init__(
        self,
        retriever: Retriever,
        *,
        size: int = 100_000,
        path: str | Path | None = None,
        identity: str | None = None,
        max_bytes: int = 2**30,
    ) -> None:
        """
        Args:
            retriever: what answers the misses.
            size: most rankings in memory.
            path: a file for rankings that outlast the process (SQLite). Processes of one machine
                may share it.
            identity: with ``path``: what the retriever searches and how, such as ``"wiki-18, E5
                Flat, 2024-06"``. Nothing in a query or an address tells an old index from a new
                one, so it has to be said.
            max_bytes: about how large the file may grow; then what was written first goes.

        Raises:
            ConfigError: no retriever, a setting that cannot work, or a ``path`` without
                ``identity``.
            DataError: the file cannot be opened, or is not such a cache.
        """
        if not isinstance(retriever, Retriever):
            fix = "give an object with search(queries, k); for a server, HTTPRetriever(its address)"
            raise ConfigError("cache.retriever", retriever, fix)
        self.retriever, self.size, self.path, self.identity, self.max_bytes = (
            retriever,
            size,
            path,
            identity,
            max_bytes,
        )
        at_least(self, "cache", 0, "size")
        self._memory: LRU[Key, tuple[Document, ...]] = LRU(size)
        self._disk: DiskCache | None = None
        if path is not None:
            if not identity:
                fix = (
                    "name what the retriever searches, so that another index's rankings are "
                    "never taken for its own"
                )
                raise ConfigError("cache.identity", identity, fix)
            self._disk = DiskCache(path, identity, max_bytes)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """As the retriever's own, which is asked for the misses only.

        Raises:
            ServiceError: the retriever could not answer all of them.
            ConfigError: ``k`` below 1.
            UsageError: ``queries`` is one string, or the retriever does not give one ranking a
                query.
        """
        return whole(self._look_up(queries, k, lambda misses: [*self.retriever.search(misses, k)]))

    def search_each(self, queries: Sequence[str], k: int) -> Results:
        """One ranking or error a query; see :func:`ssp_env.search.base.search_each`."""
        return self._look_up(queries, k, lambda misses: base.search_each(self.retriever, misses, k))

    def close(self) -> None:
        """Closes the file; the retriever is left alone."""
        if self._disk is not None:
            self._disk.close()

    def __reduce__(self) -> tuple[Callable[..., CachedRetriever], tuple[object, ...]]:
        return _again, (self.retriever, self.size, self.path, self.identity, self.max_bytes)

    def _look_up(
        self, queries: Sequence[str], k: int, ask: Callable[[list[str]], Results]
    ) -> Results:
        check_request(queries, k)
        known = self._known([(query, k) for query in dict.fromkeys(queries)])
        misses = [query for query in dict.fromkeys(queries) if (query, k) not in known]
        failed: dict[str, ServiceError] = {}
        if misses:
            fresh: dict[Key, tuple[Document, ...]] = {}
            results = ask(misses)
            check_count(results, misses)
            for query, result in zip(misses, results, strict=True):
                if isinstance(result, ServiceError):
                    failed[query] = result
                else:
                    fresh[query, k] = tuple(result)
            self._keep(fresh)
            known |= fresh
        return [failed[query] if query in failed else list(known[query, k]) for query in queries]

    def _known(self, keys: Sequence[Key]) -> dict[Key, tuple[Document, ...]]:
        known = {key: ranking for key in keys if (ranking := self._memory.get(key)) is not None}
        if self._disk is not None and len(known) < len(keys):
            for key, ranking in self._disk.get([key for key in keys if key not in known]).items():
                self._memory.put(key, ranking)
                known[key] = ranking
        return known

    def _keep(self, fresh: dict[Key, tuple[Document, ...]]) -> None:
        for key, ranking in fresh.items():
            self._memory.put(key, ranking)
        if self._disk is not None and fresh:
            self._disk.put(fresh)


def _again(
    retriever: Retriever, size: int, path: str | Path | None, identity: str | None, max_bytes: int
) -> CachedRetriever:
    return CachedRetriever(retriever, size=size, path=path, identity=identity, max_bytes=max_bytes)

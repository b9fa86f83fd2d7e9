"""Rankings that are kept, in memory or on disk, so that the same query is not asked twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.search.base import (
    Results,
    Retriever,
    check_count,
    check_request,
    search_each,
    whole,
)
from ssp_env.types import Document

if TYPE_CHECKING:
    from ssp_env.search.cache.disk import DiskCache

_PER_ENTRY = 300
"""About what an entry takes in memory besides its text, in bytes."""


class CachedRetriever:
    """Puts a cache before a retriever: rankings by query and ``k``. Failures are never kept.

    The misses of a call go onward as one batch, each different query once. May be shared between
    threads. Pickled or copied, it takes nothing from memory along; the directory stays shared."""

    def __init__(
        self,
        retriever: Retriever,
        *,
        memory_bytes: int = 2**28,
        path: str | Path | None = None,
        identity: str | None = None,
        disk_bytes: int = 2**30,
    ) -> None:
        """
        Args:
            retriever: what answers the misses.
            memory_bytes: without ``path``: about how many bytes of rankings are kept in memory.
            path: a directory for rankings that outlast the process; processes of one machine may
                share it. Needs the extra ``cache``.
            identity: with ``path``: what the retriever searches and how, such as ``"wiki-18, E5
                Flat, 2024-06"``: no address distinguishes an old index from a new one.
            disk_bytes: about how large the directory may grow; then what was written first goes.

        Raises:
            ConfigError: not a retriever, a setting that cannot work, or ``path`` without
                ``identity``.
            DataError: the directory cannot be opened.
            MissingExtra: ``path`` without the extra.
        """
        if not isinstance(retriever, Retriever):
            fix = "give an object with search(queries, k); for a server, HTTPRetriever(its address)"
            raise ConfigError("cache.retriever", retriever, fix)
        if memory_bytes < 0:
            raise ConfigError("cache.memory_bytes", memory_bytes, "give a number of bytes")
        if path is not None and not identity:
            fix = "name what the retriever searches, so that no other index's rankings are used"
            raise ConfigError("cache.identity", identity, fix)

        self.retriever, self.identity = retriever, identity
        again = partial(CachedRetriever, path=path, identity=identity)
        self._again = partial(again, memory_bytes=memory_bytes, disk_bytes=disk_bytes)

        # Texts in memory as well: their size is known, and no caller can spoil them.
        self._kept: LRUCache[str, str] | DiskCache = LRUCache(memory_bytes, _size)
        self._lock = Lock()
        if path is not None:
            from ssp_env.search.cache.disk import DiskCache

            self._kept = DiskCache(path, disk_bytes)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """The rankings of all queries.

        Raises:
            ServiceError: the retriever could not answer all of them.
            ConfigError, UsageError: see :func:`ssp_env.search.base.check_request`.
        """
        return whole(self.search_each(queries, k))

    def search_each(self, queries: Sequence[str], k: int) -> Results:
        """One ranking or error per query; see :func:`ssp_env.search.base.search_each`."""
        check_request(queries, k)
        keys = {query: self._key(query, k) for query in queries}
        with self._lock:
            texts = {query: self._kept.get(key) for query, key in keys.items()}
        known: dict[str, list[Document] | ServiceError] = {}
        for query, text in texts.items():
            if text is not None and (ranking := _read(text)) is not None:
                known[query] = ranking

        misses = [query for query in keys if query not in known]
        results = search_each(self.retriever, misses, k) if misses else []
        check_count(results, misses)
        for query, result in zip(misses, results, strict=True):
            known[query] = result
            if not isinstance(result, ServiceError):
                # cachetools refuses what is larger than the whole cache.
                with self._lock, suppress(ValueError):
                    self._kept[keys[query]] = _write(result)

        # Each gets its own list, so that no caller changes another's.
        found = [known[query] for query in queries]
        return [result if isinstance(result, ServiceError) else [*result] for result in found]

    def close(self) -> None:
        """Closes the directory; the retriever is left alone."""
        if not isinstance(self._kept, LRUCache):
            self._kept.close()

    def __reduce__(self) -> tuple[Callable[..., CachedRetriever], tuple[Retriever]]:
        return self._again, (self.retriever,)

    def _key(self, query: str, k: int) -> str:
        # Of a fixed length, whatever a policy searches for.
        return hashlib.sha256(json.dumps([self.identity, int(k), query]).encode()).hexdigest()


def _size(text: str) -> int:
    return len(text) + _PER_ENTRY


def _write(ranking: Sequence[Document]) -> str:
    # ASCII, because JSON can spell the lone surrogates that UTF-8 and therefore SQLite cannot.
    return json.dumps([[found.id, found.title, found.text, found.score] for found in ranking])


def _read(text: str) -> list[Document] | None:
    """The ranking of a text; ``None`` for what :func:`_write` did not write."""
    try:
        rows = json.loads(text)
        return [Document(name, title, text, score) for name, title, text, score in rows]
    except (ValueError, TypeError):
        return None

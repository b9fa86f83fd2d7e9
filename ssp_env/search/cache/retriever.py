"""Rankings that are kept, in memory and on disk, so that the same query is not asked twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.search import base
from ssp_env.search.base import Results, Retriever, check_count, check_request, whole
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
            memory_bytes: about how many bytes of rankings are kept in memory.
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
        self.retriever, self.identity = retriever, identity
        again = partial(CachedRetriever, path=path, identity=identity)
        self._again = partial(again, memory_bytes=memory_bytes, disk_bytes=disk_bytes)

        # Texts, as on disk: their size is known, and no caller can spoil them.
        self._memory: LRUCache[str, str] = LRUCache(memory_bytes, _size)
        self._lock = Lock()
        self._disk: DiskCache | None = None
        if path is not None:
            if not identity:
                fix = "name what the retriever searches, so that no other index's rankings are used"
                raise ConfigError("cache.identity", identity, fix)
            from ssp_env.search.cache.disk import DiskCache

            self._disk = DiskCache(path, disk_bytes)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """As the retriever's own, which is asked for the misses only.

        Raises:
            ServiceError: the retriever could not answer all of them.
            ConfigError, UsageError: see :func:`ssp_env.search.base.check_request`.
        """
        return whole(self._look_up(queries, k, lambda misses: [*self.retriever.search(misses, k)]))

    def search_each(self, queries: Sequence[str], k: int) -> Results:
        """One ranking or error per query; see :func:`ssp_env.search.base.search_each`."""
        return self._look_up(queries, k, lambda misses: base.search_each(self.retriever, misses, k))

    def close(self) -> None:
        """Closes the directory; the retriever is left alone."""
        if self._disk is not None:
            self._disk.close()

    def __reduce__(self) -> tuple[Callable[..., CachedRetriever], tuple[Retriever]]:
        return self._again, (self.retriever,)

    def _look_up(
        self, queries: Sequence[str], k: int, ask: Callable[[list[str]], Results]
    ) -> Results:
        check_request(queries, k)
        keys = {query: self._key(query, k) for query in queries}
        known: dict[str, list[Document] | ServiceError] = {**self._known(keys.values())}

        misses = [query for query, key in keys.items() if key not in known]
        if misses:
            results = ask(misses)
            check_count(results, misses)
            fresh: dict[str, str] = {}
            for query, result in zip(misses, results, strict=True):
                known[keys[query]] = result
                if not isinstance(result, ServiceError):
                    fresh[keys[query]] = _write(result)
            self._remember(fresh)
            if self._disk is not None and self._disk.usable:
                with self._disk.harmless():
                    self._disk.put(fresh)

        # Each gets its own list, so that no caller changes another's.
        found = [known[keys[query]] for query in queries]
        return [result if isinstance(result, ServiceError) else [*result] for result in found]

    def _known(self, keys: Collection[str]) -> dict[str, list[Document]]:
        """The rankings that are kept."""
        with self._lock:
            texts = {key: text for key in keys if (text := self._memory.get(key)) is not None}
        rankings = {key: _read(text) for key, text in texts.items()}
        if self._disk is not None and self._disk.usable:
            with self._disk.harmless():
                stored = self._disk.get(key for key in keys if key not in texts)
                rankings |= {key: _read(text) for key, text in stored.items()}
                self._remember(stored)
        return rankings

    def _remember(self, texts: Mapping[str, str]) -> None:
        with self._lock:
            for key, text in texts.items():
                if _size(text) <= self._memory.maxsize:
                    self._memory[key] = text

    def _key(self, query: str, k: int) -> str:
        # Of a fixed length, whatever a policy searches for.
        return hashlib.sha256(json.dumps([self.identity, int(k), query]).encode()).hexdigest()


def _size(text: str) -> int:
    return len(text) + _PER_ENTRY


def _write(ranking: Sequence[Document]) -> str:
    # ASCII, because JSON can spell the lone surrogates that UTF-8 and therefore SQLite cannot.
    return json.dumps([[found.id, found.title, found.text, found.score] for found in ranking])


def _read(text: str) -> list[Document]:
    """Raises ``ValueError`` or ``TypeError`` for what :func:`_write` did not write."""
    rows = json.loads(text)
    for row in rows:
        match row:
            case [str(), str(), str(), int() | float() | None]:
                pass
            case _:
                raise ValueError(f"not a document: {str(row)[:100]}")
    return [Document(*row) for row in rows]

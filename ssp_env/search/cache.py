"""Rankings that are kept in a directory, so that the same query is not asked twice (diskcache)."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ssp_env.errors import DataError, MissingExtra, ServiceError
from ssp_env.search.base import Results, Retriever, check_request, identify, search_each, whole
from ssp_env.types import Document

try:
    import diskcache
except ModuleNotFoundError as error:
    raise MissingExtra("a cache on disk", "pip install '.[cache]' in the checkout") from error


class CachedRetriever:
    """Puts a cache before a retriever: rankings by query and ``k``. Failures are never kept.

    The misses of a call go onward as one batch, each different query once. May be shared between
    threads, and the directory between processes of one machine. Nothing in the address of a server
    tells an old index from a new one: delete the directory when the server's index changes. Use no
    directory that a stranger has written: diskcache reads pickles."""

    def __init__(self, retriever: Retriever, path: str | Path, max_bytes: int = 2**30) -> None:
        """
        Args:
            retriever: answers the misses.
            path: a directory, which may hold the rankings of several retrievers.
            max_bytes: about how large it may grow; then what was written first goes.

        Raises:
            DataError: the directory cannot be opened; later, that it cannot be read or written.
        """
        self.retriever, self._path, self._max_bytes = retriever, Path(path), max_bytes
        self._identity = identify(retriever)
        with self._usable():
            # Values of any size stay in the database.
            limits = {"size_limit": max_bytes, "disk_min_file_size": 2**40}
            self._kept = diskcache.Cache(str(path), **limits)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """The rankings of all queries."""
        return whole(self.search_each(queries, k))

    def search_each(self, queries: Sequence[str], k: int) -> Results:
        """One ranking or error per query; see :func:`ssp_env.search.base.search_each`."""
        check_request(queries, k)
        # Keys of a fixed length, whatever a policy searches for.
        keys = {
            query: hashlib.sha256(json.dumps([self._identity, int(k), query]).encode()).hexdigest()
            for query in queries
        }
        known: dict[str, list[Document] | ServiceError] = {}
        with self._usable():
            for query, key in keys.items():
                if (text := self._kept.get(key)) is not None:
                    known[query] = [Document(*row) for row in json.loads(text)]

        misses = [query for query in keys if query not in known]
        results = search_each(self.retriever, misses, k) if misses else []
        for query, result in zip(misses, results, strict=True):
            known[query] = result
            if not isinstance(result, ServiceError):
                rows = [[found.id, found.title, found.text, found.score] for found in result]
                with self._usable():
                    self._kept.set(keys[query], json.dumps(rows))

        # Each gets its own list, so that no caller changes another's.
        found = [known[query] for query in queries]
        return [result if isinstance(result, ServiceError) else [*result] for result in found]

    def describe(self) -> dict[str, Any]:
        """The retriever's own description: a cache changes no result."""
        return {"of": [self._identity]}

    def close(self) -> None:
        """Closes the directory; the retriever is left alone."""
        self._kept.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.retriever, self._path, self._max_bytes)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, diskcache.Timeout, OSError, ValueError, TypeError) as error:
            fix = "delete it, or name another directory that can be read and written"
            raise DataError(self._path, f"cannot be used as a cache: {error}; {fix}") from error

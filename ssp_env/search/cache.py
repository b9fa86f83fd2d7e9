"""Rankings that are kept in a directory, so that the same query is not asked twice (diskcache)."""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ssp_env.errors import DataError, MissingExtra, ServiceError
from ssp_env.search.base import (
    Results,
    Retriever,
    check_count,
    check_request,
    identify,
    search_each,
    whole,
)
from ssp_env.types import Document

try:
    import diskcache
except ModuleNotFoundError as error:
    raise MissingExtra("a cache on disk", "pip install '.[cache]' in the checkout") from error

_log = logging.getLogger(__name__)


class _TextOnly(diskcache.Disk):  # type: ignore[misc]
    """Takes nothing but text out of a database.

    diskcache pickles what is not text, and believes a row that says that it is pickled; also in a
    database that somebody else wrote."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> str:
        """The text of a row; ``null`` if it is anything else."""
        text = mode == diskcache.core.MODE_RAW and filename is None and isinstance(value, str)
        return value if text else "null"


class CachedRetriever:
    """Puts a cache before a retriever: rankings by query and ``k``. Failures are never kept.

    The misses of a call go onward as one batch, each different query once. May be shared between
    threads, and the directory between processes of one machine. Nothing in the address of a server
    tells an old index from a new one: delete the directory when the server's index changes.

    A cache is never the reason that a search fails: when the directory can no longer be read or
    written, that is logged once, and the directory is left alone."""

    def __init__(self, retriever: Retriever, path: str | Path, max_bytes: int = 2**30) -> None:
        """
        Args:
            retriever: answers the misses.
            path: a directory, which may hold the rankings of several retrievers.
            max_bytes: about how large it may grow; then what was written first goes.

        Raises:
            DataError: the directory cannot be opened.
        """
        self.retriever, self._path, self._max_bytes = retriever, Path(path), max_bytes
        self._identity, self._usable = identify(retriever), True
        # Values of any size stay in the database.
        limits = {"size_limit": max_bytes, "disk_min_file_size": 2**40}
        try:
            self._kept = diskcache.Cache(str(path), disk=_TextOnly, **limits)
        except (sqlite3.Error, OSError, ValueError) as error:
            fix = "delete it, or name another directory that can be read and written"
            raise DataError(path, f"cannot be used as a cache: {error}; {fix}") from error

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """The rankings of all queries.

        Raises:
            ServiceError: the retriever could not answer all of them.
        """
        return whole(self.search_each(queries, k))

    def search_each(self, queries: Sequence[str], k: int) -> Results:
        """One ranking or error per query; see :func:`ssp_env.search.base.search_each`."""
        check_request(queries, k)
        keys = {query: self._key(query, k) for query in queries}
        known: dict[str, list[Document] | ServiceError] = {}
        for query, key in keys.items():
            text = self._harmless(partial(self._kept.get, key))
            if text is not None and (ranking := _read(text)) is not None:
                known[query] = ranking

        misses = [query for query in keys if query not in known]
        results = search_each(self.retriever, misses, k) if misses else []
        check_count(results, misses)
        for query, result in zip(misses, results, strict=True):
            known[query] = result
            if not isinstance(result, ServiceError):
                rows = [[found.id, found.title, found.text, found.score] for found in result]
                self._harmless(partial(self._kept.set, keys[query], json.dumps(rows)))

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

    def _key(self, query: str, k: int) -> str:
        # Of a fixed length, whatever a policy searches for.
        return hashlib.sha256(json.dumps([self._identity, int(k), query]).encode()).hexdigest()

    def _harmless(self, act: Callable[[], Any]) -> Any:
        if not self._usable:
            return None
        try:
            return act()
        except (sqlite3.Error, diskcache.Timeout, OSError) as error:
            text = "the search cache %s cannot be used and is left alone from now on: %s"
            _log.warning(text, self._path, error)
            self._usable = False
            return None


def _read(text: str) -> list[Document] | None:
    """The ranking of a text; ``None`` for one that was not written here."""
    try:
        return [Document(name, title, text, score) for name, title, text, score in json.loads(text)]
    except (ValueError, TypeError):
        return None

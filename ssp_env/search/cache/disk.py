"""Rankings in a directory, which threads and processes of one machine may share (diskcache)."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, DataError, MissingExtra

try:
    import diskcache
except ModuleNotFoundError as error:
    raise MissingExtra("a cache on disk", "pip install '.[cache]' in the checkout") from error

_LOG = logging.getLogger(__name__)
_SMALLEST = 2**20
_IN_ONE_FILE = 2**40
"""Values below this size stay in the database, which is all of them."""


class _TextOnly(diskcache.Disk):  # type: ignore[misc]
    """Takes nothing but text out of a database.

    diskcache pickles what is not text, and believes a row that says that it is pickled; also in a
    database that somebody else wrote."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> str:
        """The text of a row."""
        if mode != diskcache.core.MODE_RAW or filename is not None or not isinstance(value, str):
            raise ValueError("a row that is not text")
        return value


class DiskCache:
    """Keeps texts by key; the oldest go when the directory grows too large."""

    def __init__(self, path: str | Path, max_bytes: int) -> None:
        if max_bytes < _SMALLEST:
            fix = f"give the directory at least {_SMALLEST} bytes"
            raise ConfigError("cache.disk_bytes", max_bytes, fix)
        self.path, self.usable = Path(path), True
        limits = {"size_limit": max_bytes, "disk_min_file_size": _IN_ONE_FILE}
        try:
            self._cache = diskcache.Cache(str(path), disk=_TextOnly, **limits)
        except (sqlite3.Error, OSError, ValueError) as error:
            fix = "delete it, or name another directory that can be read and written"
            raise DataError(path, f"cannot be used as a cache: {error}; {fix}") from error

    @contextmanager
    def harmless(self) -> Iterator[None]:
        """A cache is never the reason that a search fails: what cannot be read or written is logged
        once, and from then on nothing is."""
        try:
            yield
        except (sqlite3.Error, diskcache.Timeout, OSError, ValueError, TypeError) as error:
            text = "the search cache %s cannot be used and is left alone from now on: %s"
            _LOG.warning(text, self.path, error)
            self.usable = False

    def get(self, keys: Iterable[str]) -> dict[str, str]:
        """The texts that are there."""
        return {key: text for key in keys if (text := self._cache.get(key)) is not None}

    def put(self, texts: Mapping[str, str]) -> None:
        """Keeps texts."""
        with self._cache.transact():
            for key, text in texts.items():
                self._cache.set(key, text)

    def close(self) -> None:
        """Closes the directory."""
        self._cache.close()

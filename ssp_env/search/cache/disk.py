"""Rankings in a directory, which threads and processes of one machine may share (diskcache)."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping
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
        """The text of a row.

        Raises:
            ValueError: it is anything else, or in a file of its own.
        """
        if mode != diskcache.core.MODE_RAW or filename is not None or not isinstance(value, str):
            raise ValueError("a row that is not text")
        return value


class DiskCache:
    """Keeps texts by key; the oldest go when the directory grows too large.

    A cache is never the reason that a search fails: what cannot be read or written later on is
    logged once, and from then on nothing is. Threads and processes may share it."""

    def __init__(self, path: str | Path, max_bytes: int) -> None:
        """
        Args:
            path: the directory; made where it is missing.
            max_bytes: about how large it may grow.

        Raises:
            ConfigError: ``max_bytes`` below a megabyte.
            DataError: it cannot be opened.
        """
        if max_bytes < _SMALLEST:
            fix = f"give the directory at least {_SMALLEST} bytes"
            raise ConfigError("cache.disk_bytes", max_bytes, fix)
        self.path, self._usable = Path(path), True
        try:
            self._cache = diskcache.Cache(
                str(path), disk=_TextOnly, size_limit=max_bytes, disk_min_file_size=_IN_ONE_FILE
            )
        except (sqlite3.Error, OSError, ValueError) as error:
            fix = "delete it, or name another directory that can be read and written"
            raise DataError(path, f"cannot be used as a cache: {error}; {fix}") from error

    def get(self, keys: Iterable[str]) -> dict[str, str]:
        """The texts that are there."""
        found: dict[str, str] = {}
        if self._usable:
            try:
                for key in keys:
                    if (text := self._cache.get(key)) is not None:
                        found[key] = text
            except (sqlite3.Error, diskcache.Timeout, OSError, ValueError) as error:
                self.give_up("read", error)
                return {}
        return found

    def put(self, texts: Mapping[str, str]) -> None:
        """Keeps texts."""
        if self._usable:
            try:
                with self._cache.transact():
                    for key, text in texts.items():
                        self._cache.set(key, text)
            except (sqlite3.Error, diskcache.Timeout, OSError) as error:
                self.give_up("written", error)

    def give_up(self, what: str, error: Exception) -> None:
        """Uses the directory no more."""
        text = "the search cache %s cannot be %s and is left alone from now on: %s"
        _LOG.warning(text, self.path, what, error)
        self._usable = False

    def close(self) -> None:
        """Closes the directory."""
        self._cache.close()

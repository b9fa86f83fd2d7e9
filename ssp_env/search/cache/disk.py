"""Rankings in a directory, which threads and processes of one machine may share (diskcache)."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
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
        """The text of a row; empty if it is anything else."""
        text = mode == diskcache.core.MODE_RAW and filename is None and isinstance(value, str)
        return value if text else ""


class DiskCache:
    """Keeps texts by key; the oldest go when the directory grows too large.

    A cache is never the reason that a search fails: when the directory can no longer be read or
    written, that is logged once, and the directory is left alone."""

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

    def get(self, key: str) -> str | None:
        """The text, if it is there."""
        text: str | None = self._harmless(lambda: self._cache.get(key))
        return text

    def __setitem__(self, key: str, text: str) -> None:
        self._harmless(lambda: self._cache.set(key, text))

    def close(self) -> None:
        """Closes the directory."""
        self._cache.close()

    def _harmless(self, act: Callable[[], Any]) -> Any:
        if not self.usable:
            return None
        try:
            return act()
        except (sqlite3.Error, diskcache.Timeout, OSError) as error:
            text = "the search cache %s cannot be used and is left alone from now on: %s"
            _LOG.warning(text, self.path, error)
            self.usable = False
            return None

"""Rankings in an SQLite file, which threads and processes of one machine may share."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import RLock

from ssp_env.errors import ConfigError, DataError
from ssp_env.types import Document

_LOG = logging.getLogger(__name__)

_APPLICATION = 0x73737063
"""What SQLite's header calls a file of this kind ("sspc")."""
_PATIENCE = 10.0
"""Seconds that one process waits for another's write."""
_AT_ONCE = 500
"""Keys of one statement; SQLite allows 999 in its older versions."""
_SMALLEST = 2**20
_INHERITED: list[sqlite3.Connection] = []
"""Connections of a parent process, which SQLite forbids its children to use, even to close."""

Key = tuple[str, int]
"""Query and number of documents."""


class DiskCache:
    """Keeps rankings, the oldest of which go when the file grows too large. It holds JSON and
    nothing that could run.

    A cache is never the reason that a search fails: what cannot be read or written later on is
    logged once, and from then on nothing is. May be shared between threads; a forked or pickled one
    opens the file anew."""

    def __init__(self, path: str | Path, identity: str, max_bytes: int) -> None:
        """
        Args:
            path: the file; made where it is missing.
            identity: what the rankings belong to. Others in the file are not seen.
            max_bytes: about how large the file may grow.

        Raises:
            ConfigError: ``max_bytes`` below a megabyte.
            DataError: the file cannot be opened, or is not such a cache.
        """
        if max_bytes < _SMALLEST:
            raise ConfigError(
                "cache.max_bytes", max_bytes, f"give the file at least {_SMALLEST} bytes"
            )
        self.path, self.identity, self.max_bytes = Path(path), identity, max_bytes
        self._lock = RLock()
        self._usable = True
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        try:
            with self._lock:
                self._connect()
        except sqlite3.Error as error:
            raise DataError(
                self.path, f"cannot be used as a cache: {error}; {self._fix(error)}"
            ) from error

    def get(self, keys: Sequence[Key]) -> dict[Key, tuple[Document, ...]]:
        """The rankings that are there."""
        digests = {self._digest(key): key for key in keys}
        found: dict[Key, tuple[Document, ...]] = {}
        with self._lock:
            if not self._usable:
                return found
            try:
                for start in range(0, len(keys), _AT_ONCE):
                    some = list(digests)[start : start + _AT_ONCE]
                    statement = (
                        f"SELECT key, ranking FROM rankings WHERE key IN "
                        f"({','.join('?' * len(some))})"
                    )
                    for digest, text in self._connect().execute(statement, some):
                        found[digests[digest]] = _read(text)
            except (sqlite3.Error, ValueError) as error:
                self._give_up("read", error)
                return {}
        return found

    def put(self, rankings: Mapping[Key, Sequence[Document]]) -> None:
        """Keeps rankings."""
        rows = [(self._digest(key), _write(ranking)) for key, ranking in rankings.items()]
        with self._lock:
            if not self._usable:
                return
            try:
                connection = self._connect()
                with connection:  # a transaction
                    connection.execute("BEGIN IMMEDIATE")
                    connection.executemany(
                        "INSERT OR REPLACE INTO rankings (key, ranking) VALUES (?, ?)", rows
                    )
                    self._make_room(connection)
            except sqlite3.Error as error:
                self._give_up("written", error)

    def close(self) -> None:
        """Closes the file; the next call opens it again."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
                self._connection = None

    def __reduce__(self) -> tuple[type[DiskCache], tuple[Path, str, int]]:
        return type(self), (self.path, self.identity, self.max_bytes)

    def _fix(self, error: Exception) -> str:
        if not self.path.parent.is_dir():
            return f"there is no folder {self.path.parent}: make it, or name another path"
        if isinstance(
            error, sqlite3.OperationalError
        ):  # locked, not ours to read or write, no space left
            return "see that it can be read and written, or name another path"
        return "delete the file, or name another path"

    def _digest(self, key: Key) -> bytes:
        query, k = key
        return hashlib.sha256(json.dumps([self.identity, k, query]).encode()).digest()

    def _connect(self) -> sqlite3.Connection:
        """The connection, which a forked process must not share with its parent."""
        if self._connection is not None and self._pid != os.getpid():
            _INHERITED.append(self._connection)
            self._connection = None
        if self._connection is None:
            self._connection, self._pid = _open(self.path), os.getpid()
        return self._connection

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """Takes out the oldest tenth as often as needed; SQLite fills freed pages before the file
        grows."""
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        while True:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            if (pages - free) * size <= self.max_bytes:
                return
            first, last = connection.execute(
                "SELECT min(number), max(number) FROM rankings"
            ).fetchone()
            if first is None:
                return
            connection.execute(
                "DELETE FROM rankings WHERE number <= ?", (first + (last - first) // 10,)
            )

    def _give_up(self, what: str, error: Exception) -> None:
        text = "the search cache %s cannot be %s and is left alone from now on: %s; %s"
        _LOG.warning(text, self.path, what, error, self._fix(error))
        self._usable = False


def _open(path: Path) -> sqlite3.Connection:
    """
    Raises:
        DataError: a database of another kind.
        sqlite3.Error: not readable, or no database.
    """
    connection = sqlite3.connect(
        path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
    )
    try:
        with connection:  # a transaction, so that of several processes one makes the table
            connection.execute("BEGIN IMMEDIATE")
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if application != _APPLICATION:
                if tables:
                    raise DataError(
                        path, "is a database, but not a cache of searches; name another file"
                    )
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(
                    "CREATE TABLE rankings "
                    "(number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, ranking TEXT NOT NULL)"
                )
        connection.execute("PRAGMA journal_mode = WAL")
        # A power cut may cost the last rankings, which are only a cache's; it does not damage the
        # file.
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _write(ranking: Sequence[Document]) -> str:
    # ASCII, because JSON can spell the lone surrogates that UTF-8 and therefore SQLite cannot.
    return json.dumps(
        [[document.id, document.title, document.text, document.score] for document in ranking]
    )


def _read(text: str) -> tuple[Document, ...]:
    """
    Raises:
        ValueError: not what :func:`_write` wrote.
    """
    rows = json.loads(text)
    if not isinstance(rows, list):
        raise ValueError(f"no ranking: {text[:100]}")
    for row in rows:
        match row:
            case [str(), str(), str(), int() | float() | None]:
                pass
            case _:
                raise ValueError(f"no document: {str(row)[:100]}")
    return tuple(Document(*row) for row in rows)

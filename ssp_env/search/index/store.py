"""Passages on disk: an SQLite file, of which only the pages that are asked for are read.

A store is a folder with ``passages.sqlite`` and a manifest. The file has one table ``passages``:
``position`` (0, 1, 2...), and ``id``, ``title`` and ``text`` as UTF-8."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import overload

from ssp_env.errors import DataError
from ssp_env.search.corpus import Progress, digest_of, encode, no_progress, read_passages
from ssp_env.search.index.manifest import Manifest, read_manifest, write_manifest
from ssp_env.search.index.workplace import Workplace, again
from ssp_env.types import Document, Passages

KIND = "passages"
FILE = "passages.sqlite"
# Bytes, not text: lone surrogates, which JSON can spell, are not UTF-8.
_TABLE = "CREATE TABLE passages (position INTEGER PRIMARY KEY, id BLOB, title BLOB, text BLOB)"
_TWINS = "SELECT id, min(position), max(position) FROM passages GROUP BY id HAVING count(*) > 1"
_PASSAGES = "SELECT id, title, text FROM passages WHERE "


class PassageStore(Passages):
    """The passages of a store, none of them in memory.

    It serves wherever a :class:`~ssp_env.search.corpus.Corpus` does. Any number of threads and
    processes may read one store; a pickled one is opened again where it arrives."""

    def __init__(self, folder: str | Path) -> None:
        """Opens what :func:`build_store` left.

        Raises:
            DataError: not a store, half built, cut, or of another format.
        """
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, KIND)
        self.name: str = self.manifest.parameters.get("name", str(folder))

        # Immutable: no locks, and nothing beside the file is looked for or written.
        address = (self.folder / FILE).absolute().as_uri() + "?immutable=1"
        self._database = sqlite3.connect(address, uri=True, check_same_thread=False)
        with self._readable():
            (last,) = self._database.execute("SELECT max(position) FROM passages").fetchone()
            if last != len(self) - 1:
                raise ValueError(f"its last passage is {last}")
            self._database.execute(f"PRAGMA mmap_size = {1 << 40}")

    def __len__(self) -> int:
        return self.manifest.passages

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"passage {index} of {len(self)}")

        with self._readable():
            where = (int(index) % len(self),)
            return _document(self._database.execute(_PASSAGES + "position = ?", where).fetchone())

    def __iter__(self) -> Iterator[Document]:
        return self.read_from(0)

    def read_from(self, start: int) -> Iterator[Document]:
        """Iterates from a position on, without keeping what was read."""
        with self._readable():
            query = _PASSAGES + "position >= ? ORDER BY position"
            yield from map(_document, self._database.execute(query, (start,)))

    def by_id(self, document_id: str) -> Document:
        """The passage with this id.

        Raises:
            KeyError: no such passage.
        """
        with self._readable():
            sought = (document_id.encode("utf-8", "surrogatepass"),)
            row = self._database.execute(_PASSAGES + "id = ?", sought).fetchone()
            if row is not None:
                return _document(row)
        raise KeyError(document_id)

    def digest(self) -> str:
        """The corpus digest, as the manifest holds it."""
        return self.manifest.corpus

    def __reduce__(self) -> tuple[type[PassageStore], tuple[Path]]:
        return type(self), (self.folder,)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:
            what = f"is corrupt ({error}); {again(self.folder)}"
            raise DataError(self.folder / FILE, what) from error


def _document(row: tuple[bytes, bytes, bytes]) -> Document:
    id_, title, text = (part.decode("utf-8", "surrogatepass") for part in row)
    return Document(id_, title, text)


def build_store(
    source: str | Path, folder: str | Path, progress: Progress = no_progress
) -> PassageStore:
    """Builds a store from a corpus file, or opens the one that is there.

    Args:
        source: see :func:`~ssp_env.search.corpus.read_corpus`; one passage is in memory at a time.
        folder: where the store shall appear.
        progress: told how many of the file's bytes are read.

    Raises:
        DataError: the source is not such a file, or repeats an id; the folder is of other passages;
            the disk is full or cannot be written.
    """
    place = Workplace(Path(folder))
    documents = read_passages(source, progress)
    if place.target.exists():
        store = PassageStore(place.target)
        if digest_of(documents) != store.digest():
            what = f"holds other passages than {source}"
            raise DataError(place.target, f"{what}; give another --out")
        return store

    with place.open():
        place.clear()
        try:
            manifest = _write(place.path / FILE, documents, source)
        except BaseException:
            # The next build begins afresh anyway: what stays would only say "half built".
            place.clear()
            raise
        write_manifest(place.path, manifest)
        place.publish()
    return PassageStore(place.target)


def _write(path: Path, documents: Iterator[Document], source: str | Path) -> Manifest:
    """Writes the file of a store; returns its manifest."""
    rows = ((position, *encode(document)) for position, document in enumerate(documents))
    database = sqlite3.connect(path, isolation_level=None)
    try:
        # Neither journal nor waiting for the disk: an unfinished file is thrown away as a whole.
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute(_TABLE)
        database.execute("BEGIN")
        database.executemany("INSERT INTO passages VALUES (?, ?, ?, ?)", rows)
        (count,) = database.execute("SELECT count(*) FROM passages").fetchone()
        if not count:
            raise DataError(source, "holds no passage")
        database.execute("CREATE INDEX ids ON passages (id)")
        for id_, first, last in database.execute(_TWINS + " LIMIT 1"):
            name = id_.decode("utf-8", "surrogatepass")
            what = f"id {name!r} occurs twice: passages {first + 1} and {last + 1}"
            raise DataError(source, what)
        database.execute("COMMIT")
        every = database.execute(_PASSAGES + "position >= 0 ORDER BY position")
        digest = digest_of(map(_document, every))
    except sqlite3.Error as error:
        raise OSError(str(error)) from error
    finally:
        database.close()
    return Manifest(KIND, digest, count, parameters={"name": Path(source).name})

"""Folders of an index directory: their manifests, and the one that holds the passages.

Every folder has a ``manifest.json`` that says what it belongs to and lists its files. The passages
are an SQLite file with one table ``passages``: ``position`` (0, 1, 2...), and ``id``, ``title`` and
``text`` as UTF-8. Only the pages that are asked for are read."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from ssp_env.disk import locked, make_directories, new_folder, unfinished, write_atomically
from ssp_env.errors import DataError, RunError
from ssp_env.search.base import digest_of, encode, read_passages
from ssp_env.search.words import VERSION
from ssp_env.types import Document, Passages

FORMAT: Final = 7
"""Version of the directory's format. A reader refuses any other."""
MANIFEST = "manifest.json"
PASSAGES, BM25 = "passages", "bm25"

_FILE = "passages.sqlite"
# Bytes, not text: lone surrogates, which JSON can spell, are not UTF-8.
_TABLE = "CREATE TABLE passages (position INTEGER PRIMARY KEY, id BLOB, title BLOB, text BLOB)"
_TWINS = "SELECT id, min(position), max(position) FROM passages GROUP BY id HAVING count(*) > 1"
_SELECT = "SELECT id, title, text FROM passages WHERE "

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    name: str
    digest: str
    """SHA-256 over what decides its vectors: weights, tokenizer, prefixes, normalisation."""
    dimension: int
    query_prefix: str = ""
    passage_prefix: str = ""


class Encoder(Protocol):
    """Turns texts into vectors whose inner product is the similarity that ranks."""

    @property
    def info(self) -> EncoderInfo:
        """Name and digest, which tie an index to this encoder."""

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of queries: shape ``(len(texts), info.dimension)``."""

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of passages: shape ``(len(texts), info.dimension)``."""


class Manifest(BaseModel, frozen=True, extra="ignore"):
    format: Literal[7] = FORMAT
    corpus: str
    """Digest of the passages, as :meth:`ssp_env.search.base.Corpus.digest` defines it."""
    passages: int
    name: str
    encoder: EncoderInfo | None = None
    words: int | None = None
    """Version of the words of a BM25 index (``ssp_env.search.words.VERSION``)."""
    files: dict[str, int] = {}
    """Bytes of every file of the folder but the manifest, by name."""


def track(items: Iterable[T], stage: str, total: int | None = None) -> Iterable[T]:
    """Iterates with a bar, where standard error is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, stage, total, console=console, disable=not console.is_terminal)


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A folder to build in, which becomes ``folder`` at the end; its parent is locked.

    ``DataError`` if another process builds in its parent, or the disk is full or not writable."""
    try:
        make_directories(folder.parent)
        with locked(folder.parent), new_folder(folder) as path:
            yield path
    except (OSError, RunError) as error:
        why = getattr(error, "strerror", None) or error
        fix = "make room, or name another place; then run the same command again"
        raise DataError(folder, f"cannot be built: {why}; {fix}") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Adds the folder's files to a manifest, and writes it."""
    paths = [path for path in folder.iterdir() if MANIFEST not in path.name]
    files = {path.name: path.stat().st_size for path in paths}
    whole = manifest.model_copy(update={"files": files})
    write_atomically(folder / MANIFEST, whole.model_dump_json(indent=1))


def read_manifest(
    folder: Path, *, corpus: str | None = None, encoder: EncoderInfo | None = None
) -> Manifest:
    """The manifest of a folder that was found to be whole, of this version's words, and of this
    corpus (by digest) and encoder (by digest and dimension); ``None`` takes any."""
    if not folder.is_dir():
        what = "no such folder; `ssp index CORPUS --out DIR` makes an index, and the address of a"
        what += " server begins with http://"
        if unfinished(folder).is_dir():
            what = "is half built; run `ssp index` again over the same corpus"
        raise DataError(folder, what)
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError) as error:
        what = f"has no {MANIFEST} that can be used ({error})"
        raise DataError(folder, f"{what}; {again(folder)}") from error

    if corpus is not None and manifest.corpus != corpus:
        what = f"belongs to another corpus (digest {manifest.corpus[:12]}, not {corpus[:12]})"
        raise DataError(folder, f"{what}; {again(folder)} over these passages")
    if folder.name == BM25 and manifest.words != VERSION:
        what = "finds passages by the words of an earlier version, which differ outside English"
        raise DataError(folder, f"{what}; {again(folder)}")
    if encoder is not None and (made_with := manifest.encoder) is not None:
        ours, theirs = ((each.digest, each.dimension) for each in (encoder, made_with))
        if ours != theirs:
            what = f"was made with {made_with.name}, not with {encoder.name}"
            raise DataError(folder, f"{what} (digest and dimension: {theirs}, {ours})")

    for name, size in manifest.files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            what = f"is missing, or has not the {size} bytes that its manifest names"
            raise DataError(path, f"{what}; {again(folder)}")
    return manifest


def again(folder: Path) -> str:
    """The remedy for a damaged folder. Nothing is deleted unless the user does it."""
    return f"delete {folder} and build it again with `ssp index`"


class _Database(threading.local):
    """A connection for each thread, opened where it is first asked for.

    Python says that threads may share one. In 3.13 a shared one mixes up the statements that it
    keeps: it raises ``InterfaceError``, or finds no row where there is one."""

    def __init__(self, address: str) -> None:
        # What one thread has begun to read, another one may read on.
        self.connection = sqlite3.connect(address, uri=True, check_same_thread=False)
        # Bytes that may be mapped: more than SQLite grants, so it maps all that it was built for.
        self.connection.execute(f"PRAGMA mmap_size = {1 << 40}")


class PassageStore(Passages):
    """The passages of an index directory, none of them in memory.

    It serves wherever a :class:`~ssp_env.search.base.Corpus` does. Any number of threads and
    processes may read one store; a pickled one is opened again where it arrives."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self.name = self.manifest.name

        # Immutable: no locks, and no file of SQLite's own is looked for or written.
        address = (self.folder / _FILE).absolute().as_uri() + "?immutable=1"
        self._database = _Database(address)

    def __len__(self) -> int:
        return self.manifest.passages

    def __getitem__(self, index: Any) -> Any:
        # A range knows about negative positions, slices and the end.
        place = range(len(self))[index]
        if isinstance(place, range):
            return [self[each] for each in place]
        return _document(
            self._database.connection.execute(_SELECT + "position = ?", (place,)).fetchone()
        )

    def __iter__(self) -> Iterator[Document]:
        """In their order, without keeping what was read."""
        return map(_document, self._database.connection.execute(_SELECT + "true ORDER BY position"))

    def digest(self) -> str:
        return self.manifest.corpus

    def __reduce__(self) -> tuple[type[PassageStore], tuple[Path]]:
        return type(self), (self.folder,)


def _document(row: tuple[bytes, bytes, bytes]) -> Document:
    id_, title, text = (part.decode("utf-8", "surrogatepass") for part in row)
    return Document(id_, title, text)


def build_store(source: str | Path, folder: Path) -> PassageStore:
    """Builds a store from a corpus file, one passage at a time, or opens the one that is there."""
    documents = track(read_passages(source), "reading passages")
    if folder.exists():
        store = PassageStore(folder)
        if digest_of(documents) != store.digest():
            what = f"holds other passages than {source}"
            raise DataError(folder, f"{what}; give another --out")
        return store

    with building(folder) as path:
        count, digest = _write(path / _FILE, documents, source)
        name = Path(source).name
        write_manifest(path, Manifest(corpus=digest, passages=count, name=name))
    return PassageStore(folder)


def _write(path: Path, documents: Iterable[Document], source: str | Path) -> tuple[int, str]:
    """Writes the file of a store; returns the number of passages and their digest."""
    rows = ((position, *encode(document)) for position, document in enumerate(documents))
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            # Neither journal nor waiting for the disk: an unfinished file is thrown away.
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            database.execute(_TABLE)
            database.execute("BEGIN")
            database.executemany("INSERT INTO passages VALUES (?, ?, ?, ?)", rows)
            for id_, first, last in database.execute(_TWINS + " LIMIT 1"):
                name = id_.decode("utf-8", "surrogatepass")
                what = f"id {name!r} occurs twice: passages {first + 1} and {last + 1}"
                raise DataError(source, what)
            database.execute("COMMIT")

            (count,) = database.execute("SELECT count(*) FROM passages").fetchone()
            if not count:
                raise DataError(source, "holds no passage")
            # The digest is of what the file gives back, not of what it was given.
            every = database.execute(_SELECT + "position >= 0 ORDER BY position")
            return count, digest_of(map(_document, every))
    except sqlite3.Error as error:
        raise OSError(str(error)) from error

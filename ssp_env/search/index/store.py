"""Passages on disk: built by streaming, opened in milliseconds, read a passage at a time.

A store is a folder of four files and a manifest:

===================
=======================================================================================
``texts.bin``       id, title and text of each passage in UTF-8, each closed by a zero byte
``offsets.npy``     int64 (3 n + 1): where in ``texts.bin`` each of these parts begins, and its
length ``id_hashes.npy``   uint64 (n), rising: 8-byte BLAKE2b of each id ``id_order.npy``    int64
(n): the passage that each of these hashes is of ===================
=======================================================================================

The SHA-256 of ``texts.bin`` *is* the corpus digest (:meth:`ssp_env.search.corpus.Corpus.digest`).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.corpus import JsonLines, encode, read_jsonl, to_document
from ssp_env.search.index.manifest import MANIFEST, Manifest, read_manifest, sha256, write_manifest
from ssp_env.search.index.workplace import (
    SCRATCH,
    ArrayWriter,
    GrowingFile,
    Progress,
    Workplace,
    again,
    load_array,
    no_progress,
)
from ssp_env.types import Document, Passages

KIND = "passages"
TEXTS, OFFSETS, HASHES, ORDER = "texts.bin", "offsets.npy", "id_hashes.npy", "id_order.npy"
CHECKPOINT_BYTES = 64 << 20
"""A build is journalled whenever so many bytes of text were added."""
_BLOCK = 4096
"""Passages that iteration reads at once."""


class PassageStore(Passages):
    """The passages of a store. No passage is held in memory; iteration reads the file, not the
    mapping.

    It serves wherever a :class:`~ssp_env.search.corpus.Corpus` does. Any number of threads and
    processes may read one store; a pickled one is opened again where it arrives."""

    def __init__(self, folder: str | Path, *, check: bool = False) -> None:
        """
        Args:
            folder: as :func:`build_store` or :func:`write_store` left it.
            check: compares every byte with the manifest (about a second a gigabyte), not only
                sizes.

        Raises:
            DataError: not a store, half built, cut, corrupt (with ``check``) or of a newer format.
        """
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, KIND, check=check)
        self.name: str = self.manifest.parameters.get("name", str(folder))
        count = self.manifest.passages
        self._offsets = load_array(self.folder / OFFSETS, np.int64, rows=3 * count + 1)
        self._hashes = load_array(self.folder / HASHES, np.uint64, rows=count)
        self._order = load_array(self.folder / ORDER, np.int64, rows=count)
        with open(self.folder / TEXTS, "rb") as file:
            self._texts = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._offsets[-1] != len(self._texts):
            raise DataError(
                self.folder / OFFSETS, f"does not end where {TEXTS} does; {again(self.folder)}"
            )

    def __len__(self) -> int:
        return len(self._hashes)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        """A passage, or a list of passages.

        Raises:
            IndexError: no such position.
            DataError: the passage is not text: the file is corrupt.
        """
        if isinstance(index, slice):
            return [self._read(position) for position in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"passage {index} of {len(self)}")
        return self._read(index % len(self))

    def __iter__(self) -> Iterator[Document]:
        """Reads the files from beginning to end in blocks, so that memory does not fill with mapped
        pages."""
        return self.read_from(0)

    def read_from(self, start: int) -> Iterator[Document]:
        """Iterates from a position on; see :meth:`__iter__`."""
        skip = (self.folder / OFFSETS).stat().st_size - self._offsets.nbytes
        with open(self.folder / TEXTS, "rb") as texts, open(self.folder / OFFSETS, "rb") as file:
            for first in range(start, len(self), _BLOCK):
                count = min(_BLOCK, len(self) - first)
                file.seek(skip + 24 * first)
                offsets = np.frombuffer(file.read(8 * (3 * count + 1)), np.int64).tolist()
                texts.seek(offsets[0])
                data = texts.read(offsets[-1] - offsets[0])
                for at in range(0, 3 * count, 3):
                    yield self._decode(
                        data, [offset - offsets[0] for offset in offsets[at : at + 4]]
                    )

    def by_id(self, document_id: str) -> Document:
        """The passage with this id: a binary search on disk.

        Raises:
            KeyError: no such passage.
        """
        key = hash_id(document_id.encode("utf-8", "surrogatepass"))
        at = int(np.searchsorted(self._hashes, np.uint64(key)))
        while at < len(self) and int(self._hashes[at]) == key:
            document = self[int(self._order[at])]
            if document.id == document_id:
                return document
            at += 1
        raise KeyError(document_id)

    def digest(self) -> str:
        """The corpus digest, as the manifest holds it."""
        return self.manifest.corpus

    def __reduce__(self) -> tuple[type[PassageStore], tuple[Path]]:
        return type(self), (self.folder,)

    def _read(self, position: int) -> Document:
        offsets = self._offsets[3 * position : 3 * position + 4].tolist()
        data = self._texts[offsets[0] : offsets[3]]
        return self._decode(data, [offset - offsets[0] for offset in offsets])

    def _decode(self, data: bytes, offsets: list[int]) -> Document:
        a, b, c, d = offsets
        try:
            id_, title, text = (
                data[i : j - 1].decode("utf-8", "surrogatepass")
                for i, j in ((a, b), (b, c), (c, d))
            )
        except UnicodeDecodeError as error:
            raise DataError(
                self.folder / TEXTS, f"is corrupt ({error}); {again(self.folder)}"
            ) from error
        return Document(id_, title, text)


class StoreWriter:
    """Appends passages to the files of a store."""

    def __init__(self, folder: Path, state: dict[str, Any] | None = None) -> None:
        """
        Args:
            folder: exists.
            state: what :meth:`sync` returned when the last build got this far; nothing starts
                afresh.

        Raises:
            DataError: the files do not hold what the state names.
        """
        state = state or {"passages": 0, "bytes": 0}
        self.folder = folder
        self.passages: int = state["passages"]
        self._texts = GrowingFile(folder / TEXTS, state["bytes"])
        begun = 3 * self.passages + 1 if self.passages else 0
        self._offsets = ArrayWriter(folder / OFFSETS, np.int64, rows=begun)
        (folder / SCRATCH).mkdir(exist_ok=True)
        self._hashes = ArrayWriter(folder / SCRATCH / HASHES, np.uint64, rows=self.passages)
        self._end: int = state["bytes"]
        self._pending_ends: list[int] = [] if begun else [0]
        self._pending_hashes: list[int] = []

    @property
    def bytes(self) -> int:
        """Bytes of text so far."""
        return self._end

    def append(self, document: Document) -> None:
        """Adds a passage at the end."""
        parts = encode(document)
        self._texts.write(b"".join(parts))
        for part in parts:
            self._end += len(part)
            self._pending_ends.append(self._end)
        self._pending_hashes.append(hash_id(parts[0][:-1]))
        self.passages += 1
        if len(self._pending_hashes) >= _BLOCK:
            self._flush()

    def sync(self) -> dict[str, Any]:
        """Returns, once all passages are on disk, what a later writer needs to go on from here."""
        self._flush()
        for file in (self._texts, self._offsets, self._hashes):
            file.sync()
        return {"passages": self.passages, "bytes": self._end}

    def finish(
        self, name: object, line_of: Callable[[int], int] = lambda position: position + 1
    ) -> str:
        """Completes the store but for its manifest, and returns the corpus digest.

        Sorting the ids takes 24 bytes of memory a passage.

        Args:
            name: what errors call the passages.
            line_of: the line that a passage came from, for errors.

        Raises:
            DataError: no passage at all, or an id that occurs twice.
        """
        if not self.passages:
            raise DataError(name, "holds no passage")
        self._flush()
        self._texts.sync()
        self._texts.close()
        self._offsets.finish()
        self._hashes.finish()
        hashes = np.load(self.folder / SCRATCH / HASHES, allow_pickle=False)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        self._refuse_twins(hashes, order, name, line_of)
        for path, array in ((HASHES, hashes), (ORDER, order.astype(np.int64))):
            writer = ArrayWriter(self.folder / path, array.dtype)
            writer.append(array)
            writer.finish()
        return sha256(self.folder / TEXTS)

    def close(self) -> None:
        """Leaves the files as they are."""
        for file in (self._texts, self._offsets, self._hashes):
            file.close()

    def _flush(self) -> None:
        self._offsets.append(np.array(self._pending_ends, np.int64))
        self._hashes.append(np.array(self._pending_hashes, np.uint64))
        self._pending_ends, self._pending_hashes = [], []

    def _refuse_twins(
        self,
        hashes: NDArray[np.uint64],
        order: NDArray[np.int64],
        name: object,
        line_of: Callable[[int], int],
    ) -> None:
        twins = np.flatnonzero(hashes[1:] == hashes[:-1])
        if not len(twins):
            return
        offsets = load_array(self.folder / OFFSETS, np.int64)
        seen: dict[bytes, int] = {}
        with open(self.folder / TEXTS, "rb") as texts:
            for position in order[np.union1d(twins, twins + 1)].tolist():
                begin, end = offsets[3 * position : 3 * position + 2].tolist()
                texts.seek(begin)
                id_ = texts.read(end - begin - 1)
                if id_ in seen:
                    what = (
                        f"id {id_.decode('utf-8', 'surrogatepass')!r} occurs twice, first in line"
                    )
                    raise DataError(name, f"{what} {line_of(seen[id_])}", line_of(position))
                seen[id_] = position


def write_store(
    documents: Iterable[Document], folder: str | Path, name: str = "corpus"
) -> PassageStore:
    """Writes passages that are at hand anyway to a store, and opens it. For files see
    :func:`build_store`.

    Args:
        documents: the passages, in index order.
        folder: where the store shall appear; must not exist.
        name: what errors and records call the passages.

    Raises:
        DataError: no passage, an id that occurs twice, a folder that exists, or that cannot be
            written.
    """
    place = Workplace(Path(folder))
    with place.open():
        place.clear()
        with _writing(place) as writer:
            for document in documents:
                writer.append(document)
            _finish(place, writer, name, {"name": name})
        place.publish()
    return PassageStore(place.target)


def build_store(
    source: str | Path,
    folder: str | Path,
    progress: Progress = no_progress,
    *,
    beside: Mapping[str, str] = MappingProxyType({}),
) -> PassageStore:
    """Builds a store from Search-R1's JSONL (see :func:`~ssp_env.search.corpus.read_corpus`), or
    opens the one there.

    Reads line by line and writes in chunks. A build that was killed goes on where its journal ends,
    after it made sure that the file still begins as it did: to the same bytes. Memory: a few MB,
    and 24 bytes a passage at the end.

    Args:
        source: the file, plain or gzip.
        folder: where the store shall appear.
        progress: told how many of the file's bytes are read.
        beside: digests of the passages that the indexes beside the folder belong to, by the name of
            the index.

    Raises:
        DataError: the source is not such a file or has changed since a build began; the folder, or
            an index beside it, is of other passages; the disk is full or cannot be written (what is
            done is kept).
    """
    target, place = Path(folder), Workplace(Path(folder))
    with JsonLines(source) as lines:
        if target.exists():
            _refuse_other_source(PassageStore(target), lines)
        else:
            with place.open():
                if (place.path / MANIFEST).exists():
                    _refuse_other_source(PassageStore(place.path), lines)
                else:
                    _read_source(place, lines, progress)
                _refuse_other_passages(place, lines.path, beside)
                place.publish()
    return PassageStore(target)


def _read_source(place: Workplace, lines: JsonLines, progress: Progress) -> None:
    state, source = place.state(), lines.path
    if state and not lines.skip(
        state["source_bytes"], state["source_lines"], state["source_digest"]
    ):
        fix = f"give the file that it was begun with, or delete {place.path} to start afresh"
        raise DataError(source, f"is not the file that this build was begun with; {fix}")
    with _writing(place, state) as writer:
        journalled = writer.bytes
        for line, row in lines:
            writer.append(to_document(source, line, row))
            if writer.bytes - journalled >= CHECKPOINT_BYTES:
                journalled = writer.bytes
                source_state = {"source_bytes": lines.bytes, "source_lines": lines.lines}
                place.checkpoint({**writer.sync(), **source_state, "source_digest": lines.digest()})
            if writer.passages % _BLOCK == 0:
                progress("reading passages", lines.position, lines.size)
        progress("reading passages", lines.size, lines.size)
        parameters = {
            "name": source.name,
            "source_bytes": lines.bytes,
            "source_digest": lines.digest(),
        }
        _finish(place, writer, source, parameters, partial(_line_of, source))


@contextmanager
def _writing(place: Workplace, state: dict[str, Any] | None = None) -> Iterator[StoreWriter]:
    """A writer that is closed at the end. If it never took a passage in, its place is empty
    again."""
    writer = StoreWriter(place.path, state)
    try:
        yield writer
    finally:
        writer.close()
        if not writer.passages:
            place.clear()


def _line_of(source: Path, position: int) -> int:
    return next(islice(read_jsonl(source), position, None))[0]


def _finish(
    place: Workplace,
    writer: StoreWriter,
    origin: object,
    parameters: dict[str, Any],
    line_of: Callable[[int], int] = lambda position: position + 1,
) -> None:
    digest = writer.finish(origin, line_of)
    write_manifest(
        place.path,
        Manifest(KIND, digest, writer.passages, parameters=parameters),
        digests={TEXTS: digest},
    )


def _refuse_other_source(store: PassageStore, lines: JsonLines) -> None:
    made_from = store.manifest.parameters
    same = "source_digest" in made_from and lines.skip(
        made_from["source_bytes"], 0, made_from["source_digest"]
    )
    if not same or not lines.at_end():
        raise DataError(store.folder, f"holds other passages than {lines.path}; give another --out")


def _refuse_other_passages(place: Workplace, source: Path, beside: Mapping[str, str]) -> None:
    digest = read_manifest(place.path, KIND).corpus
    others = [name for name, corpus in beside.items() if corpus != digest]
    if others:
        place.clear()
        what = (
            f"is not the corpus that the indexes in {place.target.parent} were made of "
            f"({', '.join(others)})"
        )
        raise DataError(source, f"{what}; index that corpus, or give another --out")


def hash_id(text: bytes) -> int:
    """8-byte BLAKE2b of a string's UTF-8."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")

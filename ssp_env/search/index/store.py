"""Passages on disk: an Arrow file, memory-mapped, of which one passage is read at a time.

A store is a folder of three files and a manifest:

================== ==============================================================================
``passages.arrow`` id, title and text of each passage in UTF-8, in batches
``id_hashes.npy``  uint64 (n), rising: 8-byte BLAKE2b of each id
``id_order.npy``   int64 (n): the position of the passage that each of these hashes is of
================== ==============================================================================
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.corpus import JsonLines, encode, to_document
from ssp_env.search.index.arrays import hash_text, load_array
from ssp_env.search.index.manifest import Manifest, read_manifest, write_manifest
from ssp_env.search.index.workplace import Progress, Workplace, again, no_progress
from ssp_env.types import Document, Passages

KIND = "passages"
TEXTS, HASHES, ORDER = "passages.arrow", "id_hashes.npy", "id_order.npy"
BATCH = 4096
"""Passages of a batch of the file, at most."""
_BATCH_BYTES = 16 << 20
"""Bytes after which a batch is closed earlier."""
_SCHEMA = pa.schema([(name, pa.large_binary()) for name in ("id", "title", "text")])
"""Bytes, not strings: lone surrogates, which JSON can spell, are not UTF-8."""


class PassageStore(Passages):
    """The passages of a store, none of them in memory.

    It serves wherever a :class:`~ssp_env.search.corpus.Corpus` does. Any number of threads and
    processes may read one store; a pickled one is opened again where it arrives."""

    def __init__(self, folder: str | Path, *, check: bool = False) -> None:
        """
        Args:
            folder: as :func:`build_store` or :func:`write_store` left it.
            check: compares every byte with the manifest (about a second per gigabyte), not only
                sizes.

        Raises:
            DataError: not a store, half built, cut, corrupt (with ``check``) or of another format.
        """
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder, KIND, check=check)
        self.name: str = self.manifest.parameters.get("name", str(folder))
        count = self.manifest.passages
        self._hashes = load_array(self.folder / HASHES, np.uint64, rows=count)
        self._order = load_array(self.folder / ORDER, np.int64, rows=count)

        file = self._opened(pa.memory_map)
        self._batches = [file.get_batch(number) for number in range(file.num_record_batches)]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)]).tolist()
        self._columns: dict[int, tuple[_Column, ...]] = {}
        if self._starts[-1] != count:
            what = f"holds {self._starts[-1]} passages, not {count}"
            raise DataError(self.folder / TEXTS, f"{what}; {again(self.folder)}")

    def __len__(self) -> int:
        return len(self._hashes)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | Sequence[Document]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"passage {index} of {len(self)}")

        position = index % len(self)
        number = bisect_right(self._starts, position) - 1
        columns = self._columns.get(number)
        if columns is None:
            columns = tuple(_Column(array) for array in self._batches[number].columns)
            self._columns[number] = columns
        return self._document([column[position - self._starts[number]] for column in columns])

    def __iter__(self) -> Iterator[Document]:
        return self.read_from(0)

    def read_from(self, start: int) -> Iterator[Document]:
        """Iterates from a position on: a batch at a time, without the mapping."""
        file = self._opened(pa.OSFile)
        for number, first in enumerate(self._starts[:-1]):
            if self._starts[number + 1] > start:
                columns = [_Column(array) for array in file.get_batch(number).columns]
                for row in range(max(0, start - first), self._starts[number + 1] - first):
                    yield self._document([column[row] for column in columns])

    def by_id(self, document_id: str) -> Document:
        """The passage with this id: a binary search on disk.

        Raises:
            KeyError: no such passage.
        """
        key = np.uint64(hash_text(document_id))
        begin = int(np.searchsorted(self._hashes, key))
        for at in range(begin, len(self)):
            if self._hashes[at] != key:
                break
            document = self[int(self._order[at])]
            if document.id == document_id:
                return document
        raise KeyError(document_id)

    def digest(self) -> str:
        """The corpus digest, as the manifest holds it."""
        return self.manifest.corpus

    def __reduce__(self) -> tuple[type[PassageStore], tuple[Path]]:
        return type(self), (self.folder,)

    def _opened(self, file: Callable[[str], Any]) -> Any:
        path = self.folder / TEXTS
        try:
            return pa.ipc.open_file(file(str(path)))
        except (pa.ArrowException, OSError) as error:
            what = f"is not an Arrow file ({error})"
            raise DataError(path, f"{what}; {again(path.parent)}") from error

    def _document(self, parts: list[bytes]) -> Document:
        try:
            id_, title, text = (part.decode("utf-8", "surrogatepass") for part in parts)
        except UnicodeDecodeError as error:
            raise DataError(
                self.folder / TEXTS, f"is corrupt ({error}); {again(self.folder)}"
            ) from error
        return Document(id_, title, text)


class _Column:
    """The byte strings of a column. Offsets that point nowhere give short strings, not crashes."""

    def __init__(self, strings: Any) -> None:
        _, offsets, data = strings.buffers()
        self._offsets = np.frombuffer(offsets, np.int64)
        self._data = memoryview(data or b"")

    def __getitem__(self, row: int) -> bytes:
        begin, end = self._offsets[row : row + 2].tolist()
        return bytes(self._data[begin:end])


def write_store(
    documents: Iterable[Document], folder: str | Path, name: str = "corpus"
) -> PassageStore:
    """Writes passages that are at hand anyway to a new folder, and opens it.

    Raises:
        DataError: no passage, an id that occurs twice, a folder that exists, or that cannot be
            written.
    """
    place = Workplace(Path(folder))
    with place.open():
        _write(place, enumerate(documents, start=1), name, lambda: {"name": name})
        place.publish()
    return PassageStore(place.target)


def build_store(
    source: str | Path,
    folder: str | Path,
    progress: Progress = no_progress,
    *,
    beside: Mapping[str, str] = MappingProxyType({}),
) -> PassageStore:
    """Builds a store from a corpus file, or opens the one that is there.

    Reads line by line and writes batch by batch: a few MB of memory, and 32 bytes per passage.

    Args:
        source: see :func:`~ssp_env.search.corpus.read_corpus`.
        folder: where the store shall appear.
        progress: told how many of the file's bytes are read.
        beside: digests of the passages that the indexes beside the folder belong to, by the name of
            the index.

    Raises:
        DataError: the source is not such a file; the folder, or an index beside it, is of other
            passages; the disk is full or cannot be written.
    """
    place, lines = Workplace(Path(folder)), JsonLines(source)
    if place.target.exists():
        for _ in lines:  # to its end, where its digest is known
            pass
        made_of = read_manifest(place.target, KIND).parameters.get("source_digest")
        if made_of != lines.digest:
            what = f"holds other passages than {source}"
            raise DataError(place.target, f"{what}; give another --out")
        return PassageStore(place.target)

    def parameters() -> dict[str, str]:
        return {"name": lines.path.name, "source_digest": lines.digest}

    with place.open():
        digest = _write(place, _documents(lines, progress), lines.path, parameters)
        others = ", ".join(name for name, corpus in beside.items() if corpus != digest)
        if others:
            place.clear()
            what = f"is not the corpus that the indexes in {place.target.parent} were made of"
            fix = "index that corpus, or give another --out"
            raise DataError(source, f"{what} ({others}); {fix}")
        place.publish()
    return PassageStore(place.target)


def _documents(lines: JsonLines, progress: Progress) -> Iterator[tuple[int, Document]]:
    """``(line, passage)``"""
    for count, (line, row) in enumerate(lines):
        yield line, to_document(lines.path, line, row)
        if count % BATCH == 0:
            progress("reading passages", lines.position, lines.size)
    progress("reading passages", lines.size, lines.size)


def _write(
    place: Workplace,
    documents: Iterable[tuple[int, Document]],
    origin: object,
    parameters: Callable[[], Mapping[str, Any]],
) -> str:
    """Writes a store's files and manifest; returns the corpus digest.

    ``documents`` are ``(line, passage)``; ``parameters`` is asked once they were read."""
    place.clear()
    try:
        digest, lines, hashes = _write_texts(place.path / TEXTS, documents)
        if not len(hashes):
            raise DataError(origin, "holds no passage")
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        _refuse_twins(place.path / TEXTS, hashes, order, lines, origin)

        np.save(place.path / HASHES, hashes)
        np.save(place.path / ORDER, order)
        manifest = Manifest(KIND, digest, len(hashes), parameters=dict(parameters()))
        write_manifest(place.path, manifest, ("pyarrow",))
    except BaseException:
        # The next build begins afresh anyway: what stays would only say "half built".
        place.clear()
        raise
    return digest


def _write_texts(
    path: Path, documents: Iterable[tuple[int, Document]]
) -> tuple[str, array[int], NDArray[np.uint64]]:
    """Writes the Arrow file; returns the corpus digest, and the line and the id's hash of each."""
    sha, lines, hashes, rows = hashlib.sha256(), array("Q"), array("Q"), iter(documents)
    with open(path, "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        while True:
            batch: list[tuple[bytes, bytes, bytes]] = []
            size = 0
            for line, document in islice(rows, BATCH):
                lines.append(line)
                hashes.append(hash_text(document.id))
                batch.append(encode(document))
                sha.update(b"".join(part + b"\0" for part in batch[-1]))
                size += sum(map(len, batch[-1]))
                if size >= _BATCH_BYTES:
                    break
            if not batch:
                return sha.hexdigest(), lines, np.array(hashes, np.uint64)

            columns = [pa.array(column, pa.large_binary()) for column in zip(*batch, strict=True)]
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))


def _refuse_twins(
    path: Path,
    hashes: NDArray[np.uint64],
    order: NDArray[np.int64],
    lines: array[int],
    origin: object,
) -> None:
    """
    Raises:
        DataError: an id occurs twice; names the lines.
    """
    twins = np.flatnonzero(hashes[1:] == hashes[:-1])
    if not len(twins):
        return
    ids = pa.ipc.open_file(pa.memory_map(str(path))).read_all()["id"]
    seen: dict[bytes, int] = {}
    for position in np.sort(order[np.union1d(twins, twins + 1)]).tolist():
        id_ = ids[position].as_py()
        first = seen.setdefault(id_, position)
        if first != position:
            name = id_.decode("utf-8", "surrogatepass")
            what = f"id {name!r} occurs twice, first in line {lines[first]}"
            raise DataError(origin, what, lines[position])

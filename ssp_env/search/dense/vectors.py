"""Vectors and FAISS indexes in files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError, MissingExtra
from ssp_env.search.dense.encoder import INSTALL
from ssp_env.search.index.workplace import again

Vectors: TypeAlias = NDArray[np.float32]


def faiss() -> Any:
    """The module.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import faiss as module
    except ImportError as error:
        raise MissingExtra("dense search", INSTALL) from error
    return module


def read_faiss(path: Path) -> Any:
    """A FAISS index, memory-mapped and read-only.

    Raises:
        DataError: not such a file.
    """
    module = faiss()
    try:
        return module.read_index(str(path), module.IO_FLAG_READ_ONLY | module.IO_FLAG_MMAP_IFC)
    except (RuntimeError, MemoryError) as error:
        what = f"is not an index that FAISS can read ({error})"
        raise DataError(path, f"{what}; {again(path.parent)}") from error


def write_faiss(index: Any, path: Path) -> None:
    """Writes an index; FAISS's own writer overlooks a disk that fills up at the last bytes."""
    with open(path, "wb") as file:
        faiss().write_index(index, faiss().PyCallbackIOWriter(file.write))


class FlatWriter:
    """Appends vectors to a file that FAISS reads as an ``IndexFlatIP``.

    FAISS itself would have to hold all of them in memory, and could not go on with a file that a
    killed build left."""

    def __init__(self, path: Path, dimension: int, rows: int = 0) -> None:
        """
        Args:
            path: the file, created if need be.
            dimension: of each vector.
            rows: vectors to keep of what is there; the rest is cut off.

        Raises:
            DataError: the file holds fewer.
        """
        empty = faiss().serialize_index(faiss().IndexFlatIP(dimension))
        self._header, self._dimension, self.rows = bytearray(empty.tobytes()), dimension, rows
        wanted = len(self._header) + 4 * dimension * rows if rows else 0
        there = path.stat().st_size if path.exists() else 0
        if there < wanted:
            what = f"holds {there} bytes of the {wanted} that its journal names"
            raise DataError(path, f"{what}; delete {path.parent}")

        self._file: BinaryIO = open(path, "r+b" if rows else "w+b")  # noqa: SIM115
        self._file.truncate(wanted)
        self._file.seek(wanted)
        if not rows:
            self._file.write(self._header)

    def append(self, vectors: Vectors) -> None:
        """Adds vectors, shape ``(n, dimension)``, and waits until they are on disk."""
        assert vectors.shape[1:] == (self._dimension,), vectors.shape
        self._file.write(np.ascontiguousarray(vectors, "<f4").data.cast("B"))
        self.rows += len(vectors)
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Writes how many vectors there are: from here on FAISS reads the file."""
        # FAISS's format: the count stands behind the magic word and the dimension; at the end of
        # the header, of how many numbers the vectors consist.
        self._header[8:16] = self.rows.to_bytes(8, "little")
        self._header[-8:] = (self.rows * self._dimension).to_bytes(8, "little")
        self._file.seek(0)
        self._file.write(self._header)

    def close(self) -> None:
        """Leaves the file as it is; a later writer takes it up again."""
        self._file.close()

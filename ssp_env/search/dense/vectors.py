"""Vectors on disk and in FAISS, for building indexes over them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import MissingExtra
from ssp_env.search.dense.encoder import INSTALL
from ssp_env.search.index.workplace import load_array

Vectors: TypeAlias = NDArray[np.float32]

SHARD = 1 << 16
"""Vectors that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class VectorFile:
    """Vectors on disk, as a build leaves and reads them: a ``.npy`` file. What was read does not
    stay in memory."""

    path: Path
    count: int
    dimension: int

    def part(self, first: int, length: int) -> Vectors:
        """The vectors from a position on, memory-mapped.

        Raises:
            DataError: the file holds something else.
        """
        vectors = load_array(self.path, np.float32, rows=self.count, columns=self.dimension)
        return vectors[first : first + length]

    def shards(self) -> Iterator[tuple[int, Vectors]]:
        """All vectors, :data:`SHARD` at a time, each time with the first one's position."""
        for first in range(0, self.count, SHARD):
            yield first, self.part(first, SHARD)


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


def write_faiss(index: Any, path: Path) -> None:
    """Writes through a file of Python's: FAISS's own writer overlooks a disk that fills up at the
    last bytes."""
    with open(path, "wb") as file:
        faiss().write_index(index, faiss().PyCallbackIOWriter(file.write))
        file.flush()
        os.fsync(file.fileno())


def make(path: Path, write_to: Callable[[Path], None]) -> None:
    """Lets a file be written unless it is there; a kill leaves it whole or not at all."""
    if path.exists():
        return
    aside = path.with_name(path.name + ".new")
    write_to(aside)
    aside.replace(path)

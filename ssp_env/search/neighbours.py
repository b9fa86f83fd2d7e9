"""Nearest neighbours among unit vectors, over the library FAISS: exact, by graph (HNSW), or in lists (IVF-SQ8).

=================== =============================== ================== ==============================================
kind                exact?                          bytes a vector     files
=================== =============================== ================== ==============================================
``dense-flat``      yes                             4 d                ``vectors.npy``: float32 (n, d)
``dense-hnsw``      nearly                          4 d + 280          ``index.faiss``
``dense-ivf-sq8``   nearly; scores to about .01     d + 8              ``index.faiss`` (what was learnt),
                                                                       ``list_sizes.npy``: uint64 (lists),
                                                                       ``lists.bin``: a list's codes, uint8 (size, d),
                                                                       then its positions, int64 (size)
=================== =============================== ================== ==============================================

All three are memory-mapped when they are opened from files. Reading them runs no code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log2, sqrt
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError, MissingExtra
from ssp_env.search.encoder import INSTALL
from ssp_env.search.files import ArrayWriter, Progress, again, load_array, no_progress

FLAT, HNSW, IVF = "dense-flat", "dense-hnsw", "dense-ivf-sq8"
KINDS = (FLAT, HNSW, IVF)
VECTORS, INDEX, LISTS, SIZES = "vectors.npy", "index.faiss", "lists.bin", "list_sizes.npy"

Vectors: TypeAlias = NDArray[np.float32]
Ranking: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Scores, falling, and the positions that they belong to; equal scores by position."""

_SPARE = 16
"""Candidates beyond ``k`` that are looked at, so that equal scores at the cut can be told by position."""
_MOST_SPARE = 4096
"""How far the exact search goes for that."""
_ROUNDING = 1e-5
"""More than two float32 sums of the same products can differ by."""
_LINKS = 32
"""Links of a node of the graph, on each level but the lowest, which has twice as many."""
_VISITED = 64
"""Nodes that a search of the graph keeps in view, at least."""
_PROBED = 128
"""Lists that a search looks into."""
_SAMPLE = 48
"""Vectors a list, from which the lists' centres are learnt."""
_SHARD = 1 << 16
"""Vectors that are sorted into lists in memory at a time."""
_LINKED = 4096
"""Vectors that are added to the graph at a time. The graph depends on it."""


@dataclass(frozen=True, slots=True)
class VectorFile:
    """Vectors on disk, as a build leaves and reads them: a ``.npy`` file. What was read does not stay in memory."""

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


class Neighbours(Protocol):
    """Vectors, by position, that can be searched by inner product. Threads may share one."""

    def search(self, queries: Vectors, k: int) -> list[Ranking]:
        """The ``k`` nearest of each query, fewer only where there are fewer."""
        ...


class FlatNeighbours:
    """Exact search: every vector is compared with every query."""

    def __init__(self, vectors: Vectors) -> None:
        """
        Args:
            vectors: shape ``(n, dimension)``, of unit length; may be memory-mapped.
        """
        self._vectors = vectors

    def search(self, queries: Vectors, k: int) -> list[Ranking]:
        """See :meth:`Neighbours.search`. Scores are computed again in double precision for what comes near the top.

        FAISS's own scores differ in the last bits with the number of queries. Only where more than 4,096 vectors are as
        near as the ``k``-th is it left open which of them are returned.
        """
        count = len(self._vectors)
        k = min(k, count)
        taken = min(count, k + _SPARE)
        rankings: list[Ranking] = [_EMPTY] * len(queries)
        pending = np.arange(len(queries))
        while len(pending):
            scores, positions = faiss().knn(queries[pending], self._vectors, taken, metric=faiss().METRIC_INNER_PRODUCT)
            clear = scores[:, -1] < scores[:, k - 1] - _ROUNDING
            if taken == count or taken >= k + _MOST_SPARE:
                clear[:] = True
            for row in np.flatnonzero(clear):
                rankings[pending[row]] = self._ranking(queries[pending[row]], np.sort(positions[row]), k)
            pending = pending[~clear]
            taken = min(count, k + 8 * (taken - k + 1), k + _MOST_SPARE)
        return rankings

    def _ranking(self, query: Vectors, positions: NDArray[np.int64], k: int) -> Ranking:
        scores = (self._vectors[positions].astype(np.float64) * query).sum(axis=1)
        order = np.argsort(-scores, kind="stable")[:k]
        return scores[order], positions[order]


class FaissNeighbours:
    """Approximate search in a FAISS index."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def search(self, queries: Vectors, k: int) -> list[Ranking]:
        """See :meth:`Neighbours.search`."""
        count: int = self._index.ntotal
        k = min(k, count)
        taken = min(count, k + _SPARE)
        scores, positions = self._index.search(queries, taken, params=self._effort(taken))
        short = np.flatnonzero((positions[:, :k] < 0).any(axis=1))
        if len(short):
            scores[short], positions[short] = self._index.search(queries[short], taken, params=self._effort(count))
        return [_sorted(*row, k) for row in zip(scores, positions, strict=True)]

    def _effort(self, taken: int) -> Any:
        if isinstance(self._index, faiss().IndexHNSW):
            return faiss().SearchParametersHNSW(efSearch=max(_VISITED, 2 * taken))
        lists = self._index.nlist
        return faiss().SearchParametersIVF(nprobe=lists if taken == self._index.ntotal else min(_PROBED, lists))


_EMPTY: Ranking = (np.zeros(0), np.zeros(0, np.int64))


def _sorted(scores: NDArray[np.float32], positions: NDArray[np.int64], k: int) -> Ranking:
    scores, positions = scores[positions >= 0], positions[positions >= 0]
    order = np.lexsort((positions, -scores))[:k]
    return scores[order].astype(np.float64), positions[order]


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


def in_memory(kind: str, vectors: Vectors) -> Neighbours:
    """Neighbours over vectors at hand; the same vectors, the same neighbours.

    Args:
        kind: one of :data:`KINDS`.
        vectors: shape ``(n, dimension)``, of unit length.
    """
    faiss()
    if kind == FLAT:
        return FlatNeighbours(vectors)
    if kind == HNSW:
        parts = (vectors[first : first + _LINKED] for first in range(0, len(vectors), _LINKED))
        return FaissNeighbours(_graph(parts, len(vectors), vectors.shape[1], no_progress))
    index = _empty_lists(vectors[_sampled(len(vectors))], len(vectors))
    index.add(vectors)
    return FaissNeighbours(index)


def write(kind: str, vectors: VectorFile, folder: Path, scratch: Path, progress: Progress) -> None:
    """Writes the files of an approximate index; what an earlier call left in ``scratch`` is used.

    Memory: for HNSW the whole index; for IVF-SQ8 the sample (48 vectors a list), twice, or 65,536 vectors.

    Args:
        kind: :data:`HNSW` or :data:`IVF`.
        vectors: of unit length.
        folder: for the files.
        scratch: for what only the build needs.
        progress: told how many vectors are in.
    """
    if kind == HNSW:
        parts = (vectors.part(first, _LINKED) for first in range(0, vectors.count, _LINKED))
        _write_index(_graph(parts, vectors.count, vectors.dimension, progress), folder / INDEX)
        return
    trained = scratch / "trained.faiss"
    _make(trained, lambda path: _write_index(_empty_lists(_sample_of(vectors), vectors.count), path))
    shards = []
    for first in range(0, vectors.count, _SHARD):
        shards.append(scratch / f"shard-{first:012d}.faiss")
        _make(shards[-1], lambda path, first=first: _write_shard(trained, vectors, first, path))  # type: ignore[misc]
        progress("filling lists", min(first + _SHARD, vectors.count), vectors.count)
    _merge(trained, shards, folder)


def load(kind: str, folder: Path, count: int, dimension: int) -> Neighbours:
    """Opens what was written, memory-mapped and read-only.

    Args:
        kind: one of :data:`KINDS`.
        folder: of the files.
        count: how many vectors there must be.
        dimension: of each.

    Raises:
        DataError: not such files.
    """
    module = faiss()
    if kind == FLAT:
        return FlatNeighbours(load_array(folder / VECTORS, np.float32, rows=count, columns=dimension))
    try:
        index = module.read_index(str(folder / INDEX), module.IO_FLAG_READ_ONLY | module.IO_FLAG_MMAP_IFC)
    except (RuntimeError, MemoryError) as error:
        raise DataError(folder / INDEX, f"is no index that FAISS can read ({error}); {again(folder)}") from error
    wanted = module.IndexHNSWFlat if kind == HNSW else module.IndexIVFScalarQuantizer
    if not isinstance(index, wanted) or index.d != dimension:
        raise DataError(folder / INDEX, f"holds no {kind} index of dimension {dimension}; {again(folder)}")
    if kind == IVF:
        _map_lists(index, folder, count)
    if index.ntotal != count:
        raise DataError(folder / INDEX, f"holds {index.ntotal} vectors, not {count}; {again(folder)}")
    return FaissNeighbours(index)


def _graph(parts: Iterable[Vectors], count: int, dimension: int, progress: Progress) -> Any:
    index = faiss().IndexHNSWFlat(dimension, _LINKS, faiss().METRIC_INNER_PRODUCT)
    # Several threads would link the nodes in another order each time.
    threads = faiss().omp_get_max_threads()
    faiss().omp_set_num_threads(1)
    try:
        for part in parts:
            index.add(part)
            progress("linking vectors", index.ntotal, count)
    finally:
        faiss().omp_set_num_threads(threads)
    return index


def list_count(vectors: int) -> int:
    """Lists for so many vectors: about twice the root, a power of two, at most 1 in 48 vectors."""
    return min(1 << round(log2(2 * sqrt(vectors))), max(1, vectors // _SAMPLE))


def _sampled(count: int) -> NDArray[np.int64]:
    """Positions of the vectors that lists are learnt from, rising."""
    return np.sort(np.random.default_rng(0).permutation(count)[: _SAMPLE * list_count(count)])


def _sample_of(vectors: VectorFile) -> Vectors:
    positions = _sampled(vectors.count)
    parts = []
    for first in range(0, vectors.count, _SHARD):
        begin, end = np.searchsorted(positions, (first, first + _SHARD))
        parts.append(vectors.part(first, _SHARD)[positions[begin:end] - first])
    return np.concatenate(parts)


def _empty_lists(sample: Vectors, count: int) -> Any:
    """An IVF index for so many vectors that has learnt its lists and codes from a sample, and holds nothing."""
    dimension = sample.shape[1]
    module = faiss()
    quantizer = module.IndexFlatIP(dimension)
    code = module.ScalarQuantizer.QT_8bit
    index = module.IndexIVFScalarQuantizer(quantizer, dimension, list_count(count), code, module.METRIC_INNER_PRODUCT)
    quantizer.this.disown()
    index.own_fields = True
    index.cp.seed, index.cp.spherical, index.cp.min_points_per_centroid = 0, True, 1
    index.train(sample)
    return index


def _write_shard(trained: Path, vectors: VectorFile, first: int, path: Path) -> None:
    part = vectors.part(first, _SHARD)
    index = faiss().read_index(str(trained))
    index.add_with_ids(part, np.arange(first, first + len(part)))
    _write_index(index, path)


def _merge(trained: Path, shards: list[Path], folder: Path) -> None:
    """Joins the lists of all shards into one file.

    FAISS would write them through a mapping, where a full disk kills the process.
    """
    module = faiss()
    index = module.read_index(str(trained))
    # Mapped to the last: a plain mapping would hold every shard's centres in memory.
    parts = [module.read_index(str(shard), module.IO_FLAG_MMAP_IFC) for shard in shards]
    sizes = np.zeros(index.nlist, np.uint64)
    with open(folder / LISTS, "wb") as file:
        for number in range(index.nlist):
            lengths = [part.invlists.list_size(number) for part in parts]
            sizes[number] = sum(lengths)
            for part, length in zip(parts, lengths, strict=True):
                file.write(module.rev_swig_ptr(part.invlists.get_codes(number), length * index.code_size))
            for part, length in zip(parts, lengths, strict=True):
                file.write(module.rev_swig_ptr(part.invlists.get_ids(number), length))
        file.flush()
        os.fsync(file.fileno())
    sizes_file = ArrayWriter(folder / SIZES, np.uint64)
    sizes_file.append(sizes)
    sizes_file.finish()
    _write_index(index, folder / INDEX)


def _map_lists(index: Any, folder: Path, count: int) -> None:
    """Gives an empty IVF index the lists of a folder, memory-mapped.

    Raises:
        DataError: the files do not fit each other.
    """
    sizes = load_array(folder / SIZES, np.uint64, rows=index.nlist)
    size = count * (index.code_size + 8)
    if sizes.sum() != count or index.ntotal or (folder / LISTS).stat().st_size != size:
        raise DataError(folder, f"does not hold lists of {count} vectors; {again(folder)}")
    lists = faiss().OnDiskInvertedLists(index.nlist, index.code_size, str(folder / LISTS))
    lists.read_only = True
    # FAISS would start 32 threads a search to read ahead what the page cache holds.
    lists.prefetch_nthread = 0
    lists.set_all_lists_sizes(faiss().swig_ptr(sizes))
    lists.totsize = size
    lists.do_mmap()
    index.replace_invlists(lists, True)
    lists.this.disown()
    index.ntotal = count


def _write_index(index: Any, path: Path) -> None:
    """Writes through a file of Python's: FAISS's own writer overlooks a disk that fills up at the last bytes."""
    with open(path, "wb") as file:
        faiss().write_index(index, faiss().PyCallbackIOWriter(file.write))
        file.flush()
        os.fsync(file.fileno())


def _make(path: Path, write_to: Callable[[Path], None]) -> None:
    """Lets a file be written unless it is there; a kill leaves it whole or not at all."""
    if path.exists():
        return
    aside = path.with_name(path.name + ".new")
    write_to(aside)
    aside.replace(path)

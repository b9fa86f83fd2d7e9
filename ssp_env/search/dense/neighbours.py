"""Nearest neighbours among unit vectors, over the library FAISS: exact, by graph (HNSW), or in
lists (IVF-SQ8).

=================== =============================== ==================
============================================== kind                exact?
bytes a vector     files =================== =============================== ==================
============================================== ``dense-flat``      yes                             4
d                ``vectors.npy``: float32 (n, d) ``dense-hnsw``      nearly
4 d + 280          ``index.faiss`` ``dense-ivf-sq8``   nearly; scores to about .01     d + 8
``index.faiss`` (what was learnt),
                                                                       ``list_sizes.npy``: uint64
                                                                       (lists), ``lists.bin``: a
                                                                       list's codes, uint8 (size,
                                                                       d), then its positions, int64
                                                                       (size)
=================== =============================== ==================
==============================================

All three are memory-mapped when they are opened from files. Reading them runs no code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.dense.effort import TOP, effort_of, parameters, set_effort, tune
from ssp_env.search.dense.exact import FlatNeighbours, Ranking, search_file
from ssp_env.search.dense.inverted_lists import empty_lists, map_lists, sampled, write_lists
from ssp_env.search.dense.vectors import VectorFile, Vectors, faiss, write_faiss
from ssp_env.search.index.workplace import Progress, again, load_array, no_progress

FLAT, HNSW, IVF = "dense-flat", "dense-hnsw", "dense-ivf-sq8"
KINDS = (FLAT, HNSW, IVF)
VECTORS, INDEX = "vectors.npy", "index.faiss"

_SPARE = 16
"""Candidates beyond ``k`` that are looked at, so that equal scores at the cut can be told by
position."""
_LINKS = 32
"""Links of a node of the graph, on each level but the lowest, which has twice as many."""
_LINKED = 4096
"""Vectors that are added to the graph at a time. The graph depends on it."""


class Neighbours(Protocol):
    """Vectors, by position, that can be searched by inner product. Threads may share one."""

    def search(self, queries: Vectors, k: int) -> list[Ranking]:
        """The ``k`` nearest of each query, fewer only where there are fewer."""
        ...


class FaissNeighbours:
    """Approximate search in a FAISS index, as far as the index says
    (:mod:`ssp_env.search.dense.effort`)."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def search(self, queries: Vectors, k: int) -> list[Ranking]:
        """See :meth:`Neighbours.search`."""
        count: int = self._index.ntotal
        k = min(k, count)
        taken = min(count, k + _SPARE)
        effort = count if taken == count else _enough(self._index, taken)
        scores, positions = self._index.search(
            queries, taken, params=parameters(self._index, effort)
        )
        short = np.flatnonzero((positions[:, :k] < 0).any(axis=1))
        if len(short):
            everything = parameters(self._index, count)
            scores[short], positions[short] = self._index.search(
                queries[short], taken, params=everything
            )
        return [_sorted(*row, k) for row in zip(scores, positions, strict=True)]


def _enough(index: Any, taken: int) -> int:
    # A graph finds no more nodes than it keeps in view.
    return (
        max(effort_of(index), 2 * taken)
        if isinstance(index, faiss().IndexHNSW)
        else effort_of(index)
    )


def _sorted(scores: NDArray[np.float32], positions: NDArray[np.int64], k: int) -> Ranking:
    scores, positions = scores[positions >= 0], positions[positions >= 0]
    order = np.lexsort((positions, -scores))[:k]
    return scores[order].astype(np.float64), positions[order]


def in_memory(kind: str, vectors: Vectors, queries: Callable[[], Vectors]) -> Neighbours:
    """Neighbours over vectors at hand; the same vectors and queries, the same neighbours.

    Args:
        kind: one of :data:`KINDS`.
        vectors: shape ``(n, dimension)``, of unit length.
        queries: gives queries such as will be asked, for an approximate index to be measured with.
    """
    if kind == FLAT:
        faiss()
        return FlatNeighbours(vectors)
    if kind == HNSW:
        parts = (vectors[first : first + _LINKED] for first in range(0, len(vectors), _LINKED))
        index = _graph(parts, len(vectors), vectors.shape[1], no_progress)
    else:
        index = empty_lists(vectors[sampled(len(vectors))], len(vectors))
        index.add(vectors)
    asked = queries()
    neighbours = FaissNeighbours(index)
    tune(index, neighbours.search, asked, FlatNeighbours(vectors).search(asked, TOP), no_progress)
    return neighbours


def write(
    kind: str,
    vectors: VectorFile,
    queries: Vectors,
    folder: Path,
    scratch: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Writes the files of an approximate index; what an earlier call left in ``scratch`` is used.

    Memory: for HNSW the whole index; for IVF-SQ8 the sample (48 vectors a list), twice, or 65,536
        vectors.

    Args:
        kind: :data:`HNSW` or :data:`IVF`.
        vectors: of unit length.
        queries: such as will be asked, for the index to be measured with: shape ``(n, dimension)``.
        folder: for the files.
        scratch: for what only the build needs.
        progress: told how many vectors are in.

    Returns:
        How far the index looks, and its recall; see :func:`ssp_env.search.dense.effort.tune`.
    """
    exact = search_file(vectors, queries, TOP, progress)
    if kind == HNSW:
        parts = (vectors.part(first, _LINKED) for first in range(0, vectors.count, _LINKED))
        index = bare = _graph(parts, vectors.count, vectors.dimension, progress)
    else:
        trained = write_lists(vectors, folder, scratch, progress)
        index, bare = (faiss().read_index(str(trained)) for _ in range(2))
        map_lists(index, folder, vectors.count)
    chosen = tune(index, FaissNeighbours(index).search, queries, exact, progress)
    set_effort(bare, effort_of(index))
    write_faiss(bare, folder / INDEX)
    return chosen


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
        return FlatNeighbours(
            load_array(folder / VECTORS, np.float32, rows=count, columns=dimension)
        )
    try:
        index = module.read_index(
            str(folder / INDEX), module.IO_FLAG_READ_ONLY | module.IO_FLAG_MMAP_IFC
        )
    except (RuntimeError, MemoryError) as error:
        raise DataError(
            folder / INDEX, f"is no index that FAISS can read ({error}); {again(folder)}"
        ) from error
    wanted = module.IndexHNSWFlat if kind == HNSW else module.IndexIVFScalarQuantizer
    if not isinstance(index, wanted) or index.d != dimension:
        raise DataError(
            folder / INDEX, f"holds no {kind} index of dimension {dimension}; {again(folder)}"
        )
    if kind == IVF:
        map_lists(index, folder, count)
    if index.ntotal != count:
        raise DataError(
            folder / INDEX, f"holds {index.ntotal} vectors, not {count}; {again(folder)}"
        )
    if effort_of(index) < 1:
        raise DataError(
            folder / INDEX, f"says to look at {effort_of(index)} lists or nodes; {again(folder)}"
        )
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

"""Nearest neighbours among unit vectors, by the library FAISS.

================= ============ ======================== ===============================
kind              FAISS        exact?                   bytes per vector of d numbers
================= ============ ======================== ===============================
``dense-flat``    Flat         yes                      4 d
``dense-hnsw``    HNSW32       nearly                   4 d + 280
``dense-ivf-sq8`` IVF..., SQ8  nearly; scores to .01    d + 8
================= ============ ======================== ===============================

Files are memory-mapped when they are opened, and reading them runs no code. Where FAISS sees a GPU
(``faiss-gpu``), indexes are searched there, but for graphs, which FAISS searches on CPUs alone.

How far an approximate index has to look depends on the vectors: where they form clear clusters a
few lists hold the neighbours, where they do not it takes half of all. So each one is measured when
it is built, with queries that resemble those to come, and its manifest says how far it looks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from math import ceil, log2, sqrt
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.dense.vectors import Vectors, faiss, read_faiss
from ssp_env.search.index.workplace import Progress, again

FLAT, HNSW, IVF = "dense-flat", "dense-hnsw", "dense-ivf-sq8"
KINDS = (FLAT, HNSW, IVF)
INDEX = "index.faiss"

TOP = 3
"""Neighbours that are counted; what the game shows of a search by default."""
SHARE = 0.98
"""Share of the greatest effort's recall that the effort which is chosen has to reach."""
_SAMPLE = 48
"""Vectors per list from which the centres of the lists are learnt."""
_LEAST = 16
_MOST_IN_VIEW = 2048
_EFFORT = {HNSW: "nodes_in_view", IVF: "lists_probed"}
"""What a manifest calls the effort: nodes that a search keeps in view, lists that it looks into."""

Ranking: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores, falling, and the positions that they belong to; equal scores by position."""


class Neighbours:
    """Vectors, by position, that can be searched by inner product. Threads may share one."""

    def __init__(self, index: Any, *, gpu: bool = True) -> None:
        """``gpu`` moves the index to a GPU, if FAISS sees one and searches such indexes there.

        Raises:
            DataError: it cannot be moved there.
        """
        self._index = index
        self._gpu: Any = None
        if gpu:
            self._index, self._gpu = _on_gpu(index)
        # An index on a GPU may not be searched by two threads at once.
        self._turn: AbstractContextManager[Any] = nullcontext() if self._gpu is None else Lock()

    def search(self, queries: Vectors, k: int) -> list[Ranking]:
        """The ``k`` nearest of each query, shape ``(n, dimension)``; all where there are fewer."""
        k = min(k, self._index.ntotal)
        with self._turn:
            scores, positions = self._index.search(queries, k)

            # The lists that were probed, or the nodes in view, may hold fewer.
            short = np.flatnonzero((positions < 0).any(axis=1))
            if len(short):
                far = _parameters(self._index, self._index.ntotal)
                found = self._index.search(queries[short], k, params=far)
                scores[short], positions[short] = found
        return [_sorted(*row) for row in zip(scores, positions, strict=True)]


def list_count(vectors: int) -> int:
    """Lists for so many vectors: about twice the root, a power of two, at most 1 in 48 vectors."""
    return min(1 << round(log2(2 * sqrt(vectors))), max(1, vectors // _SAMPLE))


def flat(vectors: Vectors) -> Any:
    """The exact index of vectors in memory, shape ``(n, dimension)``."""
    index = faiss().IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def approximate(kind: str, exact: Any, progress: Progress) -> Any:
    """An approximate index of the vectors of an exact one.

    Memory: the index, and for lists the sample that they are learnt from, twice."""
    count = exact.ntotal
    module = faiss()
    name = "HNSW32" if kind == HNSW else f"IVF{list_count(count)},SQ8"
    index = module.index_factory(exact.d, name, module.METRIC_INNER_PRODUCT)
    if kind == IVF:
        index.cp.spherical, index.cp.min_points_per_centroid = True, 1
        rng = np.random.default_rng(0)
        sample = np.sort(rng.permutation(count)[: _SAMPLE * index.nlist])
        index.train(exact.reconstruct_batch(sample))

    stage = "linking vectors" if kind == HNSW else "filling lists"
    step = 65_536 if kind == IVF else 4096  # vectors in memory at a time
    for first in range(0, count, step):
        index.add(exact.reconstruct_n(first, min(step, count - first)))
        progress(stage, index.ntotal, count)
    return index


def tune(
    kind: str, index: Any, exact: Any | None, queries: Vectors, progress: Progress
) -> dict[str, Any]:
    """Sets the least effort that is enough: :data:`SHARE` of the recall at the greatest effort.

    Args:
        kind: :data:`HNSW` or :data:`IVF`.
        index: the approximate index.
        exact: an exact one over the same vectors; ``None`` counts what the greatest effort finds.
        queries: such as users will ask, shape ``(n, dimension)``.
        progress: told how many efforts of those possible were tried.

    Returns:
        For the manifest: what was chosen, and its recall.
    """
    stage, most = "choosing how far to look", _most(index)
    steps = ceil(2 * max(0.0, log2(most / _LEAST)))
    ladder = [*(round(_LEAST * 2 ** (step / 2)) for step in range(steps)), most]
    neighbours = Neighbours(index, gpu=False)

    def found(effort: int) -> list[Ranking]:
        _set_effort(index, effort)
        return neighbours.search(queries, TOP)

    furthest = found(most)
    truth = furthest if exact is None else Neighbours(exact, gpu=False).search(queries, TOP)
    greatest = _recall(truth, furthest)
    effort, recall = most, greatest
    for step, tried in enumerate(ladder[:-1]):
        reached = _recall(truth, found(tried))
        progress(stage, step + 1, len(ladder))
        if reached >= SHARE * greatest:
            effort, recall = tried, reached
            break

    progress(stage, len(ladder), len(ladder))
    _set_effort(index, effort)
    chosen = {_EFFORT[kind]: effort, **({"lists": most} if kind == IVF else {})}
    measured = {"recall_at_3": round(recall, 4), "recall_queries": len(queries)}
    against = "exact search" if exact is not None else "its own greatest effort"
    return {**chosen, **measured, "recall_against": against}


def load(
    kind: str, path: Path, count: int, dimension: int, parameters: Mapping[str, Any]
) -> Neighbours:
    """Opens an index, memory-mapped; the manifest's parameters say how far it has to look.

    Raises:
        DataError: it is not of this kind, number of vectors and dimension; or it cannot be moved to
            the GPU that FAISS sees.
    """
    index, effort, what = read_faiss(path), 0, None
    if kind != FLAT:
        effort = parameters.get(_EFFORT[kind], 0)
    if kind_of(index) != kind or index.d != dimension:
        what = f"does not hold a {kind} index of dimension {dimension}"
    elif index.ntotal != count:
        what = f"holds {index.ntotal} vectors, not {count}"
    elif kind != FLAT and effort < 1:
        what = f"is to look at {effort} lists or nodes, by its manifest"
    if what is not None:
        raise DataError(path, f"{what}; {again(path.parent)}")

    if kind != FLAT:
        _set_effort(index, effort)
    return Neighbours(index)


def kind_of(index: Any) -> str | None:
    """Which of :data:`KINDS` a FAISS index is; ``None`` where it is none, or not by inner
    product."""
    module = faiss()
    kinds = {module.IndexFlat: FLAT, module.IndexHNSW: HNSW, module.IndexIVF: IVF}
    if index.metric_type != module.METRIC_INNER_PRODUCT:
        return None
    return next((kind for base, kind in kinds.items() if isinstance(index, base)), None)


def _on_gpu(index: Any) -> tuple[Any, Any]:
    """The index, on a GPU if FAISS sees one and searches such indexes there; and what holds it."""
    module = faiss()
    if isinstance(index, module.IndexHNSW) or not module.get_num_gpus():
        return index, None
    try:
        resources = module.StandardGpuResources()
        return module.index_cpu_to_gpu(resources, 0, index), resources
    except RuntimeError as error:
        fix = "hide the GPU (CUDA_VISIBLE_DEVICES=) to search on the CPU"
        raise DataError(INDEX, f"cannot be moved to the GPU ({error}); {fix}") from error


def _sorted(scores: NDArray[np.float32], positions: NDArray[np.int64]) -> Ranking:
    there = positions >= 0
    order = np.lexsort((positions[there], -scores[there]))
    return scores[there][order], positions[there][order]


def _recall(truth: list[Ranking], found: list[Ranking]) -> float:
    hits = sum(len(np.intersect1d(a[1], b[1])) for a, b in zip(truth, found, strict=True))
    return hits / sum(len(positions) for _, positions in truth)


def _most(index: Any) -> int:
    most = min(_MOST_IN_VIEW, index.ntotal) if hasattr(index, "hnsw") else index.nlist
    return int(most)


def _set_effort(index: Any, effort: int) -> None:
    if hasattr(index, "hnsw"):
        index.hnsw.efSearch = effort
    else:
        index.nprobe = effort


def _parameters(index: Any, effort: int) -> Any:
    """FAISS's parameters for a search with another effort than the index's own."""
    if hasattr(index, "hnsw"):
        return faiss().SearchParametersHNSW(efSearch=effort)
    return faiss().SearchParametersIVF(nprobe=min(effort, index.nlist))

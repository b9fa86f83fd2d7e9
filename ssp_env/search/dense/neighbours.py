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

from importlib import import_module
from math import log2, sqrt
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError, MissingExtra
from ssp_env.search.corpus import Progress
from ssp_env.search.dense.encoder import INSTALL
from ssp_env.search.index.workplace import again

try:
    faiss: Any = import_module("faiss")
except ImportError as error:
    raise MissingExtra("dense search", INSTALL) from error

FLAT, HNSW, IVF = "dense-flat", "dense-hnsw", "dense-ivf-sq8"
KINDS = (FLAT, HNSW, IVF)
INDEX = "index.faiss"

TOP = 3
"""Neighbours that are counted; what the game shows of a search by default."""
SHARE = 0.98
"""Share of the greatest effort's recall that the effort which is chosen has to reach."""
_SAMPLE = 48
"""Vectors per list from which the centres of the lists are learnt."""
_EFFORTS = [round(16 * 2 ** (step / 2)) for step in range(30)]
_MOST_IN_VIEW = 2048
EFFORT = {HNSW: "nodes_in_view", IVF: "lists_probed"}
"""What a manifest calls the effort: nodes that a search keeps in view, lists that it looks into."""

Vectors: TypeAlias = NDArray[np.float32]
Ranking: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores, falling, and the positions that they belong to; equal scores by position."""


def read_faiss(path: Path) -> Any:
    """A FAISS index, memory-mapped and read-only.

    Raises:
        DataError: not such a file.
    """
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_MMAP_IFC)
    except (RuntimeError, MemoryError) as error:
        what = f"is not an index that FAISS can read ({error})"
        raise DataError(path, f"{what}; {again(path.parent)}") from error


def flat_header(dimension: int) -> bytearray:
    """How a file of an exact index begins; see :func:`ssp_env.search.dense.build.build`."""
    return bytearray(faiss.serialize_index(faiss.IndexFlatIP(dimension)).tobytes())


def write_faiss(index: Any, path: Path) -> None:
    """Writes an index; FAISS's own writer overlooks a disk that fills up at the last bytes."""
    with open(path, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))


def nearest(index: Any, queries: Vectors, k: int) -> list[Ranking]:
    """The ``k`` nearest of each query, shape ``(n, dimension)``; all where there are fewer."""
    k = min(k, index.ntotal)
    scores, positions = index.search(queries, k)

    # The lists that were probed, or the nodes in view, may hold fewer.
    short = np.flatnonzero((positions < 0).any(axis=1))
    if len(short):
        found = index.search(queries[short], k, params=_furthest(index))
        scores[short], positions[short] = found
    return [_sorted(*row) for row in zip(scores, positions, strict=True)]


def on_gpu(index: Any) -> tuple[Any, Any]:
    """The index, on a GPU if FAISS sees one and searches such indexes there; and what holds it.

    Raises:
        DataError: it cannot be moved there.
    """
    if isinstance(index, faiss.IndexHNSW) or not faiss.get_num_gpus():
        return index, None
    try:
        resources = faiss.StandardGpuResources()
        return faiss.index_cpu_to_gpu(resources, 0, index), resources
    except RuntimeError as error:
        fix = "hide the GPU (CUDA_VISIBLE_DEVICES=) to search on the CPU"
        raise DataError(INDEX, f"cannot be moved to the GPU ({error}); {fix}") from error


def approximate(kind: str, exact: Any, progress: Progress) -> Any:
    """An approximate index of the vectors of an exact one.

    Memory: the index, and for lists the sample that they are learnt from, twice."""
    count = exact.ntotal
    name = "HNSW32" if kind == HNSW else f"IVF{list_count(count)},SQ8"
    index = faiss.index_factory(exact.d, name, faiss.METRIC_INNER_PRODUCT)
    if kind == IVF:
        index.cp.spherical, index.cp.min_points_per_centroid = True, 1
        rng = np.random.default_rng(0)
        sample = np.sort(rng.permutation(count)[: _SAMPLE * index.nlist])
        index.train(exact.reconstruct_batch(sample))

    step = 65_536 if kind == IVF else 4096  # vectors in memory at a time
    for first in range(0, count, step):
        index.add(exact.reconstruct_n(first, min(step, count - first)))
        progress("adding vectors", index.ntotal, count)
    return index


def list_count(vectors: int) -> int:
    """Lists for so many vectors: about twice the root, a power of two, at most 1 in 48 vectors."""
    return min(1 << round(log2(2 * sqrt(vectors))), max(1, vectors // _SAMPLE))


def tune(kind: str, index: Any, exact: Any | None, queries: Vectors) -> dict[str, Any]:
    """Sets the least effort that is enough: :data:`SHARE` of the recall at the greatest effort.

    Args:
        kind: :data:`HNSW` or :data:`IVF`.
        index: the approximate index.
        exact: an exact one over the same vectors; ``None`` counts what the greatest effort finds.
        queries: such as users will ask, shape ``(n, dimension)``.

    Returns:
        For the manifest: what was chosen, and its recall.
    """
    most = index.nlist if kind == IVF else min(_MOST_IN_VIEW, index.ntotal)

    set_effort(index, most)
    furthest = nearest(index, queries, TOP)
    truth = furthest if exact is None else nearest(exact, queries, TOP)
    enough = SHARE * _recall(truth, furthest)
    for effort in [*(effort for effort in _EFFORTS if effort < most), most]:
        set_effort(index, effort)
        recall = _recall(truth, nearest(index, queries, TOP))
        if recall >= enough:
            break

    return {
        EFFORT[kind]: effort,
        **({"lists": most} if kind == IVF else {}),
        "recall_at_3": round(recall, 4),
        "recall_queries": len(queries),
        "recall_against": "its own greatest effort" if exact is None else "exact search",
    }


def kind_of(index: Any) -> str | None:
    """Which of :data:`KINDS` a FAISS index is; ``None`` where it is none, or not by inner
    product."""
    kinds = {faiss.IndexFlat: FLAT, faiss.IndexHNSW: HNSW, faiss.IndexIVF: IVF}
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        return None
    return next((kind for base, kind in kinds.items() if isinstance(index, base)), None)


def set_effort(index: Any, effort: int) -> None:
    """How many lists, or nodes of a graph, an approximate index looks at."""
    if hasattr(index, "hnsw"):
        index.hnsw.efSearch = effort
    else:
        index.nprobe = effort


def _furthest(index: Any) -> Any:
    """FAISS's parameters for a search that looks at everything."""
    if hasattr(index, "hnsw"):
        return faiss.SearchParametersHNSW(efSearch=index.ntotal)
    return faiss.SearchParametersIVF(nprobe=index.nlist)


def _sorted(scores: NDArray[np.float32], positions: NDArray[np.int64]) -> Ranking:
    there = positions >= 0
    order = np.lexsort((positions[there], -scores[there]))
    return scores[there][order], positions[there][order]


def _recall(truth: list[Ranking], found: list[Ranking]) -> float:
    hits = sum(len(np.intersect1d(a[1], b[1])) for a, b in zip(truth, found, strict=True))
    return hits / sum(len(positions) for _, positions in truth)

"""Dense retrieval: passages ranked by the cosine of their vectors with the query's, by FAISS.

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

import json
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from importlib import import_module
from itertools import islice
from math import log2, sqrt
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ssp_env.disk import replacing
from ssp_env.errors import DataError, MissingExtra
from ssp_env.search.base import check_request
from ssp_env.search.corpus import Progress, passage_text
from ssp_env.search.encoder import INSTALL
from ssp_env.search.store import Encoder, Manifest, PassageStore, again, read_manifest
from ssp_env.types import Document, Passages

try:
    faiss: Any = import_module("faiss")
except ImportError as error:
    raise MissingExtra("dense search", INSTALL) from error

FLAT, HNSW, IVF = "dense-flat", "dense-hnsw", "dense-ivf-sq8"
INDEX = "index.faiss"
EFFORT = {HNSW: "nodes_in_view", IVF: "lists_probed"}
"""Names of the effort in a manifest: nodes that a search keeps in view, lists that it looks into.
"""

TOP = 3
"""Neighbours that recall counts; the game shows as many by default."""
SHARE = 0.98
"""Share of the greatest effort's recall that the effort which is chosen has to reach."""
BLOCK = 256
"""Passages that are encoded before they are written to disk."""

_VECTORS, _BEGUN = "vectors.faiss", "begun.json"
_ASKED = 512
_SAMPLE = 48
"""Vectors per list from which the centres of the lists are learnt."""
_EFFORTS = [round(16 * 2 ** (step / 2)) for step in range(30)]
_MOST_IN_VIEW = 2048
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_CHECKED = 8
_LEAST_COSINE = 0.95
"""Of a passage's vector with the adopted one; half precision and compression cost less than that.
"""

Vectors: TypeAlias = NDArray[np.float32]
Ranking: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores, falling, and the positions that they belong to; equal scores by position."""


class DenseRetriever:
    """The passages of an index directory nearest to a query's vector, by cosine.

    Every query gets ``k`` documents, or all there are. May be shared between threads."""

    def __init__(
        self, folder: Path, passages: PassageStore, encoder: Encoder, manifest: Manifest
    ) -> None:
        """Maps the files of an index; :func:`ssp_env.search.index.open_index` checks that its parts
        belong together.

        Raises:
            DataError: the file is not what the manifest says, or does not fit the GPU.
        """
        self.corpus, self.encoder, self.kind = passages, encoder, manifest.kind
        self._origin = (folder, passages, encoder, manifest)

        path, count, dimension = folder / INDEX, len(passages), encoder.info.dimension
        index = read_faiss(path)
        effort = 1 if self.kind == FLAT else manifest.parameters.get(EFFORT[self.kind], 0)
        if (kind_of(index), index.d, index.ntotal) != (self.kind, dimension, count) or effort < 1:
            what = f"does not hold a {self.kind} index of {count} vectors of {dimension} numbers"
            raise DataError(path, f"{what}, or its manifest names no effort; {again(folder)}")
        if self.kind != FLAT:
            _set_effort(index, effort)

        # An index on a GPU may not be searched by two threads at once.
        self._index, self._gpu = _on_gpu(index)
        self._turn: AbstractContextManager[Any] = nullcontext() if self._gpu is None else Lock()

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """See :meth:`ssp_env.search.base.Retriever.search`; an empty query has a vector too."""
        check_request(queries, k)
        distinct = list(dict.fromkeys(queries))
        if not distinct:
            return []

        vectors = self.encoder.encode_queries(distinct)
        with self._turn:
            found = dict(zip(distinct, nearest(self._index, vectors, k), strict=True))
        return [
            [
                replace(self.corpus[int(position)], score=float(score))
                for score, position in zip(*found[query], strict=True)
            ]
            for query in queries
        ]

    def describe(self) -> dict[str, Any]:
        """Corpus, kind of index, and encoder."""
        encoder = {"name": self.encoder.info.name, "digest": self.encoder.info.digest}
        return {"corpus": self.corpus.digest(), "kind": self.kind, "encoder": encoder}

    def __reduce__(self) -> tuple[Any, ...]:
        # What is on disk is opened again where the retriever arrives.
        return DenseRetriever, self._origin


def nearest(index: Any, queries: Vectors, k: int) -> list[Ranking]:
    """The ``k`` nearest of each query, shape ``(n, dimension)``; all where there are fewer."""
    k = min(k, index.ntotal)
    scores, positions = index.search(queries, k)

    # The lists that were probed, or the nodes in view, may hold fewer: look at everything.
    short = np.flatnonzero((positions < 0).any(axis=1))
    if len(short):
        if hasattr(index, "hnsw"):
            everything = faiss.SearchParametersHNSW(efSearch=index.ntotal)
        else:
            everything = faiss.SearchParametersIVF(nprobe=index.nlist)
        scores[short], positions[short] = index.search(queries[short], k, params=everything)

    rankings = []
    for row, places in zip(scores, positions, strict=True):
        there = places >= 0
        order = np.lexsort((places[there], -row[there]))
        rankings.append((row[there][order], places[there][order]))
    return rankings


def build(
    folder: Path, kind: str, store: PassageStore, encoder: Encoder, progress: Progress
) -> dict[str, Any]:
    """Writes a dense index and returns its parameters.

    Encoding takes days; a build that was killed continues after the last block of vectors. Where
    the directory holds a ``dense-flat`` index by the same encoder, its vectors are used. Memory:
    the encoder's, a block of passages, and an approximate index as a whole."""
    if kind == FLAT:
        _encode(folder / INDEX, store, encoder, progress)
        return {}

    vectors = folder.parent / FLAT / INDEX
    try:
        read_manifest(vectors.parent, FLAT, corpus=store.digest(), encoder=encoder.info)
    except DataError:
        vectors = folder / _VECTORS
        _encode(vectors, store, encoder, progress)
    exact = read_faiss(vectors)
    index = _approximate(kind, exact, progress)
    parameters = tune(kind, index, exact, likely_queries(store, encoder))

    # FAISS's own writer overlooks a disk that fills up at the last bytes.
    with open(folder / INDEX, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
    (folder / _VECTORS).unlink(missing_ok=True)
    return parameters


def _encode(path: Path, store: PassageStore, encoder: Encoder, progress: Progress) -> None:
    """Writes the vectors of all passages as an exact index, from where a killed build stopped.

    FAISS itself would have to hold all of them in memory, and could not continue a file. Its format
    is a header, with two counts, before the vectors.

    Raises:
        DataError: what is there was begun with other passages or another encoder.
    """
    begun, ours = path.parent / _BEGUN, [store.digest(), asdict(encoder.info)]
    if not begun.exists():
        path.unlink(missing_ok=True)
        with replacing(begun) as file:
            json.dump(ours, file)
    elif json.loads(begun.read_text()) != ours:
        what = "was begun with other passages or another encoder"
        raise DataError(path.parent, f"{what}; delete it to start afresh")

    dimension = encoder.info.dimension
    header = bytearray(faiss.serialize_index(faiss.IndexFlatIP(dimension)).tobytes())
    path.touch()
    # The last block may not have reached the disk as a whole, so it is encoded again.
    written = max(0, path.stat().st_size - len(header)) // (4 * dimension)
    rows = max(0, written - 1) // BLOCK * BLOCK

    stage = "encoding passages"
    if rows:
        stage += f" (resuming at {rows:,} of {len(store):,})"
    progress(stage, rows, len(store))
    texts = map(passage_text, store.read_from(rows))
    with open(path, "r+b") as file:
        file.truncate(len(header) + 4 * dimension * rows)
        file.seek(len(header) + 4 * dimension * rows)
        while block := list(islice(texts, BLOCK)):
            file.write(np.ascontiguousarray(encoder.encode_passages(block), "<f4").data.cast("B"))
            file.flush()
            os.fsync(file.fileno())
            rows += len(block)
            progress(stage, rows, len(store))

        # How many vectors there are, and how many numbers: from here on FAISS reads the file.
        header[8:16] = rows.to_bytes(8, "little")
        header[-8:] = (rows * dimension).to_bytes(8, "little")
        file.seek(0)
        file.write(header)


def likely_queries(passages: Passages, encoder: Encoder) -> Vectors:
    """Vectors of queries such as may be asked, of shape ``(up to 512, dimension)``.

    They are sentences of some passages (the inverse cloze task of Lee et al. 2019)."""
    rng = np.random.default_rng(0)
    queries = []
    for position in np.sort(rng.permutation(len(passages))[:_ASKED]).tolist():
        sentences = _SENTENCE_END.split(passages[position].text.strip())
        queries.append(sentences[rng.integers(len(sentences))] or passages[position].title)
    return encoder.encode_queries(queries)


def _approximate(kind: str, exact: Any, progress: Progress) -> Any:
    """An approximate index of the vectors of an exact one.

    Memory: the index, and for lists the sample that they are learnt from, twice."""
    count = exact.ntotal
    # About twice the root of the vectors, as a power of two, but at least 48 vectors a list.
    lists = min(1 << round(log2(2 * sqrt(count))), max(1, count // _SAMPLE))
    name = "HNSW32" if kind == HNSW else f"IVF{lists},SQ8"
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


def tune(kind: str, index: Any, exact: Any | None, queries: Vectors) -> dict[str, Any]:
    """Sets the least effort that is enough: :data:`SHARE` of the recall at the greatest effort.

    Args:
        kind: :data:`HNSW` or :data:`IVF`.
        index: the approximate index.
        exact: an exact one over the same vectors; ``None`` counts what the greatest effort finds.
        queries: such as users will ask, shape ``(n, dimension)``.

    Returns:
        For the manifest: the effort that was chosen, and its recall.
    """
    most = index.nlist if kind == IVF else min(_MOST_IN_VIEW, index.ntotal)
    _set_effort(index, most)
    furthest = nearest(index, queries, TOP)
    truth = furthest if exact is None else nearest(exact, queries, TOP)
    wanted = sum(len(positions) for _, positions in truth)

    def recall(found: list[Ranking]) -> float:
        pairs = zip(truth, found, strict=True)
        return sum(len(np.intersect1d(a[1], b[1])) for a, b in pairs) / wanted

    enough = SHARE * recall(furthest)
    for effort in [*(effort for effort in _EFFORTS if effort < most), most]:
        _set_effort(index, effort)
        reached = recall(nearest(index, queries, TOP))
        if reached >= enough:
            break

    return {
        EFFORT[kind]: effort,
        "recall_at_3": round(reached, 4),
        "recall_queries": len(queries),
        "recall_against": "its own greatest effort" if exact is None else "exact search",
    }


def spot_check(path: Path, index: Any, store: Passages, encoder: Encoder) -> float:
    """The lowest cosine of some passages with their vectors in an index that others made.

    Raises:
        DataError: a vector is not its passage's.
    """
    checked = np.unique(np.linspace(0, len(store) - 1, _CHECKED).round().astype(np.int64))
    try:
        if kind_of(index) == IVF:
            index.make_direct_map()
        stored = np.stack([index.reconstruct(position) for position in checked.tolist()])
    except RuntimeError as error:
        what = f"does not give its vectors by position ({error})"
        raise DataError(path, f"{what}; vectors numbered from 0 on are wanted") from error

    lengths = np.linalg.norm(stored, axis=1)
    if np.abs(lengths - 1).max() > 0.05:
        what = f"holds vectors of length {lengths.max():.3g}"
        raise DataError(path, f"{what}; those of unit length are wanted")

    texts = [passage_text(store[int(position)]) for position in checked]
    cosines = (encoder.encode_passages(texts) * stored).sum(axis=1)
    worst = int(cosines.argmin())
    if cosines[worst] < _LEAST_COSINE:
        what = (
            f"vector {checked[worst]} is not that of passage {checked[worst]} by "
            f"{encoder.info.name} (their cosine is {cosines[worst]:.3f})"
        )
        fix = "give the corpus in the file's order, and its encoder with its prefixes"
        raise DataError(path, f"{what}; {fix}")
    return float(cosines[worst])


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


def _on_gpu(index: Any) -> tuple[Any, Any]:
    """The index, on a GPU if FAISS sees one and searches such indexes there; and its resources.

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


def kind_of(index: Any) -> str | None:
    """The kind of a FAISS index; ``None`` for one of another kind, or not by inner product."""
    kinds = {faiss.IndexFlat: FLAT, faiss.IndexHNSW: HNSW, faiss.IndexIVF: IVF}
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        return None
    return next((kind for base, kind in kinds.items() if isinstance(index, base)), None)


def _set_effort(index: Any, effort: int) -> None:
    """Sets how many lists, or nodes of a graph, an approximate index looks at."""
    if hasattr(index, "hnsw"):
        index.hnsw.efSearch = effort
    else:
        index.nprobe = effort

"""Dense retrieval: passages ranked by the cosine of their vectors with the query's, by FAISS.

================= ============ ======================== ===============================
kind              FAISS        exact?                   bytes per vector of d numbers
================= ============ ======================== ===============================
``dense-flat``    Flat         yes                      4 d
``dense-ivf-sq8`` IVF..., SQ8  nearly; scores to .01    d + 8
================= ============ ======================== ===============================

Files are memory-mapped when they are opened, and reading them runs no code. Where FAISS sees a GPU
(``faiss-gpu``), indexes are searched there.

How far an IVF index has to look depends on the vectors: where they form clear clusters a few lists
hold the neighbours, where they do not it takes half of all. A quarter is searched, or as many as
the manifest's ``lists_probed`` says: a number to change by hand."""

from __future__ import annotations

import json
import os
import shutil
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

from ssp_env.disk import write_atomically
from ssp_env.errors import DataError, MissingExtra
from ssp_env.search.base import check_request
from ssp_env.search.corpus import passage_text
from ssp_env.search.encoder import INSTALL
from ssp_env.search.store import Encoder, Manifest, PassageStore, again, read_manifest, track
from ssp_env.types import Document

try:
    faiss: Any = import_module("faiss")
except ImportError as error:
    raise MissingExtra("dense search", INSTALL) from error

FLAT, IVF = "dense-flat", "dense-ivf-sq8"
INDEX = "index.faiss"
BLOCK = 256
"""Passages that are encoded before they are written to disk."""

_CLASSES = {FLAT: faiss.IndexFlat, IVF: faiss.IndexIVF}
_VECTORS, _BEGUN = "vectors.faiss", "begun.json"
_SAMPLE = 48
"""Vectors per list from which the centres of the lists are learnt."""
_SHARE = 4
"""One list in so many is searched."""
_CHECKED = 8
_LEAST_COSINE = 0.95
"""Of a passage's vector with the adopted one; half precision and compression cost less than that.
"""

Vectors: TypeAlias = NDArray[np.float32]


class DenseRetriever:
    """The passages of an index directory nearest to a query's vector, by cosine.

    Every query gets ``k`` documents, or all there are. May be shared between threads."""

    def __init__(
        self, folder: Path, passages: PassageStore, encoder: Encoder, manifest: Manifest
    ) -> None:
        """Maps the files of an index; :func:`ssp_env.search.index.open_index` checks that its parts
        belong together."""
        self.corpus, self.encoder, self.kind = passages, encoder, folder.name
        self._origin = (folder, passages, encoder, manifest)
        index = read_faiss(folder / INDEX, self.kind, len(passages), encoder)
        if self.kind == IVF:
            index.nprobe = manifest.parameters["lists_probed"]

        # An index on a GPU may not be searched by two threads at once.
        self._turn: AbstractContextManager[Any] = nullcontext()
        if faiss.get_num_gpus():
            self._turn, self._resources = Lock(), faiss.StandardGpuResources()
            index = faiss.index_cpu_to_gpu(self._resources, 0, index)
        self._index = index

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """See :meth:`ssp_env.search.base.Retriever.search`; an empty query has a vector too."""
        check_request(queries, k)
        distinct = list(dict.fromkeys(queries))
        if not distinct:
            return []

        vectors = self.encoder.encode_queries(distinct)
        with self._turn:
            scores, positions = nearest(self._index, vectors, k)
        rankings = {}
        for query, row, places in zip(distinct, scores, positions, strict=True):
            order = np.lexsort((places, -row))  # equal scores by position
            rankings[query] = [(int(places[each]), float(row[each])) for each in order]
        return [
            [replace(self.corpus[place], score=score) for place, score in rankings[query]]
            for query in queries
        ]

    def describe(self) -> dict[str, Any]:
        """Corpus, kind of index, and encoder."""
        encoder = {"name": self.encoder.info.name, "digest": self.encoder.info.digest}
        return {"corpus": self.corpus.digest(), "kind": self.kind, "encoder": encoder}

    def __reduce__(self) -> tuple[Any, ...]:
        # What is on disk is opened again where the retriever arrives.
        return DenseRetriever, self._origin


def nearest(index: Any, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
    """Scores and positions of the nearest, both of shape ``(n, k)``; all where there are fewer."""
    k = min(k, index.ntotal)
    scores, positions = index.search(queries, k)

    # The lists that were probed may hold fewer: look into all of them.
    short = np.flatnonzero((positions < 0).any(axis=1))
    if len(short):
        every = faiss.SearchParametersIVF(nprobe=index.nlist)
        scores[short], positions[short] = index.search(queries[short], k, params=every)
    return scores, positions


def build(
    folder: Path, kind: str, store: PassageStore, encoder: Encoder, adopt: str | Path | None = None
) -> dict[str, Any]:
    """Writes a dense index, or links a file that others made; returns its parameters.

    Encoding takes days; a build that was killed continues after the last block of vectors. Where
    the directory holds a ``dense-flat`` index by the same encoder, its vectors are used. Memory:
    the encoder's, a block of passages, and an IVF index as a whole."""
    path = folder / INDEX
    if adopt is not None:
        try:
            os.link(Path(adopt).resolve(), path)
        except OSError:
            shutil.copyfile(adopt, path)
    elif kind == FLAT:
        _encode(path, store, encoder)
    else:
        vectors = folder.parent / FLAT / INDEX
        try:
            read_manifest(vectors.parent, corpus=store.digest(), encoder=encoder.info)
        except DataError:
            vectors = folder / _VECTORS
            _encode(vectors, store, encoder)
        _write_ivf(path, read_faiss(vectors, FLAT, len(store), encoder))
        (folder / _VECTORS).unlink(missing_ok=True)

    path = path if adopt is None else Path(adopt)
    index = read_faiss(path, kind, len(store), encoder)
    if adopt is not None:
        _spot_check(path, index, store, encoder)
    return {"lists_probed": -(-index.nlist // _SHARE)} if kind == IVF else {}


def _encode(path: Path, store: PassageStore, encoder: Encoder) -> None:
    """Writes the vectors of all passages as an exact index, from where a killed build stopped.

    FAISS itself would have to hold all of them in memory, and could not continue a file. Its format
    is a header, with two counts, before the vectors."""
    begun, ours = path.parent / _BEGUN, [store.digest(), asdict(encoder.info)]
    if not begun.exists():
        path.unlink(missing_ok=True)
        write_atomically(begun, json.dumps(ours))
    elif json.loads(begun.read_text()) != ours:
        what = "was begun with other passages or another encoder"
        raise DataError(path.parent, f"{what}; delete it to start afresh")

    dimension = encoder.info.dimension
    header = bytearray(faiss.serialize_index(faiss.IndexFlatIP(dimension)).tobytes())
    header[8:16] = len(store).to_bytes(8, "little")
    header[-8:] = (len(store) * dimension).to_bytes(8, "little")
    path.touch()
    # The last block may not have reached the disk as a whole, so it is encoded again.
    written = max(0, path.stat().st_size - len(header)) // (4 * dimension)
    rows = max(0, written - 1) // BLOCK * BLOCK

    stage = f"encoding passages (resuming at {rows:,})" if rows else "encoding passages"
    texts = map(passage_text, store.read_from(rows))
    with open(path, "r+b") as file:
        file.write(header)
        file.seek(4 * dimension * rows, os.SEEK_CUR)
        file.truncate()
        for _ in track(range(rows, len(store), BLOCK), stage):
            block = encoder.encode_passages(list(islice(texts, BLOCK)))
            file.write(np.ascontiguousarray(block, "<f4").data.cast("B"))
            file.flush()
            os.fsync(file.fileno())


def _write_ivf(path: Path, exact: Any) -> None:
    """Writes an IVF index over the vectors of an exact one."""
    # About twice the root of the vectors, as a power of two, but at least 48 vectors a list.
    count = exact.ntotal
    lists = min(1 << round(log2(2 * sqrt(count))), max(1, count // _SAMPLE))
    index = faiss.index_factory(exact.d, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
    index.cp.spherical, index.cp.min_points_per_centroid = True, 1
    sample = np.random.default_rng(0).permutation(count)[: _SAMPLE * lists]
    index.train(exact.reconstruct_batch(np.sort(sample)))
    for first in track(range(0, count, 65_536), "adding vectors"):
        index.add(exact.reconstruct_n(first, min(65_536, count - first)))

    # FAISS's own writer overlooks a disk that fills up at the last bytes.
    with open(path, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))


def _spot_check(path: Path, index: Any, store: PassageStore, encoder: Encoder) -> None:
    """Compares some passages with their vectors in an index that others made."""
    checked = np.unique(np.linspace(0, len(store) - 1, _CHECKED).round().astype(np.int64))
    if isinstance(index, faiss.IndexIVF):
        index.make_direct_map()
    stored = np.stack([index.reconstruct(position) for position in checked.tolist()])

    texts = [passage_text(store[int(position)]) for position in checked]
    cosines = (encoder.encode_passages(texts) * stored).sum(axis=1)
    wrong = int(np.abs(cosines - 1).argmax())
    if abs(cosines[wrong] - 1) > 1 - _LEAST_COSINE:
        what = f"vector {checked[wrong]} is not the unit vector of passage {checked[wrong]}"
        fix = "give the corpus in the file's order, and its encoder with its prefixes"
        raise DataError(path, f"{what} (inner product {cosines[wrong]:.3f}); {fix}")


def read_faiss(path: Path, kind: str, count: int, encoder: Encoder) -> Any:
    """A FAISS index of this kind and number of the encoder's vectors, memory-mapped, read-only."""
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_MMAP_IFC)
    except (RuntimeError, MemoryError) as error:
        what = f"is not an index that FAISS can read ({error})"
        raise DataError(path, f"{what}; {again(path.parent)}") from error

    wanted = (count, encoder.info.dimension, faiss.METRIC_INNER_PRODUCT)
    has = (index.ntotal, index.d, index.metric_type)
    if not isinstance(index, _CLASSES[kind]) or has != wanted:
        what = f"{type(index).__name__} of {has[0]:,} vectors of {has[1]} numbers"
        wants = f"{kind} by inner product has {wanted[0]:,} of {wanted[1]}"
        raise DataError(path, f"is an {what}, but {wants}")
    return index

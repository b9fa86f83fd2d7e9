"""Dense retrieval: passages ranked by the cosine of their vectors with the query's, by FAISS.

``dense-flat`` is exact, with 4 d bytes per vector of d numbers; ``dense-ivf-sq8`` (FAISS's
``IVF...,SQ8``) nearly, with scores to .01 and d + 8 bytes.

Files are memory-mapped when they are opened, and reading them runs no code. Where FAISS sees a GPU
(``faiss-gpu``), indexes are searched there.

A quarter of an IVF index's lists is searched, or as many as the manifest's ``lists_probed`` says: a
number to change by hand, as a few do where vectors form clear clusters."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from importlib import import_module
from itertools import islice
from math import log2, sqrt
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_env.disk import write_atomically
from ssp_env.errors import DataError
from ssp_env.search.base import check_request, passage_text
from ssp_env.search.postings import Ranking
from ssp_env.search.store import Encoder, Manifest, PassageStore, read_manifest, track
from ssp_env.types import Document

faiss: Any = import_module("faiss")  # this module is imported where dense search is asked for

FLAT, IVF = "dense-flat", "dense-ivf-sq8"
INDEX = "index.faiss"
BLOCK = 256
"""Passages that are encoded before they are written to disk."""

_CLASSES = {FLAT: faiss.IndexFlat, IVF: faiss.IndexIVF}
_VECTORS, _BEGUN = "vectors.faiss", "begun.json"
_SPARE, _NEAR = 16, 1e-5
"""Vectors that are looked at beyond those asked for; cosines closer than this may change places."""
_ALONE = 2**16
"""Numbers of a batch of queries that FAISS searches one after the other (up to 128,000)."""
_SAMPLE = 48
"""Vectors per list from which the centres of the lists are learnt."""


class DenseRetriever:
    """The passages of an index directory nearest to a query's vector, by cosine.

    May be shared between threads."""

    def __init__(
        self, folder: Path, passages: PassageStore, encoder: Encoder, manifest: Manifest
    ) -> None:
        self.corpus, self.encoder, self.kind = passages, encoder, folder.name
        self._origin = (folder, passages, encoder, manifest)
        index = read_faiss(folder / INDEX, self.kind, len(passages), encoder)
        if self.kind == IVF:
            index.nprobe = manifest.lists_probed

        self._vectors = index  # where single ones are looked up
        # An index on a GPU may not be searched by two threads at once.
        self._turn: AbstractContextManager[Any] = nullcontext()
        if faiss.get_num_gpus():
            self._turn, self._resources = Lock(), faiss.StandardGpuResources()
            index = faiss.index_cpu_to_gpu(self._resources, 0, index)
        self._index = index

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        check_request(queries, k)
        distinct = list(dict.fromkeys(queries))
        if not distinct:
            return []

        k = min(k, len(self.corpus))
        vectors = self.encoder.encode_queries(distinct)
        with self._turn:
            nearest = self._nearest(vectors, k) if self.kind == FLAT else self._probed(vectors, k)
        rankings = dict(zip(distinct, nearest, strict=True))
        return [
            [replace(self.corpus[place], score=score) for place, score in rankings[query]]
            for query in queries
        ]

    def _nearest(self, vectors: NDArray[np.float32], k: int) -> list[Ranking]:
        """The ``k`` nearest of all, the same for a query whatever else is in its batch.

        FAISS searches a large batch by matrix products, in which copies of one vector may differ
        in the last bits. So a few more than ``k`` are scored again, each by itself."""
        wide = min(k + _SPARE, len(self.corpus))
        scores, places = self._index.search(vectors, wide)
        for row in range(len(vectors)):
            if wide < len(self.corpus) and scores[row, k - 1] - scores[row, -1] < _NEAR:
                # More are equally near than were looked at. Alone, a query gets the first of them.
                _, places[row, :k] = self._index.search(vectors[row : row + 1], k)
                places[row, k:] = -1
        return [
            self._scored(vector, row[row >= 0])[:k]
            for vector, row in zip(vectors, places, strict=True)
        ]

    def _scored(self, vector: NDArray[np.float32], places: NDArray[np.int64]) -> Ranking:
        """Passages with their cosines, best first, equal ones by position."""
        cosines = (self._vectors.reconstruct_batch(places) * vector).sum(axis=1)
        order = np.lexsort((places, -cosines))
        return list(zip(places[order].tolist(), cosines[order].tolist(), strict=True))

    def _probed(self, vectors: NDArray[np.float32], k: int) -> list[Ranking]:
        """The ``k`` nearest in the lists that are probed, of which there may be fewer."""
        # So few at a time that their lists are not chosen by matrix products.
        step = max(1, _ALONE // self.encoder.info.dimension)
        blocks = [vectors[first : first + step] for first in range(0, len(vectors), step)]
        found = [self._index.search(block, k) for block in blocks]
        return [
            sorted(
                ((int(p), float(s)) for s, p in zip(*row, strict=True) if p >= 0),
                key=lambda hit: (-hit[1], hit[0]),
            )
            for scores, places in found
            for row in zip(scores, places, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        encoder = {"name": self.encoder.info.name, "digest": self.encoder.info.digest}
        return {"corpus": self.corpus.digest(), "kind": self.kind, "encoder": encoder}

    def __reduce__(self) -> tuple[Any, ...]:
        # What is on disk is opened again where the retriever arrives.
        return DenseRetriever, self._origin


def build(
    folder: Path, kind: str, store: PassageStore, encoder: Encoder, adopt: str | Path | None = None
) -> int | None:
    """Writes a dense index, or links a file that others made; returns the lists to be probed.

    Encoding takes days; a build that was killed continues after the last block of vectors. Where
    the directory holds a ``dense-flat`` index by the same encoder, its vectors are used. Memory:
    the encoder's, a block of passages, and an IVF index as a whole."""
    path = folder / INDEX
    if adopt is not None:
        path.symlink_to(Path(adopt).resolve())
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
    # A quarter of the lists, rounded up.
    return -(-index.nlist // 4) if kind == IVF else None


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
    # The number of vectors, and behind the header that of their numbers.
    header[8:16] = len(store).to_bytes(8, "little")
    header[-8:] = (len(store) * dimension).to_bytes(8, "little")
    path.touch()
    # The last block may not have reached the disk as a whole, so it is encoded again.
    written = max(0, path.stat().st_size - len(header)) // (4 * dimension)
    rows = max(0, written - 1) // BLOCK * BLOCK

    texts = map(passage_text, store.read_from(rows))
    with open(path, "r+b") as file:
        file.write(header)
        file.seek(4 * dimension * rows, os.SEEK_CUR)
        file.truncate()
        for _ in track(range(rows, len(store), BLOCK), "encoding passages"):
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
    # Centres are unit vectors too, so that the nearest list is the one of highest cosine.
    index.cp.spherical, index.cp.min_points_per_centroid = True, 1
    sample = np.random.default_rng(0).permutation(count)[: _SAMPLE * lists]
    index.train(exact.reconstruct_batch(np.sort(sample)))
    for first in track(range(0, count, 65_536), "adding vectors"):
        index.add(exact.reconstruct_n(first, min(65_536, count - first)))

    # FAISS's own writer overlooks a disk that fills up at the last bytes.
    with open(path, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))


def _spot_check(path: Path, index: Any, store: PassageStore, encoder: Encoder) -> None:
    """Compares eight passages with their vectors in an index that others made."""
    checked = range(0, len(store), -(-len(store) // 8))
    if isinstance(index, faiss.IndexIVF):
        index.make_direct_map()
    stored = np.stack([index.reconstruct(position) for position in checked])

    # Half precision and compression cost less than .05.
    texts = [passage_text(store[position]) for position in checked]
    cosines = (encoder.encode_passages(texts) * stored).sum(axis=1)
    if np.abs(cosines - 1).max() > 0.05:
        what = f"these are not the unit vectors of the passages (inner products {cosines.round(2)})"
        fix = "give the corpus in the file's order, and its encoder with its prefixes"
        raise DataError(path, f"{what}; {fix}")


def read_faiss(path: Path, kind: str, count: int, encoder: Encoder) -> Any:
    """A FAISS index of this kind and number of the encoder's vectors, memory-mapped, read-only."""
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_MMAP_IFC)
    except (RuntimeError, MemoryError) as error:
        raise DataError(path, f"is not an index that FAISS can read ({error})") from error

    wanted = (count, encoder.info.dimension, faiss.METRIC_INNER_PRODUCT)
    has = (index.ntotal, index.d, index.metric_type)
    if not isinstance(index, _CLASSES[kind]) or has != wanted:
        what = f"{type(index).__name__} of {has[0]:,} vectors of {has[1]} numbers"
        wants = f"{kind} by inner product has {wanted[0]:,} of {wanted[1]}"
        raise DataError(path, f"is an {what}, but {wants}")
    return index

"""Dense retrieval: passages ranked by the cosine of their vectors with the query's, by FAISS.

An index is exact, with 4 d bytes per vector of d numbers.

Files are memory-mapped when they are opened, and reading them runs no code. Where FAISS sees a GPU
(``faiss-gpu``), indexes are searched there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.base import check_request, passage_text
from ssp_env.search.postings import Ranking
from ssp_env.search.store import Encoder, PassageStore, track
from ssp_env.types import Document

faiss: Any = import_module("faiss")  # this module is imported where dense search is asked for

FLAT = "dense-flat"
INDEX = "index.faiss"
BLOCK = 256
"""Passages that are encoded at a time."""

_SPARE, _NEAR = 16, 1e-5
"""Vectors that are looked at beyond those asked for; cosines closer than this may change places."""


class DenseRetriever:
    """The passages of an index directory nearest to a query's vector, by cosine.

    May be shared between threads."""

    def __init__(self, folder: Path, passages: PassageStore, encoder: Encoder) -> None:
        self.corpus, self.encoder = passages, encoder
        self._origin = (folder, passages, encoder)
        index = read_faiss(folder / INDEX, len(passages), encoder)

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
            nearest = self._nearest(vectors, k)
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
        # scores and places: (queries, wide), best first; a place of -1 holds nothing.
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
        # Inner products of unit vectors: (places, d) and (d,) -> (places,).
        cosines = (self._vectors.reconstruct_batch(places) * vector).sum(axis=1)
        # By the last key first: cosines, then positions.
        order = np.lexsort((places, -cosines))
        return list(zip(places[order].tolist(), cosines[order].tolist(), strict=True))

    def describe(self) -> dict[str, Any]:
        encoder = {"name": self.encoder.info.name, "digest": self.encoder.info.digest}
        return {"corpus": self.corpus.digest(), "kind": FLAT, "encoder": encoder}

    def __reduce__(self) -> tuple[Any, ...]:
        # What is on disk is opened again where the retriever arrives.
        return DenseRetriever, self._origin


def build(
    folder: Path, store: PassageStore, encoder: Encoder, adopt: str | Path | None = None
) -> None:
    """Writes a dense index, or links a file that others made. Memory: all vectors."""
    if adopt is not None:
        (folder / INDEX).symlink_to(Path(adopt).resolve())
        index = read_faiss(Path(adopt), len(store), encoder)
        _spot_check(Path(adopt), index, store, encoder)
        return

    index = faiss.IndexFlatIP(encoder.info.dimension)
    texts = map(passage_text, store)
    for _ in track(range(0, len(store), BLOCK), "encoding passages"):
        index.add(encoder.encode_passages(list(islice(texts, BLOCK))))
    # FAISS's own writer overlooks a disk that fills up at the last bytes.
    with open(folder / INDEX, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))


def _spot_check(path: Path, index: Any, store: PassageStore, encoder: Encoder) -> None:
    """Compares eight passages with their vectors in an index that others made."""
    # From all over the corpus; steps are rounded up, so that there are eight at most.
    checked = range(0, len(store), -(-len(store) // 8))
    stored = np.stack([index.reconstruct(position) for position in checked])

    # Half precision costs less than .05.
    texts = [passage_text(store[position]) for position in checked]
    cosines = (encoder.encode_passages(texts) * stored).sum(axis=1)
    if np.abs(cosines - 1).max() > 0.05:
        what = f"these are not the unit vectors of the passages (inner products {cosines.round(2)})"
        fix = "give the corpus in the file's order, and its encoder with its prefixes"
        raise DataError(path, f"{what}; {fix}")


def read_faiss(path: Path, count: int, encoder: Encoder) -> Any:
    """An exact FAISS index of this number of the encoder's vectors, memory-mapped, read-only."""
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_MMAP_IFC)
    except (RuntimeError, MemoryError) as error:
        raise DataError(path, f"is not an index that FAISS can read ({error})") from error

    wanted = (count, encoder.info.dimension, faiss.METRIC_INNER_PRODUCT)
    has = (index.ntotal, index.d, index.metric_type)
    if not isinstance(index, faiss.IndexFlat) or has != wanted:
        what = f"{type(index).__name__} of {has[0]:,} vectors of {has[1]} numbers"
        wants = f"{FLAT} by inner product has {wanted[0]:,} of {wanted[1]}"
        raise DataError(path, f"is an {what}, but {wants}")
    return index

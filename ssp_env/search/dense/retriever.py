"""Dense retrieval: passages ranked by the cosine of their vectors with the query's.

Needs the extra ``dense``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from ssp_env.errors import DataError
from ssp_env.search.base import check_request
from ssp_env.search.dense.neighbours import (
    EFFORT,
    FLAT,
    INDEX,
    kind_of,
    nearest,
    on_gpu,
    read_faiss,
    set_effort,
)
from ssp_env.search.index.directory import Encoder
from ssp_env.search.index.manifest import Manifest
from ssp_env.search.index.store import PassageStore
from ssp_env.search.index.workplace import again
from ssp_env.types import Document


class DenseRetriever:
    """The passages of an index directory nearest to a query's vector, by cosine.

    Every query gets ``k`` documents, or all there are. ``dense-flat`` is exact. ``dense-hnsw`` and
    ``dense-ivf-sq8`` (see :mod:`ssp_env.search.dense.neighbours`) may miss a passage, and the
    latter's scores are off by up to about .01. They are measured with 512 sentences of their
    passages when they are built, and look as far as that takes. May be shared between threads."""

    def __init__(
        self, folder: Path, passages: PassageStore, encoder: Encoder, manifest: Manifest
    ) -> None:
        """Maps the files of an index; :func:`ssp_env.search.index.directory.open_index` checks that
        its parts belong together.

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
            set_effort(index, effort)

        # An index on a GPU may not be searched by two threads at once.
        self._index, self._gpu = on_gpu(index)
        self._turn: AbstractContextManager[Any] = nullcontext() if self._gpu is None else Lock()

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """See :meth:`ssp_env.search.base.Retriever.search`; an empty query has a vector too."""
        check_request(queries, k)
        distinct = list(dict.fromkeys(queries))
        if not distinct:
            return []

        vectors = self.encoder.encode_queries(distinct)
        with self._turn:
            found = nearest(self._index, vectors, k)
        rankings = {
            query: [self._document(*each) for each in zip(*ranking, strict=True)]
            for query, ranking in zip(distinct, found, strict=True)
        }
        return [list(rankings[query]) for query in queries]

    def _document(self, score: float, position: int) -> Document:
        return replace(self.corpus[int(position)], score=float(score))

    def __reduce__(self) -> tuple[Any, ...]:
        # What is on disk is opened again where the retriever arrives.
        return DenseRetriever, self._origin

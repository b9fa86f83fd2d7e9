"""Dense retrieval: passages ranked by the cosine of their vectors with the query's.

Needs the extra ``dense``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ssp_env.search.base import check_request
from ssp_env.search.dense.neighbours import INDEX, open_neighbours
from ssp_env.search.index.directory import Encoder
from ssp_env.search.index.manifest import Manifest
from ssp_env.search.index.store import PassageStore
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
        its parts belong together."""
        self.corpus, self.encoder, self.kind = passages, encoder, manifest.kind
        self._origin = (folder, passages, encoder, manifest)
        size = (len(passages), encoder.info.dimension)
        path = folder / INDEX
        self._neighbours = open_neighbours(self.kind, path, *size, manifest.parameters)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """See :meth:`ssp_env.search.base.Retriever.search`; an empty query has a vector too."""
        check_request(queries, k)
        distinct = list(dict.fromkeys(queries))
        if not distinct:
            return []

        found = self._neighbours.search(self.encoder.encode_queries(distinct), k)
        rankings = {
            query: [self._document(*each) for each in zip(*ranking, strict=True)]
            for query, ranking in zip(distinct, found, strict=True)
        }
        return [list(rankings[query]) for query in queries]

    def _document(self, score: float, position: int) -> Document:
        document = self.corpus[int(position)]
        return Document(document.id, document.title, document.text, float(score))

    def __reduce__(self) -> tuple[Any, ...]:
        # What is on disk is opened again where the retriever arrives.
        return DenseRetriever, self._origin

"""Dense retrieval: passages ranked by the cosine of their vectors with the query's.

Needs the extra ``dense``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssp_env.errors import ConfigError, nearest
from ssp_env.search.base import Retriever, check_request
from ssp_env.search.dense.build import build, encoded, likely_queries
from ssp_env.search.dense.encoder import Prefixes, SentenceTransformerEncoder
from ssp_env.search.dense.neighbours import (
    FLAT,
    INDEX,
    KINDS,
    Neighbours,
    approximate,
    flat,
    load,
    tune,
)
from ssp_env.search.dense.vectors import faiss
from ssp_env.search.index.directory import Encoder
from ssp_env.search.index.manifest import EncoderInfo, Manifest
from ssp_env.search.index.store import PassageStore
from ssp_env.search.index.workplace import Progress, Workplace, no_progress
from ssp_env.types import Document, Passages


class DenseRetriever:
    """The passages nearest to a query's vector, by cosine.

    Every query gets ``k`` documents, or all there are. ``dense-flat`` is exact. ``dense-hnsw`` and
    ``dense-ivf-sq8`` (see :mod:`ssp_env.search.dense.neighbours`) may miss a passage, and the
    latter's scores are off by up to about .01. They are measured with 512 sentences of their
    passages when they are built, and look as far as that takes. May be shared between threads."""

    def __init__(self, passages: Passages, encoder: Encoder, kind: str = FLAT) -> None:
        """Encodes all passages and keeps their vectors in memory.

        :meth:`open` and ``ssp index`` are for more of them.

        Args:
            passages: what to search in.
            encoder: for passages and queries.
            kind: one of :data:`ssp_env.search.dense.neighbours.KINDS`.

        Raises:
            ConfigError: an unknown kind.
            MissingExtra: FAISS is not installed.
        """
        if kind not in KINDS:
            raise ConfigError("kind", kind, nearest(kind, KINDS))
        faiss()
        index = exact = flat(np.concatenate(list(encoded(passages, encoder))))
        if kind != FLAT:
            index = approximate(kind, exact, no_progress)
            queries = likely_queries(passages, encoder, no_progress)
            tune(kind, index, exact, queries, no_progress)
        self._set(passages, encoder, Neighbours(index), kind)

    @classmethod
    def open(
        cls, folder: Path, passages: Passages, encoder: Encoder, manifest: Manifest
    ) -> DenseRetriever:
        """A retriever over the files of an index, memory-mapped. Its manifest has been checked."""
        retriever = cls.__new__(cls)
        size = (len(passages), encoder.info.dimension)
        neighbours = load(manifest.kind, folder / INDEX, *size, manifest.parameters)
        retriever._set(passages, encoder, neighbours, manifest.kind)
        retriever._origin = (folder, passages, encoder, manifest)
        return retriever

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

    def _set(self, passages: Passages, encoder: Encoder, neighbours: Neighbours, kind: str) -> None:
        self.corpus, self.encoder, self._neighbours = passages, encoder, neighbours
        self.kind = kind
        self._origin: tuple[Any, ...] | None = None

    def _document(self, score: float, position: int) -> Document:
        document = self.corpus[int(position)]
        return Document(document.id, document.title, document.text, float(score))

    def __reduce__(self) -> str | tuple[Any, ...]:
        # What is on disk is opened again where the retriever arrives.
        if self._origin is None:
            return super().__reduce__()
        return DenseRetriever.open, self._origin


PACKAGES = ("numpy", "faiss-cpu", "faiss-gpu", "sentence-transformers", "torch")


class DenseKind:
    """How one dense kind is built and opened.

    It is an :class:`~ssp_env.search.index.directory.IndexKind`, where the methods are described."""

    packages = PACKAGES
    needs_encoder = True

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def load_encoder(
        self, directory: str | Path, recorded: EncoderInfo | None, device: str | None = None
    ) -> Encoder:
        """Takes the prefixes that an index was made with, as its directory may not name them."""
        if recorded is None:
            return SentenceTransformerEncoder(directory, device=device)
        prefixes = Prefixes(recorded.query_prefix, recorded.passage_prefix)
        return SentenceTransformerEncoder(directory, prefixes=prefixes, device=device)

    def build(
        self, place: Workplace, store: PassageStore, encoder: Encoder | None, progress: Progress
    ) -> dict[str, Any]:
        """See :func:`ssp_env.search.dense.build.build`."""
        assert encoder is not None  # see needs_encoder
        return build(self._kind, place, store, encoder, progress)

    def open(
        self, folder: Path, store: PassageStore, encoder: Encoder | None, manifest: Manifest
    ) -> Retriever:
        """See :meth:`ssp_env.search.dense.retriever.DenseRetriever.open`."""
        assert encoder is not None  # see needs_encoder
        return DenseRetriever.open(folder, store, encoder, manifest)

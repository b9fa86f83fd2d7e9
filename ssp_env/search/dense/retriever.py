"""Dense retrieval: passages ranked by the cosine of their vectors with the query's. Needs the extra
``dense``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ssp_env.errors import ConfigError, DataError, nearest
from ssp_env.search.base import Retriever, check_request
from ssp_env.search.corpus import passage_text
from ssp_env.search.dense.neighbours import FLAT, KINDS, VECTORS, Neighbours, in_memory, load, write
from ssp_env.search.dense.vectors import VectorFile, Vectors, faiss
from ssp_env.search.index.directory import Encoder
from ssp_env.search.index.manifest import read_manifest
from ssp_env.search.index.store import PassageStore
from ssp_env.search.index.workplace import SCRATCH, ArrayWriter, Progress, Workplace, no_progress
from ssp_env.types import Document, Passages

BLOCK = 256
"""Passages that are encoded between two entries of a build's journal."""
_ASKED = 512
"""Queries that an approximate index is measured with."""
_QUERY_BLOCK = 64
"""Of these, how many are encoded at once."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class DenseRetriever:
    """The passages nearest to a query's vector, by cosine.

    Every query gets ``k`` documents, or all there are; equal scores are ordered by position in the
    corpus. ``dense-flat`` is exact. ``dense-hnsw`` and ``dense-ivf-sq8`` (see
    :mod:`ssp_env.search.dense.neighbours`) may miss a passage, and the latter's scores are off by
    up to about .01. They are measured with 512 sentences of their passages when they are built, and
    look as far as that takes. May be shared between threads."""

    def __init__(self, passages: Passages, encoder: Encoder, kind: str = FLAT) -> None:
        """Encodes all passages and keeps their vectors in memory. :meth:`open` and ``ssp index``
        are for more of them.

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
        blocks = [encoder.encode_passages(texts) for texts in _blocks(passages)]
        neighbours = in_memory(
            kind, np.concatenate(blocks), lambda: _likely_queries(passages, encoder, no_progress)
        )
        self._set(passages, encoder, neighbours)

    @classmethod
    def open(cls, folder: Path, passages: Passages, encoder: Encoder, kind: str) -> DenseRetriever:
        """A retriever over the files of an index, memory-mapped. The folder's manifest has been
        checked.

        Raises:
            DataError: the files are not what they should be.
            MissingExtra: FAISS is not installed.
        """
        retriever = cls.__new__(cls)
        retriever._set(passages, encoder, load(kind, folder, len(passages), encoder.info.dimension))
        retriever._origin = (folder, passages, encoder, kind)
        return retriever

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked documents for each query; see :class:`~ssp_env.search.base.Retriever`.

        Args:
            queries: any strings; an empty one has a vector too.
            k: how many documents a query, at least 1; more than the corpus holds is fine.

        Raises:
            ConfigError: ``k`` is no whole number from 1 up.
            UsageError: ``queries`` is no sequence of strings.
        """
        check_request(queries, k)
        distinct = list(dict.fromkeys(queries))
        if not distinct:
            return []
        found = self._neighbours.search(self.encoder.encode_queries(distinct), k)
        rankings = {
            query: self._documents(*ranking) for query, ranking in zip(distinct, found, strict=True)
        }
        return [list(rankings[query]) for query in queries]

    def _set(self, passages: Passages, encoder: Encoder, neighbours: Neighbours) -> None:
        self.corpus, self.encoder, self._neighbours = passages, encoder, neighbours
        self._origin: tuple[Any, ...] | None = None

    def _documents(self, scores: Iterable[float], positions: Iterable[int]) -> list[Document]:
        documents = []
        for score, position in zip(scores, positions, strict=True):
            document = self.corpus[int(position)]
            documents.append(Document(document.id, document.title, document.text, float(score)))
        return documents

    def __reduce__(self) -> str | tuple[Any, ...]:
        # What is on disk is opened again where the retriever arrives.
        if self._origin is None:
            return super().__reduce__()
        return DenseRetriever.open, self._origin


class DenseKind:
    """How ``ssp index`` builds and opens a dense index: an
    :class:`~ssp_env.search.index.directory.IndexKind`.

    Vectors are written in blocks of 256 passages; a build that was killed goes on after the last
    block. Where the directory holds a ``dense-flat`` index by the same encoder, its vectors are
    used. What follows the encoding is
    seeded: the same vectors give the same bytes, on one machine.
    """

    packages = ("numpy", "faiss-cpu", "faiss-gpu", "sentence-transformers", "torch")
    needs_encoder = True

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def build(
        self, place: Workplace, store: PassageStore, encoder: Encoder | None, progress: Progress
    ) -> dict[str, Any]:
        """See :meth:`ssp_env.search.index.directory.IndexKind.build`.

        Memory: the encoder's, a block of passages, and what
        :func:`ssp_env.search.dense.neighbours.write` says."""
        assert encoder is not None  # see needs_encoder
        faiss()
        scratch = place.path / SCRATCH
        scratch.mkdir(exist_ok=True)
        if self._kind == FLAT:
            _encode(place, place.path / VECTORS, store, encoder, progress)
            return {}
        vectors = _vectors_of_sibling(place.target.parent / FLAT, store, encoder)
        if vectors is None:
            vectors = _encode(place, scratch / VECTORS, store, encoder, progress)
        queries = _likely_queries(store, encoder, progress)
        return write(self._kind, vectors, queries, place.path, scratch, progress)

    def open(self, folder: Path, store: PassageStore, encoder: Encoder | None) -> Retriever:
        """See :meth:`ssp_env.search.index.directory.IndexKind.open`."""
        assert encoder is not None  # see needs_encoder
        return DenseRetriever.open(folder, store, encoder, self._kind)


def _likely_queries(passages: Passages, encoder: Encoder, progress: Progress) -> Vectors:
    """Vectors of queries such as may be asked: sentences of some passages (the inverse cloze task
    of Lee et al. 2019).

    Shape ``(up to 512, dimension)``.
    """
    rng = np.random.default_rng(0)
    queries = []
    for position in np.sort(rng.permutation(len(passages))[:_ASKED]).tolist():
        sentences = _SENTENCE_END.split(passages[position].text.strip())
        queries.append(sentences[rng.integers(len(sentences))] or passages[position].title)
    stage, blocks = "encoding queries to measure with", []
    progress(stage, 0, len(queries))
    for first in range(0, len(queries), _QUERY_BLOCK):
        blocks.append(encoder.encode_queries(queries[first : first + _QUERY_BLOCK]))
        progress(stage, min(first + _QUERY_BLOCK, len(queries)), len(queries))
    return np.concatenate(blocks)


def _encode(
    place: Workplace, path: Path, store: PassageStore, encoder: Encoder, progress: Progress
) -> VectorFile:
    """Writes the vectors of all passages, from the journal's point on."""
    dimension = encoder.info.dimension
    writer = ArrayWriter(path, np.float32, dimension, rows=place.state().get("vectors", 0))
    stage = "encoding passages"
    if writer.rows:
        stage += f" (resuming at {writer.rows:,} of {len(store):,})"
    progress(stage, writer.rows, len(store))
    try:
        for texts in _blocks(store.read_from(writer.rows)):
            writer.append(encoder.encode_passages(texts))
            writer.sync()
            place.checkpoint({"vectors": writer.rows})
            progress(stage, writer.rows, len(store))
        writer.finish()
    finally:
        writer.close()
    return VectorFile(path, len(store), dimension)


def _blocks(passages: Iterable[Document]) -> Iterator[list[str]]:
    texts = map(passage_text, passages)
    while block := list(islice(texts, BLOCK)):
        yield block


def _vectors_of_sibling(folder: Path, store: PassageStore, encoder: Encoder) -> VectorFile | None:
    """The vectors of a whole ``dense-flat`` index over the same passages and by the same encoder,
    if it is there."""
    try:
        read_manifest(folder, FLAT, corpus=store.digest(), encoder=encoder.info)
    except DataError:
        return None
    return VectorFile(folder / VECTORS, len(store), encoder.info.dimension)

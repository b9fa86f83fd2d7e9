"""Retrievers over others: several fused by rank, or one whose best documents are reranked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import ConfigError
from ssp_env.search.base import Retriever, check_request, identify
from ssp_env.types import Document, Passages

DEPTH = 100
"""Documents that are read of each ranking to be fused, at least."""


class HybridRetriever:
    """Fuses the rankings of several retrievers over one corpus, such as BM25 and dense.

    Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): a document scores the sum, over the
    retrievers that list it, of ``weight / (rrf_k + rank)``, ranks counted from 1. Only ranks count,
    so the retrievers' units need not agree. Documents are the same when their ids are; equal scores
    are ordered by the first retriever that lists a document, then by its rank there. As thread-safe
    as its parts."""

    def __init__(
        self,
        retrievers: Sequence[Retriever],
        weights: Sequence[float] | None = None,
        *,
        rrf_k: float = 60,
    ) -> None:
        """
        Args:
            retrievers: at least one.
            weights: one per retriever, each above 0; ``None`` weighs all alike.
            rrf_k: the higher, the less the very first ranks stand out.

        Raises:
            ConfigError: two retrievers over different corpora (of those that have a ``corpus``),
                or weights of another number.
        """
        parts = [getattr(retriever, "corpus", None) for retriever in retrievers]
        corpora = {id(corpus): corpus for corpus in parts if isinstance(corpus, Passages)}
        # A digest reads a corpus in memory from end to end: not where all parts share one object.
        if len(corpora) > 1 and len({corpus.digest() for corpus in corpora.values()}) > 1:
            fix = "these corpora differ, and ids would be mixed; give retrievers over one"
            raise ConfigError("retrievers", [corpus.name for corpus in corpora.values()], fix)
        weights = [1.0] * len(retrievers) if weights is None else weights
        if len(weights) != len(retrievers):
            raise ConfigError("weights", weights, f"give {len(retrievers)}, one per retriever")
        self.retrievers, self.weights, self.rrf_k = tuple(retrievers), tuple(weights), rrf_k

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Asks each retriever once, for the whole batch and at least 100 documents per query."""
        check_request(queries, k)
        answers = [retriever.search(queries, max(k, DEPTH)) for retriever in self.retrievers]
        return [self._fuse(each)[:k] for each in zip(*answers, strict=True)]

    def describe(self) -> dict[str, Any]:
        """Parts and their weights."""
        of = [identify(part) for part in self.retrievers]
        return {"of": of, "weights": [float(weight) for weight in self.weights]}

    def _fuse(self, rankings: Sequence[Sequence[Document]]) -> list[Document]:
        """One ranking of one query; a document that a ranking repeats counts there once."""
        documents: dict[str, Document] = {}
        scores: dict[str, float] = {}
        for ranking, weight in zip(rankings, self.weights, strict=True):
            # The first place of each document: a dictionary keeps the last, so from the end.
            ranks = {document.id: rank for rank, document in [*enumerate(ranking, start=1)][::-1]}
            for document in ranking:
                documents.setdefault(document.id, document)
            for name, rank in ranks.items():
                scores[name] = scores.get(name, 0.0) + weight / (self.rrf_k + rank)

        # Sorting is stable, and the dictionary is in the order in which documents were listed.
        best = sorted(documents.values(), key=lambda document: -scores[document.id])
        return [Document(each.id, each.title, each.text, scores[each.id]) for each in best]


class Reranker(Protocol):
    """Scores how well documents answer queries."""

    def scores(
        self, pairs: Sequence[tuple[str, Document]]
    ) -> Sequence[float] | NDArray[np.float32]:
        """One number for each pair of query and document; the higher, the better."""
        ...


class RerankedRetriever:
    """A retriever whose first documents are put into a reranker's order.

    Scores are the reranker's; equal ones keep the retriever's order. As thread-safe as its parts.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, depth: int = 50) -> None:
        """``depth`` is how many documents a query the reranker sees; ``k`` if that is more."""
        self.retriever, self.reranker, self.depth = retriever, reranker, depth

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Asks the reranker once, for all documents of all queries."""
        check_request(queries, k)
        found = self.retriever.search(queries, max(k, self.depth))
        pairs = [(q, each) for q, ranking in zip(queries, found, strict=True) for each in ranking]
        scores = [float(score) for score in self.reranker.scores(pairs)] if pairs else []

        # Sorting is stable, in reverse too: equal scores keep the retriever's order.
        scored = (
            Document(d.id, d.title, d.text, s) for (_, d), s in zip(pairs, scores, strict=True)
        )
        each = [list(islice(scored, len(ranking))) for ranking in found]
        return [sorted(part, key=lambda d: d.score or 0.0, reverse=True)[:k] for part in each]

    def describe(self) -> dict[str, Any]:
        """The retriever, the reranker's name, and the depth."""
        name = str(getattr(self.reranker, "name", type(self.reranker).__name__))
        return {"of": [identify(self.retriever)], "reranker": name, "depth": self.depth}

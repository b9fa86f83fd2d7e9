"""Retrievers over others: fused by rank, or reranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.search.base import Results, Retriever, all_found, check_request, identify, search_each
from ssp_env.types import Document, Passages

DEPTH = 100
"""Documents that are read of each ranking to be fused, at least."""
RRF_K = 60
"""The higher, the less the very first ranks stand out."""


class HybridRetriever:
    """Fuses the rankings of several retrievers over one corpus, such as BM25 and dense.

    Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): a document scores the sum, over the
    retrievers that list it, of ``weight / (60 + rank)``, ranks counted from 1. Only ranks count,
    so the retrievers' units need not agree. Documents are the same when their ids are; equal scores
    are ordered by the first retriever that lists a document, then by its rank there.

    >>> from ssp_env.search.base import Corpus
    >>> from ssp_env.search.bm25 import BM25Retriever
    >>> corpus = Corpus([Document("1", "Graz", "On the Mur."), Document("2", "Mur", "A river.")])
    >>> fused = HybridRetriever([BM25Retriever(corpus), BM25Retriever(corpus)])
    >>> [(each.title, round(each.score * 61, 2)) for each in fused.search(["Graz"], 2)[0]]
    [('Graz', 2.0)]
    """

    def __init__(
        self, retrievers: Sequence[Retriever], weights: Sequence[float] | None = None
    ) -> None:
        """``weights`` are one per retriever, each above 0; ``None`` weighs all alike."""
        parts = [getattr(retriever, "corpus", None) for retriever in retrievers]
        corpora = {id(corpus): corpus for corpus in parts if isinstance(corpus, Passages)}
        # A digest reads a corpus in memory from end to end: not where all parts share one object.
        if len(corpora) > 1 and len({corpus.digest() for corpus in corpora.values()}) > 1:
            fix = "these corpora differ, and ids would be mixed; give retrievers over one"
            raise ConfigError("retrievers", [corpus.name for corpus in corpora.values()], fix)
        self.retrievers = tuple(retrievers)
        self.weights = tuple([1.0] * len(retrievers) if weights is None else weights)
        if not retrievers or len(self.weights) != len(retrievers):
            raise ConfigError("weights", weights, f"give one for each of {len(retrievers)}")

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        return all_found(self.search_each(queries, k))

    def search_each(self, queries: Sequence[str], k: int) -> Results:
        """Asks each retriever once, for the whole batch and at least 100 documents per query."""
        check_request(queries, k)
        answers = [search_each(part, queries, max(k, DEPTH)) for part in self.retrievers]
        results: Results = []
        for rankings in zip(*answers, strict=True):
            # Fused from the others alone, a query would have another ranking while a part is away.
            failed = next((each for each in rankings if isinstance(each, ServiceError)), None)
            results.append(failed or self._fuse(all_found([*rankings]))[:k])
        return results

    def describe(self) -> dict[str, Any]:
        of = [identify(part) for part in self.retrievers]
        return {"of": of, "weights": [float(weight) for weight in self.weights]}

    def _fuse(self, rankings: Sequence[Sequence[Document]]) -> list[Document]:
        """One ranking of one query; a document that a ranking repeats counts there once."""
        documents: dict[str, Document] = {}
        scores: dict[str, float] = {}
        for ranking, weight in zip(rankings, self.weights, strict=True):
            ranks: dict[str, int] = {}
            for rank, document in enumerate(ranking, start=1):
                documents.setdefault(document.id, document)
                ranks.setdefault(document.id, rank)
            for name, rank in ranks.items():
                # score(d) = sum over rankings of weight / (60 + rank of d).
                scores[name] = scores.get(name, 0.0) + weight / (RRF_K + rank)

        # Sorting is stable, and the dictionary is in the order in which documents were listed.
        best = sorted(documents.values(), key=lambda document: -scores[document.id])
        return [replace(each, score=scores[each.id]) for each in best]


class Reranker(Protocol):
    """Scores how well documents answer queries."""

    def scores(
        self, pairs: Sequence[tuple[str, Document]]
    ) -> Sequence[float] | NDArray[np.float32]:
        """One number for each pair of query and document; the higher, the better."""


class RerankedRetriever:
    """A retriever whose first documents are put into a reranker's order.

    Scores are the reranker's; equal ones keep the retriever's order."""

    def __init__(self, retriever: Retriever, reranker: Reranker, depth: int = 50) -> None:
        """``depth`` is how many documents a query the reranker sees; ``k`` if that is more."""
        self.retriever, self.reranker, self.depth = retriever, reranker, depth

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        return all_found(self.search_each(queries, k))

    def search_each(self, queries: Sequence[str], k: int) -> Results:
        """Asks the reranker once, for all documents of all queries."""
        check_request(queries, k)
        results = search_each(self.retriever, queries, max(k, self.depth))
        found = [[] if isinstance(each, ServiceError) else each for each in results]
        pairs = [(q, each) for q, ranking in zip(queries, found, strict=True) for each in ranking]
        # All pairs in one call, since models work in batches; then each ranking takes its share.
        scores = [float(score) for score in self.reranker.scores(pairs)] if pairs else []

        scored = (replace(d, score=score) for (_, d), score in zip(pairs, scores, strict=True))
        each = [list(islice(scored, len(ranking))) for ranking in found]
        # Sorting is stable, in reverse too: equal scores keep the retriever's order.
        ranked = [sorted(part, key=lambda d: d.score or 0.0, reverse=True)[:k] for part in each]
        both = zip(results, ranked, strict=True)
        return [
            result if isinstance(result, ServiceError) else reranked for result, reranked in both
        ]

    def describe(self) -> dict[str, Any]:
        name = str(getattr(self.reranker, "name", type(self.reranker).__name__))
        return {"of": [identify(self.retriever)], "reranker": name, "depth": self.depth}

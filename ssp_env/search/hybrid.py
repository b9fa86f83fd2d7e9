"""Several retrievers as one: reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ssp_env.errors import ConfigError
from ssp_env.search.base import Retriever, check_count, check_request
from ssp_env.types import Document, Passages

DEPTH = 100
"""How far down each ranking is read, at least."""


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
            ConfigError: no retriever, one that is none, two over different corpora (of those that
                have a ``corpus``), weights of another number or not above 0, an ``rrf_k`` that is
                no number from 0 up.
        """
        if not retrievers or not all(isinstance(part, Retriever) for part in retrievers):
            raise ConfigError("retrievers", retrievers, "give objects with search(queries, k)")
        _check_corpora(retrievers)

        weights = [1.0] * len(retrievers) if weights is None else list(weights)
        if len(weights) != len(retrievers) or not all(0 < weight < inf for weight in weights):
            fix = f"give {len(retrievers)} numbers above 0, one per retriever"
            raise ConfigError("weights", weights, fix)
        if not 0 <= rrf_k < inf:
            raise ConfigError("rrf_k", rrf_k, "give a number, 0 or more; 60 is usual")
        self.retrievers, self.weights, self.rrf_k = tuple(retrievers), tuple(weights), rrf_k

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """See :meth:`ssp_env.search.base.Retriever.search`.

        Each retriever is asked once, for the whole batch and at least 100 documents per query.

        Raises:
            ServiceError: a retriever could not answer.
            UsageError: one did not give a ranking for every query.
        """
        check_request(queries, k)
        answers = [retriever.search(queries, max(k, DEPTH)) for retriever in self.retrievers]
        for rankings in answers:
            check_count(rankings, queries)
        return [fuse(each, self.weights, self.rrf_k)[:k] for each in zip(*answers, strict=True)]


def _check_corpora(retrievers: Sequence[Retriever]) -> None:
    # A digest reads a corpus in memory from end to end: not where all parts share one object.
    parts = [getattr(retriever, "corpus", None) for retriever in retrievers]
    corpora = {id(corpus): corpus for corpus in parts if isinstance(corpus, Passages)}
    if len(corpora) > 1 and len({corpus.digest() for corpus in corpora.values()}) > 1:
        fix = "these corpora differ, and ids would be mixed; give retrievers over one"
        raise ConfigError("retrievers", [corpus.name for corpus in corpora.values()], fix)


def fuse(
    rankings: Sequence[Sequence[Document]], weights: Sequence[float], rrf_k: float
) -> list[Document]:
    """One ranking from several of one query; a document that one repeats counts there once."""
    documents: dict[str, Document] = {}
    scores: dict[str, float] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        # The first place of each document: a dictionary keeps the last, so from the end.
        ranks = {document.id: rank for rank, document in [*enumerate(ranking, start=1)][::-1]}
        for document in ranking:
            documents.setdefault(document.id, document)
        for name, rank in ranks.items():
            scores[name] = scores.get(name, 0.0) + weight / (rrf_k + rank)

    # Sorting is stable, and the dictionary is in the order in which documents were first listed.
    best = sorted(documents.values(), key=lambda document: -scores[document.id])
    return [Document(each.id, each.title, each.text, scores[each.id]) for each in best]

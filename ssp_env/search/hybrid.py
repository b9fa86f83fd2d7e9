"""Several retrievers as one: reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from numbers import Real
from typing import Any

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.search.base import Retriever, check_request
from ssp_env.types import Document

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
            weights: one a retriever, each above 0; ``None`` weighs all alike.
            rrf_k: the higher, the less the very first ranks stand out.

        Raises:
            ConfigError: no retriever, one that is none, two over different corpora (of those that
                have a ``corpus``), weights of another number or not above 0, an ``rrf_k`` that is
                no number from 0 up.
        """
        if not retrievers:
            raise ConfigError("retrievers", retrievers, "give at least one retriever")
        for retriever in retrievers:
            if not isinstance(retriever, Retriever):
                raise ConfigError("retrievers", retriever, "give objects with search(queries, k)")
        _check_corpora(retrievers)
        weights = [1.0] * len(retrievers) if weights is None else weights
        above_zero = hasattr(weights, "__len__") and all(
            _is_number(weight) and weight > 0 for weight in weights
        )
        if not above_zero or len(weights) != len(retrievers):
            raise ConfigError(
                "weights", weights, f"give {len(retrievers)} numbers above 0, one a retriever"
            )
        if not (_is_number(rrf_k) and rrf_k >= 0):
            raise ConfigError("rrf_k", rrf_k, "give a number, 0 or more; 60 is usual")
        self.retrievers, self.weights, self.rrf_k = tuple(retrievers), tuple(weights), rrf_k

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked documents for each query; see :class:`~ssp_env.search.base.Retriever`.

        Each retriever is asked once, for the whole batch and at least 100 documents a query.

        Raises:
            ConfigError: ``k`` is no whole number from 1 up.
            UsageError: ``queries`` is no sequence of strings.
            ServiceError: a retriever could not answer, or not for every query.
        """
        check_request(queries, k)
        answers = [retriever.search(queries, max(k, DEPTH)) for retriever in self.retrievers]
        for retriever, rankings in zip(self.retrievers, answers, strict=True):
            if len(rankings) != len(queries):
                what = (
                    f"{type(retriever).__name__} gave {len(rankings)} rankings for "
                    f"{len(queries)} queries"
                )
                raise ServiceError("search", what)
        return [
            fuse(rankings, self.weights, self.rrf_k)[:k] for rankings in zip(*answers, strict=True)
        ]


def _check_corpora(retrievers: Sequence[Retriever]) -> None:
    corpora: dict[int, Any] = {
        id(part.corpus): part.corpus for part in retrievers if hasattr(part, "corpus")
    }
    told = [corpus for corpus in corpora.values() if callable(getattr(corpus, "digest", None))]
    # A digest reads a corpus in memory from end to end: not where all parts share one object.
    if len(told) > 1 and len({corpus.digest() for corpus in told}) > 1:
        names = [str(getattr(corpus, "name", "corpus")) for corpus in told]
        raise ConfigError(
            "retrievers",
            names,
            "these corpora differ, and ids would be mixed; give retrievers over one",
        )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and isfinite(value)


def fuse(
    rankings: Sequence[Sequence[Document]], weights: Sequence[float], rrf_k: float
) -> list[Document]:
    """One ranking from several, by reciprocal rank fusion. A document that a ranking repeats counts
    there once.

    Args:
        rankings: of one query, best first.
        weights: one a ranking.
        rrf_k: see :class:`HybridRetriever`.
    """
    documents: dict[str, Document] = {}
    scores: dict[str, float] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        seen: set[str] = set()
        for rank, document in enumerate(ranking, start=1):
            if document.id in seen:
                continue
            seen.add(document.id)
            documents.setdefault(document.id, document)
            scores[document.id] = scores.get(document.id, 0.0) + weight / (rrf_k + rank)
    # Sorting is stable, and the dictionary is in the order in which documents were first listed.
    best = sorted(documents.values(), key=lambda document: -scores[document.id])
    return [
        Document(document.id, document.title, document.text, scores[document.id])
        for document in best
    ]

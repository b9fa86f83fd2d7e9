"""Exact nearest neighbours: every vector is compared with every query, by FAISS."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ssp_env.search.dense.vectors import VectorFile, Vectors, faiss
from ssp_env.search.index.workplace import Progress

Ranking: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Scores, falling, and the positions that they belong to; equal scores by position."""

_SPARE = 16
"""Candidates beyond ``k`` that are looked at, so that equal scores at the cut can be told by
position."""
_MOST_SPARE = 4096
"""How far the search goes for that."""
_ROUNDING = 1e-5
"""More than two float32 sums of the same products can differ by."""
_EMPTY: Ranking = (np.zeros(0), np.zeros(0, np.int64))


class FlatNeighbours:
    """Exact search among vectors, by inner product:
    :class:`~ssp_env.search.dense.neighbours.Neighbours`."""

    def __init__(self, vectors: Vectors) -> None:
        """
        Args:
            vectors: shape ``(n, dimension)``, of unit length; may be memory-mapped.
        """
        self._vectors = vectors

    def search(self, queries: Vectors, k: int) -> list[Ranking]:
        """The ``k`` nearest of each query. Scores are computed again in double precision for what
        comes near the top.

        FAISS's own scores differ in the last bits with the number of queries. Only where more than
        4,096 vectors are as near as the ``k``-th is it left open which of them are returned."""
        count = len(self._vectors)
        k = min(k, count)
        taken = min(count, k + _SPARE)
        rankings: list[Ranking] = [_EMPTY] * len(queries)
        pending = np.arange(len(queries))
        while len(pending):
            scores, positions = faiss().knn(
                queries[pending], self._vectors, taken, metric=faiss().METRIC_INNER_PRODUCT
            )
            clear = scores[:, -1] < scores[:, k - 1] - _ROUNDING
            if taken == count or taken >= k + _MOST_SPARE:
                clear[:] = True
            for row in np.flatnonzero(clear):
                rankings[pending[row]] = self._ranking(
                    queries[pending[row]], np.sort(positions[row]), k
                )
            pending = pending[~clear]
            taken = min(count, k + 8 * (taken - k + 1), k + _MOST_SPARE)
        return rankings

    def _ranking(self, query: Vectors, positions: NDArray[np.int64], k: int) -> Ranking:
        scores = (self._vectors[positions].astype(np.float64) * query).sum(axis=1)
        order = np.argsort(-scores, kind="stable")[:k]
        return scores[order], positions[order]


def search_file(vectors: VectorFile, queries: Vectors, k: int, progress: Progress) -> list[Ranking]:
    """The ``k`` nearest of each query among the vectors of a file, of which one shard is in memory
    at a time."""
    best: list[Ranking] = [_EMPTY] * len(queries)
    for first, shard in vectors.shards():
        for row, (scores, positions) in enumerate(FlatNeighbours(shard).search(queries, k)):
            known, places = best[row]
            scores, places = (
                np.concatenate([known, scores]),
                np.concatenate([places, first + positions]),
            )
            order = np.argsort(-scores, kind="stable")[:k]
            best[row] = scores[order], places[order]
        progress("finding exact neighbours", first + len(shard), vectors.count)
    return best

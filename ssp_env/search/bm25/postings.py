"""Posting lists of an inverted index, in memory or memory-mapped, and the exact top k over them.

The score of a passage is the float32 sum, in the query's order of words, of the words' scores in
it. Two ways lead to the same numbers: a small index is summed up whole, a large one looks only
where the best passages can be (MaxScore)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WHOLE = 300_000
"""Up to so many passages, a query is scored for all of them."""
COLUMN_BYTES = 64 << 20
"""What frequent words may take, written out as columns; those come first that are asked for
first."""
_COLUMN_SHARE = 16
"""A word is frequent where one passage in so many has it."""
_CHEAP = 2048
"""Lists up to this length, or up to that of those before them, are summed up though the top k could
do without."""
_SPARSE = 16
"""Where fewer than one passage in so many is in a list, these are looked at one by one, else all
together."""
_FEW = 8
"""Times k: with so few candidates left, their exact scores are taken at once."""


@dataclass(frozen=True, slots=True)
class Arrays:
    """What an inverted index is made of: a compressed sparse column matrix, a column a word."""

    starts: NDArray[np.int64]
    """(words + 1): where the list of each word begins."""
    passages: NDArray[np.int32]
    """(postings): the passages of each list, rising."""
    scores: NDArray[np.float32]
    """(postings): the word's score in that passage, above 0."""
    peaks: NDArray[np.float32]
    """(words): the highest score of each list."""


class _Sparse:
    """The list of a word."""

    def __init__(self, passages: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        self.passages, self.scores = passages, scores
        self.cost = len(passages)

    def add_to(self, sums: NDArray[np.float32]) -> None:
        """Adds the word's scores to those of all passages."""
        np.add.at(sums, self.passages, self.scores)

    def of(self, candidates: NDArray[np.int32]) -> NDArray[np.float32]:
        """The word's scores in some passages; 0 for those that are not in the list."""
        at = self.passages.searchsorted(candidates)
        there = self.passages.take(at, mode="clip") == candidates
        found: NDArray[np.float32] = self.scores.take(at, mode="clip") * there
        return found


class _Column(_Sparse):
    """The list of a frequent word, written out: a score for each passage. Adding zeros changes no
    sum."""

    def __init__(
        self, passages: NDArray[np.int32], scores: NDArray[np.float32], column: NDArray[np.float32]
    ) -> None:
        super().__init__(passages, scores)
        self._column = column
        self.cost = len(column) // _COLUMN_SHARE

    def add_to(self, sums: NDArray[np.float32]) -> None:
        np.add(sums, self._column, out=sums)

    def of(self, candidates: NDArray[np.int32]) -> NDArray[np.float32]:
        return self._column[candidates]


class Postings:
    """Ranks passages by posting lists. May be shared between threads."""

    def __init__(self, arrays: Arrays, passages: int) -> None:
        """
        Args:
            arrays: the lists; memory-mapped ones are read where a query needs them.
            passages: how many passages there are.
        """
        self._arrays = arrays
        self._count = passages
        self._columns: dict[int, NDArray[np.float32]] = {}
        self._scratch: list[NDArray[np.float32]] = []

    def __getstate__(self) -> tuple[Arrays, int]:
        return self._arrays, self._count

    def __setstate__(self, state: tuple[Arrays, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def best(self, words: Sequence[int], k: int) -> tuple[list[int], list[float]]:
        """Positions and scores of the ``k`` best passages, best first, equal scores by position.

        Args:
            words: indices of distinct words, in the query's order.
            k: at least 1; fewer are returned where fewer passages have any of the words.
        """
        if not words:
            return [], []
        lists = [self._list(word) for word in words]
        if self._count <= WHOLE:
            return self._best_of_all(lists, k)
        # Only what is put back is used again: after an exception it could hold remains.
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = np.zeros(self._count, np.float32)
        candidates = self._candidates(words, lists, k, scratch)
        self._scratch.append(scratch)
        scores = np.zeros(len(candidates), np.float32)
        for list_ in lists:
            scores += list_.of(candidates)
        return _top(candidates, scores, k)

    def _best_of_all(self, lists: list[_Sparse], k: int) -> tuple[list[int], list[float]]:
        totals = np.zeros(self._count, np.float32)
        for list_ in lists:
            list_.add_to(totals)
        probe = _shortest(lists, k)
        # The k-th best of any k passages or more is no better than the k-th best of all.
        candidates = np.flatnonzero(
            totals > 0 if probe is None else totals >= _kth(totals[probe], k)
        )
        return _top(candidates, totals[candidates], k)

    def _list(self, word: int) -> _Sparse:
        begin, end = int(self._arrays.starts[word]), int(self._arrays.starts[word + 1])
        passages, scores = self._arrays.passages[begin:end], self._arrays.scores[begin:end]
        if len(passages) * _COLUMN_SHARE < self._count:
            return _Sparse(passages, scores)
        column = self._columns.get(word)
        if column is None:
            if (len(self._columns) + 1) * self._count * 4 > COLUMN_BYTES:
                return _Sparse(passages, scores)
            column = np.zeros(self._count, np.float32)
            column[passages] = scores
            self._columns[word] = column
        return _Column(passages, scores, column)

    def _candidates(
        self, words: Sequence[int], lists: list[_Sparse], k: int, scratch: NDArray[np.float32]
    ) -> NDArray[np.int32]:
        """Passages, rising, among which the top k are: all others score less than the k-th best.

        Lists are summed up from the word with the highest peak downwards, until passages that are
        in none of them cannot reach the k-th best sum so far (``floor``). Then the sums of those
        that are in one are completed, list by list, and what the rest cannot lift to the k-th best
        is dropped.

        Args:
            words: as for :meth:`best`.
            lists: their posting lists.
            k: how many are wanted.
            scratch: zeros, one a passage; zeros again on return.
        """
        peaks = self._arrays.peaks[list(words)].astype(np.float64)
        order = np.argsort(-peaks, kind="stable").tolist()
        # Sums in another order differ by rounding; the margin is several times that.
        margin = 1 - 1e-6 * (len(words) + 1)
        rest = total = float(peaks.sum())
        floor, summed, touched = 0.0, 0, 0
        probe = _shortest(lists, k)
        for index in order:
            if floor > rest and lists[index].cost > max(_CHEAP, touched):
                break
            lists[index].add_to(scratch)
            summed += 1
            touched += len(lists[index].passages)
            rest = max(0.0, rest - float(peaks[index]))
            if 2 * rest < total and probe is not None:
                floor = max(floor, margin * float(_kth(scratch[probe], k)))
        candidates = _not_below(
            scratch, floor - rest, [lists[index].passages for index in order[:summed]], touched
        )
        sums = scratch[candidates].astype(np.float64)
        if touched < self._count // _SPARSE:
            for index in order[:summed]:
                scratch[lists[index].passages] = 0
        else:
            scratch.fill(0)
        for index in order[summed:]:
            if len(candidates) > _FEW * k:
                kept = sums >= margin * float(_kth(sums, k)) - rest
                candidates, sums = candidates[kept], sums[kept]
            if len(candidates) <= _FEW * k:
                break
            sums += lists[index].of(candidates)
            rest = max(0.0, rest - float(peaks[index]))
        return candidates


def _not_below(
    sums: NDArray[np.float32], bound: float, lists: list[NDArray[np.int32]], touched: int
) -> NDArray[np.int32]:
    """Passages of some lists, rising, whose sums are not below a bound; all other sums are 0.

    Args:
        sums: one a passage.
        bound: may be below 0.
        lists: the passages.
        touched: length of all lists together.
    """
    if touched < len(sums) // _SPARSE:
        passages = np.concatenate(lists)
        passages = passages[sums[passages] >= bound]
        passages.sort()
        return _distinct(passages)
    enough = sums >= bound if bound > 0 else sums > 0
    everywhere: NDArray[np.int32] = np.flatnonzero(enough).astype(np.int32)
    return everywhere


def _distinct(passages: NDArray[np.int32]) -> NDArray[np.int32]:
    first: NDArray[np.int32] = passages[np.diff(passages, prepend=-1) != 0]
    return first


def _shortest(lists: list[_Sparse], k: int) -> NDArray[np.int32] | None:
    """The passages of the shortest list that has ``k`` of them."""
    return min(
        (list_.passages for list_ in lists if len(list_.passages) >= k), key=len, default=None
    )


def _kth(values: NDArray[np.floating], k: int) -> np.floating:
    """The ``k``-th highest of at least ``k`` values."""
    at = len(values) - k
    kth: np.floating = np.partition(values, at)[at]
    return kth


def _top(
    candidates: NDArray[np.integer], scores: NDArray[np.float32], k: int
) -> tuple[list[int], list[float]]:
    """The ``k`` best candidates, which come rising, equal scores by position; and their scores."""
    order = np.argsort(-scores, kind="stable")[:k]
    return candidates[order].tolist(), scores[order].tolist()

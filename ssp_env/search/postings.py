"""Posting lists of an inverted index, in memory or memory-mapped, and the exact top k over them.

The score of a passage is the float32 sum, in the query's order of words, of the words' scores in it. Two ways lead to
the same numbers: a small index is summed up whole, a large one looks only where the best passages can be (MaxScore).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WHOLE = 150_000
"""Up to so many passages, a query is scored for all of them."""
COLUMN_BYTES = 64 << 20
"""What the frequent words of a small index may take, written out as columns."""
_COLUMN_SHARE = 16
"""A word is frequent where one passage in so many has it."""
_CHEAP = 2048
"""Lists up to this length are summed up even where the top k can do without them."""
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
        lists = self._lists(words)
        if self._count <= WHOLE:
            return self._best_of_all(words, lists, k)
        # Only what is put back is used again: after an exception it could hold remains.
        scratch = self._scratch.pop() if self._scratch else np.zeros(self._count, np.float32)
        candidates = self._candidates(words, lists, k, scratch)
        self._scratch.append(scratch)
        scores = np.zeros(len(candidates), np.float32)
        for list_ in lists:
            scores += _look_up(list_, candidates)
        return _top(candidates, scores, k)

    def _lists(self, words: Sequence[int]) -> list[_List]:
        a = self._arrays
        bounds = [(int(a.starts[word]), int(a.starts[word + 1])) for word in words]
        return [(a.passages[begin:end], a.scores[begin:end]) for begin, end in bounds]

    def _best_of_all(self, words: Sequence[int], lists: list[_List], k: int) -> tuple[list[int], list[float]]:
        totals = np.zeros(self._count, np.float32)
        shortest = None
        for word, (passages, scores) in zip(words, lists, strict=True):
            column = self._column(word, passages, scores)
            if column is not None:
                totals += column  # adding zeros changes no sum
            else:
                np.add.at(totals, passages, scores)
            if len(passages) >= k and (shortest is None or len(passages) < len(shortest)):
                shortest = passages
        # The k-th best of any k passages or more is no better than the k-th best of all.
        enough = totals > 0 if shortest is None else totals >= _kth(totals[shortest], k)
        candidates = np.flatnonzero(enough)
        return _top(candidates, totals[candidates], k)

    def _column(
        self, word: int, passages: NDArray[np.int32], scores: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """The scores of a frequent word for all passages; ``None`` for a rare word, or where there is no room."""
        column = self._columns.get(word)
        if column is None and len(passages) * _COLUMN_SHARE > self._count:
            if (len(self._columns) + 1) * self._count * 4 > COLUMN_BYTES:
                return None
            column = np.zeros(self._count, np.float32)
            column[passages] = scores
            self._columns[word] = column
        return column

    def _candidates(
        self, words: Sequence[int], lists: list[_List], k: int, scratch: NDArray[np.float32]
    ) -> NDArray[np.int32]:
        """Passages, rising, among which the top k are: all others score less than the k-th best.

        Lists are summed up from the word with the highest peak downwards, until passages that are in none of them
        cannot reach the k-th best sum so far (``floor``). Then sums that the rest cannot lift to it are dropped.

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
        floor, summed = 0.0, 0
        for index in order:
            passages, scores = lists[index]
            if floor > rest and len(passages) > _CHEAP:
                break
            np.add.at(scratch, passages, scores)
            summed += 1
            rest = max(0.0, rest - float(peaks[index]))
            if 2 * rest < total and len(passages) >= k:
                floor = max(floor, margin * float(_kth(scratch[passages], k)))
        touched = np.concatenate([lists[index][0] for index in order[:summed]])
        sums = scratch[touched]
        scratch[touched] = 0
        touched = touched[sums >= floor - rest]
        touched.sort()
        candidates = touched[np.diff(touched, prepend=-1) != 0]
        return self._thin_out(candidates, [lists[index] for index in order], peaks[order], summed, k, margin)

    def _thin_out(
        self,
        candidates: NDArray[np.int32],
        lists: list[_List],
        peaks: NDArray[np.float64],
        summed: int,
        k: int,
        margin: float,
    ) -> NDArray[np.int32]:
        """Drops candidates that cannot reach the k-th best sum; takes in one list at a time while there are many."""
        if len(candidates) <= _FEW * k:
            return candidates
        sums = np.zeros(len(candidates))
        for list_ in lists[:summed]:
            sums += _look_up(list_, candidates)
        for index in range(summed, len(lists) + 1):
            kept = sums >= margin * float(_kth(sums, k)) - float(peaks[index:].sum())
            candidates, sums = candidates[kept], sums[kept]
            if len(candidates) <= _FEW * k or index == len(lists):
                break
            sums += _look_up(lists[index], candidates)
        return candidates


_List = tuple[NDArray[np.int32], NDArray[np.float32]]


def _look_up(list_: _List, candidates: NDArray[np.int32]) -> NDArray[np.float32]:
    """The scores that a list gives to each of some passages; 0 for those that are not in it."""
    passages, scores = list_
    at = passages.searchsorted(candidates)
    found: NDArray[np.float32] = scores.take(at, mode="clip") * (passages.take(at, mode="clip") == candidates)
    return found


def _kth(values: NDArray[np.floating], k: int) -> np.floating:
    """The ``k``-th highest of at least ``k`` values."""
    at = len(values) - k
    kth: np.floating = np.partition(values, at)[at]
    return kth


def _top(candidates: NDArray[np.integer], scores: NDArray[np.float32], k: int) -> tuple[list[int], list[float]]:
    """The ``k`` best candidates, which come rising, equal scores by position; and their scores."""
    order = np.argsort(-scores, kind="stable")[:k]
    return candidates[order].tolist(), scores[order].tolist()

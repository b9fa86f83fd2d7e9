"""BM25 in memory: postings of every word, of which a query reads no more than its best need.

Scores are Lucene's: ``sum over words of idf * tf / (tf + k1 * (1 - b + b * length / average))``
with ``idf = ln(1 + (n - df + 1/2) / (df + 1/2))``, where a length above 40 words is rounded down to
what Lucene keeps of it in a byte. Each word's part is kept as float32, and parts are added up in
the order of the query's words, so a score does not depend on how it was found."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ssp_env.search.base import passage_text
from ssp_env.search.words import query_words, tokenize
from ssp_env.types import Document

Ranking = list[tuple[int, float]]
"""Positions of passages, best first, and their scores."""

K1, B = 1.2, 0.75
"""Lucene's values of the formula's two constants, which an index on disk has."""
TRAINED_K1 = 1.5
"""k1 of the rankings on which the policies that ship were trained."""

_BLOCK = 2**15
"""Passages whose words are counted at a time."""
_EXACT = 24
"""Lucene keeps this number of a length and the first four bits of the rest."""
_FREQUENT = 1 / 8
"""Share of the passages from which on a word's parts are kept as a column, of one for each."""
_FEW = 2**16
"""Parts that are added up without looking for what may be left out."""
# Slices of all scores, at least, whose maxima are looked at in place of every score.
_SLICES = 2**10
# The least score of a passage that has a word of the query: others have 0.
_LEAST = float(np.finfo(np.float32).tiny)


class _Words(NamedTuple):
    """The distinct words of a block of passages, ordered by word, then by passage."""

    words: NDArray[np.int32]
    passages: NDArray[np.int32]
    counts: NDArray[np.int32]


class BM25Index:
    """An index in memory over title and text of passages, about two seconds for 27,000.

    Equal scores are ordered by position."""

    def __init__(self, passages: Iterable[Document], k1: float = K1, b: float = B) -> None:
        self.k1, self.b = k1, b
        self._numbers: dict[str, int] = {}
        blocks, lengths = self._read(passages)
        size = len(self._numbers)
        # df of each word: a block has a word once for each passage that it is in.
        frequencies = sum(
            (np.bincount(block.words, minlength=size) for block in blocks),
            start=np.zeros(size, np.int64),
        )
        # The postings of word i are those from starts[i] up to starts[i + 1]: of each, the passage
        # and the word's part of its score.
        self._starts = np.concatenate([[0], np.cumsum(frequencies)])
        self._passages = np.empty(self._starts[-1], np.int32)
        self._parts = np.empty(self._starts[-1], np.float32)
        self._count = len(lengths)

        # The 1 within keeps idf above 0, also of a word that most passages have.
        idf = [log(1 + (self._count - df + 0.5) / (df + 0.5)) for df in frequencies.tolist()]
        average = lengths.mean() if size else 1.0
        # norm(d) = k1 (1 - b + b length(d) / average), so that a part is idf tf / (tf + norm).
        norms = k1 * ((1 - b) + b * kept_lengths(lengths) / average)
        self._fill(blocks, np.array(idf, np.float32), norms)
        # What it takes to add a word's parts up, and the most that it can add to a score.
        self._costs = np.minimum(frequencies, int(_FREQUENT * self._count)).tolist()
        # Every word has a posting: reduceat would take the next word's for one that has none.
        every = self._starts[:-1]
        self._most = np.maximum.reduceat(self._parts, every) if size else self._parts
        # A frequent word's parts as float32 (passages,), 0 where it does not occur.
        self._columns: dict[int, NDArray[np.float32]] = {}
        for number in np.flatnonzero(frequencies > _FREQUENT * self._count).tolist():
            self._columns[number] = column = np.zeros(self._count, np.float32)
            begin, end = self._starts[number], self._starts[number + 1]
            column[self._passages[begin:end]] = self._parts[begin:end]

    def _read(self, passages: Iterable[Document]) -> tuple[list[_Words], NDArray[np.int64]]:
        """Numbers the words of all passages; returns their counts, and the passages' lengths."""
        number, ids, lengths = self._numbers, array("i"), array("q")
        blocks: list[_Words] = []
        for passage in passages:
            words = tokenize(passage_text(passage))
            ids.extend([number.setdefault(word, len(number)) for word in words])
            lengths.append(len(words))
            if len(lengths) % _BLOCK == 0:
                blocks.append(_counted(ids, lengths[-_BLOCK:], len(lengths) - _BLOCK))
                ids = array("i")
        if rest := len(lengths) % _BLOCK:
            blocks.append(_counted(ids, lengths[-rest:], len(lengths) - rest))
        return blocks, np.array(lengths, np.int64)

    def _fill(
        self, blocks: list[_Words], idf: NDArray[np.float32], norms: NDArray[np.float64]
    ) -> None:
        """Puts the blocks' words behind one another, word by word; empties ``blocks``."""
        # heads[word]: where the next block's postings of a word begin. A block is ordered by word,
        # so a row stands as far behind the head as behind the first row of its word.
        heads = self._starts[:-1].copy()
        for words, passages, counts in iter(lambda: blocks.pop(0) if blocks else None, None):
            per_word = np.bincount(words, minlength=len(heads))
            begins = np.cumsum(per_word) - per_word
            places = heads[words] + np.arange(len(words)) - begins[words]
            frequencies = counts.astype(np.float32)
            self._passages[places] = passages
            self._parts[places] = idf[words] * (frequencies / (norms[passages] + frequencies))
            heads += per_word

    def describe(self) -> dict[str, Any]:
        """The constants of the formula, where they are not those of the mini world."""
        weights = (self.k1, self.b)
        return {} if weights == (TRAINED_K1, B) else dict(zip(("k1", "b"), weights, strict=True))

    def best(self, query: str, k: int) -> Ranking:
        """The ``k`` best passages; those without any word of the query are left out."""
        # Without any known word, all scores are 0, and nothing is found.
        numbers = [self._numbers[word] for word in query_words(query) if word in self._numbers]
        # Where there is little to add up, bounds would cost more than they save.
        if sum([self._costs[number] for number in numbers]) <= _FEW:
            scores = np.zeros(self._count, np.float32)
            for number in numbers:
                self._add(number, scores)
            # What is below the k-th best need not be sorted.
            least = _reached(scores, k) if self._count > _SLICES else _LEAST
            places = np.flatnonzero(scores >= least)
            scores = scores[places]
        else:
            places = self._may_be_best(numbers, k)
            scores = np.zeros(len(places), np.float32)
            for number in numbers:
                scores += self._parts_of(number, places)
        order = np.argsort(-scores, kind="stable")[:k]
        return list(zip(places[order].tolist(), scores[order].tolist(), strict=True))

    def _may_be_best(self, numbers: Sequence[int], k: int) -> NDArray[np.int64]:
        """Positions, in order, of all passages that may be among the ``k`` best, and few others.

        Words that can add most are read first, until ``k`` passages have more than all other words
        together can add. From there on a passage with none of the words read is out, and the other
        words are looked up for those alone that are in (Turtle and Flood's MaxScore)."""
        order = sorted(numbers, key=lambda number: -self._most[number])
        # Sums in another order differ in their last bits.
        more = 1 + 1e-6 * (1 + len(order))
        # left[i]: the most that the words from the i-th on can add to a score together.
        left = np.cumsum([0.0, *self._most[order[::-1]]])[::-1] * more

        scores = np.zeros(self._count, np.float32)
        enough, read = 0.0, 0
        # Until a passage without any of the words read can no longer be among the best.
        while read < len(order) and left[read] >= enough:
            changed = self._add(order[read], scores)
            read += 1
            # What is read adds up to left[0] - left[read] at most: before, no score can be enough.
            if left[read] < left[0] - left[read]:
                enough = max(enough, _reached(changed, k))

        # Those that can reach enough if all other words add their most.
        places = np.flatnonzero(scores * more >= max(enough - left[read], _LEAST))
        totals = scores[places]
        for at in range(read, len(order)):
            totals = totals + self._parts_of(order[at], places)
            enough = max(enough, _reached(totals, k))
            # Again, by the words that are left.
            kept = totals * more + left[at + 1] >= enough
            places, totals = places[kept], totals[kept]
        return places

    def _add(self, number: int, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Adds a word's part to the scores of all passages; returns those that it changed, or, of a
        frequent word, all."""
        if (column := self._columns.get(number)) is not None:
            scores += column
            return scores
        begin, end = self._starts[number], self._starts[number + 1]
        holding = self._passages[begin:end]
        changed = scores[holding] + self._parts[begin:end]
        # A passage occurs once among a word's postings, so no sum takes another one's place.
        scores[holding] = changed
        return changed

    def _parts_of(self, number: int, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """What a word adds to the scores of passages, which are in order."""
        if (column := self._columns.get(number)) is not None:
            return column[places]
        begin, end = self._starts[number], self._starts[number + 1]
        holding = self._passages[begin:end]
        # A position behind the last posting is compared with that one, and differs.
        at = np.minimum(np.searchsorted(holding, places), len(holding) - 1)
        return np.where(holding[at] == places, self._parts[begin:end][at], np.float32(0))


def kept_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths as Lucene's index keeps them (``SmallFloat.intToByte4``).

    >>> kept_lengths(np.array([40, 41, 100, 1000])).tolist()
    [40, 40, 96, 984]
    """
    above = np.maximum(lengths - _EXACT, 0)
    # frexp gives the number of bits, of which the first four stay.
    dropped = np.maximum(np.frexp(above)[1] - 4, 0)
    kept: NDArray[np.int64] = np.minimum(lengths, _EXACT) + (above >> dropped << dropped)
    return kept


def _counted(ids: array[int], lengths: array[int], first: int) -> _Words:
    """The distinct words of passages that follow one another, the ``first`` on."""
    passages = np.repeat(np.arange(len(lengths)), lengths)
    # One number for word and passage: sorted by word, then by passage, and equal ones are the
    # occurrences of one word in one passage.
    keys = np.array(ids, np.int64) * _BLOCK + passages
    keys, counts = np.unique(keys, return_counts=True)
    words, places = (keys // _BLOCK).astype(np.int32), (keys % _BLOCK + first).astype(np.int32)
    return _Words(words, places, counts.astype(np.int32))


def _reached(scores: NDArray[np.float32], k: int) -> float:
    """A score above 0 that at least ``k`` of the scores above 0 reach, if there are as many.

    It is the k-th best of the maxima of slices, which is a little less than that of all."""
    # Slices share no passage, so k maxima are scores of k passages: the k-th best of all is no less
    # than the least of them.
    width = len(scores) // max(_SLICES, 16 * k)
    if width > 1:
        scores = scores[: len(scores) // width * width].reshape(width, -1).max(axis=0)
    if len(scores) < k:
        return _LEAST
    return max(_LEAST, float(np.partition(scores, len(scores) - k)[len(scores) - k]))

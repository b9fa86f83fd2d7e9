"""The inverted index of BM25: made and scored by the library bm25s, in memory or memory-mapped.

On disk it is a folder of four arrays and a manifest. All but the first are bm25s's own, under the
names that it gives them: a sparse matrix with one column per word.

========================= ======================================================================
``words.npy``             uint64 (w), rising: 8-byte BLAKE2b of each word; its row is its column
``indptr.csc.index.npy``  int64 (w + 1): where the column of each word begins
``indices.csc.index.npy`` int32 (postings): the passages of each column, rising
``data.csc.index.npy``    float32 (postings): the word's score in that passage
========================= ======================================================================

Words are known by their hash alone. Among ten million words, two share one with a probability of
three in a million."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.index.arrays import hash_text, load_array
from ssp_env.search.index.manifest import read_manifest
from ssp_env.types import Document, Passages

KIND = "bm25"
K1, B = 1.5, 0.75
PARAMETERS = {"k1": K1, "b": B, "method": "lucene", "tokens": r"lower-case \w+"}
"""What an index on disk must have been built with."""
WORDS = "words.npy"
COLUMNS, PASSAGES, SCORES = (f"{name}.csc.index.npy" for name in ("indptr", "indices", "data"))
_WORD = re.compile(r"\w+")


def tokenize(text: str) -> list[str]:
    """Splits a text into lower-case runs of Unicode word characters.

    No stop word is removed and nothing is stemmed. On wiki-mini's seven benchmarks, bm25s's English
    stop words move the share of questions with an answer in the top 3 by at most two points either
    way, and they would make a query such as "The Who" match nothing. Their only gain is speed."""
    return _WORD.findall(text.lower())


def words_of(document: Document) -> list[str]:
    """The words that a passage is found by: its title's and its text's."""
    return tokenize(f"{document.title}\n{document.text}")


class BM25Index:
    """Which passages of a corpus hold which words; :meth:`of` and :meth:`open` make one."""

    def __init__(
        self, words: dict[str, int] | NDArray[np.uint64], scores: Any, origin: Path | None = None
    ) -> None:
        self._words = words
        self._scores = scores
        self._origin = origin

    @classmethod
    def of(cls, corpus: Passages) -> BM25Index:
        """Builds the index of a corpus in memory: about two seconds for 27,000 passages."""
        vocabulary: dict[str, int] = {}
        ids = [
            [vocabulary.setdefault(word, len(vocabulary)) for word in words_of(document)]
            for document in corpus
        ]
        index = _bm25s()
        # bm25s cannot index a corpus without a single word; such a corpus answers nothing.
        if vocabulary:
            index.index((ids, vocabulary), create_empty_token=False, show_progress=False)
        return cls(vocabulary, index)

    @classmethod
    def open(cls, folder: str | Path, corpus: str) -> BM25Index:
        """Opens the index of the passages with this digest; it is mapped, not read.

        Raises:
            DataError: not such an index, half built, cut, or of another corpus.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, KIND, corpus=corpus)
        if manifest.parameters != PARAMETERS:
            what = f"was built with {manifest.parameters}, not {PARAMETERS}; build it again"
            raise DataError(folder, what)

        words = load_array(folder / WORDS, np.uint64)
        columns = load_array(folder / COLUMNS, np.int64, rows=len(words) + 1)
        count = int(columns[-1])
        index = _bm25s()
        index.scores = {
            "indptr": columns,
            "indices": load_array(folder / PASSAGES, np.int32, rows=count),
            "data": load_array(folder / SCORES, np.float32, rows=count),
            "num_docs": manifest.passages,
        }
        return cls(words, index, folder)

    def find(self, words: Iterable[str]) -> list[int]:
        """Columns of the words that occur in the corpus, in the order given."""
        if isinstance(self._words, dict):
            return [self._words[word] for word in words if word in self._words]

        keys = np.array([hash_text(word) for word in words], np.uint64)
        if not len(keys) or not len(self._words):
            return []
        at = np.searchsorted(self._words, keys)
        found: list[int] = at[self._words.take(at, mode="clip") == keys].tolist()
        return found

    def best(self, words: Sequence[int], k: int) -> tuple[list[int], list[float]]:
        """Positions and scores of the ``k`` best passages, best first, equal scores by position.

        ``words`` are columns of distinct words, in the query's order, in which scores are added.

        Raises:
            DataError: a column names a passage that is not there: the index is corrupt.
        """
        if not words:
            return [], []
        try:
            scores = self._scores.get_scores_from_ids(words)
            candidates = np.flatnonzero(scores >= self._floor(scores, words, k))
        except IndexError:
            what = "is corrupt: it names passages that are not there; build it again"
            raise DataError(self._origin, what) from None

        best = scores[candidates]
        order = np.argsort(-best, kind="stable")[:k]
        return candidates[order].tolist(), best[order].tolist()

    def _floor(self, scores: NDArray[np.float32], words: Sequence[int], k: int) -> np.floating:
        """A score that the ``k``-th best passage reaches, above 0.

        It is the ``k``-th best among the passages of one word, the rarest that has enough of them:
        that is sooner found than the ``k``-th best of all, and no higher."""
        columns, passages = self._scores.scores["indptr"], self._scores.scores["indices"]
        spans = [(int(columns[word]), int(columns[word + 1])) for word in words]
        enough = [span for span in spans if span[1] - span[0] >= k]
        if not enough:
            return np.finfo(np.float32).tiny

        begin, end = min(enough, key=lambda span: span[1] - span[0])
        floor: np.floating = np.partition(scores[passages[begin:end]], end - begin - k)[-k]
        return floor

    def __reduce__(self) -> tuple[object, ...]:
        if self._origin is None:
            return type(self), (self._words, self._scores)
        return type(self).open, (self._origin, read_manifest(self._origin).corpus)


def _bm25s() -> Any:
    index = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numpy", csc_backend="numpy")
    index.nonoccurrence_array = None  # which only its own loading would set
    return index

"""BM25 in process: built in memory by the library bm25s, or opened from disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import bm25s
import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import ConfigError, DataError
from ssp_env.search.base import check_request
from ssp_env.search.bm25.postings import Arrays, Postings
from ssp_env.search.cache.lru import LRU
from ssp_env.search.index.manifest import read_manifest
from ssp_env.search.index.store import hash_id
from ssp_env.search.index.workplace import load_array
from ssp_env.types import Document, Passages

if TYPE_CHECKING:
    from ssp_env.types import World

KIND = "bm25"
K1, B = 1.5, 0.75
PARAMETERS = {"k1": K1, "b": B, "method": "lucene", "tokens": r"lower-case \w+"}
"""What an index on disk must have been built with."""
WORDS, STARTS, PASSAGES, SCORES, PEAKS = (
    "words.npy",
    "starts.npy",
    "passages.npy",
    "scores.npy",
    "peaks.npy",
)
_WORD = re.compile(r"\w+")


def tokenize(text: str) -> list[str]:
    """Splits a text into lower-case runs of Unicode word characters; anything else separates them.

    No stop word is removed and nothing is stemmed. On wiki-mini's seven benchmarks, bm25s's English
    stop words move the share of questions with an answer in the top 3 by at most two points either
    way, and they would make a query such as "The Who" match nothing. Their only gain is speed."""
    return _WORD.findall(text.lower())


def words_of(document: Document) -> list[str]:
    """The words that a passage is found by: its title's and its text's."""
    return tokenize(f"{document.title}\n{document.text}")


class BM25Index:
    """What a corpus's words are and which passages hold them; :meth:`of` and :meth:`open` make
    one."""

    def __init__(
        self, words: dict[str, int] | NDArray[np.uint64], postings: Postings, origin: Path | None
    ) -> None:
        self._words = words
        self._postings = postings
        self._origin = origin

    @classmethod
    def of(cls, corpus: Passages) -> BM25Index:
        """Builds the index of a corpus in memory: about two seconds for 27,000 passages."""
        vocabulary: dict[str, int] = {}
        ids = [
            [vocabulary.setdefault(word, len(vocabulary)) for word in words_of(document)]
            for document in corpus
        ]
        # bm25s cannot index a corpus without a single word; such a corpus answers nothing.
        if not vocabulary:
            none = Arrays(
                np.zeros(1, np.int64),
                np.zeros(0, np.int32),
                np.zeros(0, np.float32),
                np.zeros(0, np.float32),
            )
            return cls(vocabulary, Postings(none, len(corpus)), None)
        index = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numpy", csc_backend="numpy")
        index.index((ids, vocabulary), create_empty_token=False, show_progress=False)
        starts, passages, scores = (index.scores[name] for name in ("indptr", "indices", "data"))
        peaks = np.maximum.reduceat(scores, starts[:-1])
        return cls(vocabulary, Postings(Arrays(starts, passages, scores, peaks), len(corpus)), None)

    @classmethod
    def open(cls, folder: str | Path, corpus: str, *, check: bool = False) -> BM25Index:
        """Opens an index on disk (see :mod:`ssp_env.search.bm25.build`); it is mapped, not read.

        Args:
            folder: where it is.
            corpus: digest of the passages that it must belong to.
            check: compares every byte with the manifest, not only sizes.

        Raises:
            DataError: not such an index, half built, cut, corrupt (with ``check``), or of another
                corpus.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, KIND, corpus=corpus, check=check)
        if manifest.parameters != PARAMETERS:
            raise DataError(
                folder, f"was built with {manifest.parameters}, not {PARAMETERS}; build it again"
            )
        words = load_array(folder / WORDS, np.uint64)
        starts = load_array(folder / STARTS, np.int64, rows=len(words) + 1)
        count = int(starts[-1])
        arrays = Arrays(
            starts,
            load_array(folder / PASSAGES, np.int32, rows=count),
            load_array(folder / SCORES, np.float32, rows=count),
            load_array(folder / PEAKS, np.float32, rows=len(words)),
        )
        return cls(words, Postings(arrays, manifest.passages), folder)

    def find(self, words: Iterable[str]) -> list[int]:
        """Indices of the words that occur in the corpus, in the order given."""
        if isinstance(self._words, dict):
            return [self._words[word] for word in words if word in self._words]
        keys = np.array(
            [hash_id(word.encode("utf-8", "surrogatepass")) for word in words], np.uint64
        )
        if not len(keys) or not len(self._words):
            return []
        at = np.searchsorted(self._words, keys)
        found: list[int] = at[self._words.take(at, mode="clip") == keys].tolist()
        return found

    def best(self, words: Sequence[int], k: int) -> tuple[list[int], list[float]]:
        """See :meth:`ssp_env.search.bm25.postings.Postings.best`.

        Raises:
            DataError: the lists name passages that there are not: the index is corrupt.
        """
        try:
            return self._postings.best(words, k)
        except IndexError:
            raise DataError(
                self._origin, "is corrupt: it names passages that there are not; build it again"
            ) from None

    def __reduce__(self) -> tuple[object, ...]:
        if self._origin is None:
            return type(self), (self._words, self._postings, None)
        return type(self).open, (self._origin, read_manifest(self._origin).corpus)


class BM25Retriever:
    """Lucene's BM25 (k1 = 1.5, b = 0.75) over title and text of each passage.

    A word that a query repeats counts once, so repetition buys no rank, and a query of any length
    costs at most one pass over the index. Documents that share no word with the query are never
    returned; equal scores are ordered by position in the corpus. May be shared between threads."""

    def __init__(
        self, corpus: Passages, index: BM25Index | None = None, *, cache_size: int = 100_000
    ) -> None:
        """
        Args:
            corpus: what to search in.
            index: its index, opened from disk; ``None`` builds one in memory.
            cache_size: how many rankings, keyed by query and ``k``, are kept; the least recently
                used goes first. 0 keeps none.

        Raises:
            ConfigError: a negative ``cache_size``.
        """
        if cache_size < 0:
            raise ConfigError(
                "cache_size", cache_size, "give the number of rankings to keep, or 0 for none"
            )
        self.corpus = corpus
        self._cache: LRU[tuple[str, int], tuple[Document, ...]] = LRU(cache_size)
        self._index = BM25Index.of(corpus) if index is None else index

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked documents for each query; see :class:`~ssp_env.search.base.Retriever`.

        Args:
            queries: any strings. One without a word of the corpus gets an empty list.
            k: how many documents a query, at least 1; more than the corpus holds is fine.

        Raises:
            ConfigError: ``k`` is no whole number from 1 up.
            UsageError: ``queries`` is no sequence of strings; one string would be searched letter
                by letter.
        """
        check_request(queries, k)
        rankings: dict[str, tuple[Document, ...]] = {}
        for query in dict.fromkeys(queries):
            ranking = self._cache.get((query, k))
            if ranking is None:
                ranking = self._rank(query, k)
                self._cache.put((query, k), ranking)
            rankings[query] = ranking
        return [list(rankings[query]) for query in queries]

    def knows(self, text: str) -> bool:
        """Whether any word of a text occurs in the corpus; otherwise no search for it finds
        anything."""
        return bool(self._index.find(tokenize(text)))

    def _rank(self, query: str, k: int) -> tuple[Document, ...]:
        words = self._index.find(dict.fromkeys(tokenize(query)))
        ranking = []
        for position, score in zip(*self._index.best(words, k), strict=True):
            document = self.corpus[position]
            ranking.append(Document(document.id, document.title, document.text, score))
        return tuple(ranking)


def retriever_of(world: World) -> BM25Retriever:
    """The retriever that a world has of its own, such as one with a kept index; else a new one over
    its corpus."""
    own: BM25Retriever | None = getattr(world, "retriever", None)
    return own if own is not None else BM25Retriever(world.corpus)

"""BM25 in process, over the library bm25s."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import bm25s
import numpy as np

from ssp_env.errors import ConfigError, UsageError
from ssp_env.search.base import Document
from ssp_env.search.corpus import Corpus

_WORD = re.compile(r"\w+")


def tokenize(text: str) -> list[str]:
    """Splits a text into lower-case runs of Unicode word characters; anything else separates them.

    No stop word is removed and nothing is stemmed. On wiki-mini's seven benchmarks, bm25s's English stop
    words move the share of questions with an answer in the top 3 by at most two points either way, and they
    would make a query such as "The Who" match nothing. Their only gain is speed.
    """
    return _WORD.findall(text.lower())


class BM25Retriever:
    """Lucene's BM25 (k1 = 1.5, b = 0.75) over title and text of each passage.

    A word that a query repeats counts once, so repetition buys no rank, and a query of any length costs at most
    one pass over the index. Documents that share no word with the query are never returned; equal scores
    are ordered by position in the corpus. May be shared between threads.
    """

    def __init__(self, corpus: Corpus, *, cache_size: int = 100_000) -> None:
        """Builds the index: about two seconds for 27,000 passages.

        Args:
            corpus: what to search in.
            cache_size: how many rankings, keyed by query and ``k``, are kept; the least recently used goes
                first. 0 keeps none.

        Raises:
            ConfigError: a negative ``cache_size``.
        """
        if cache_size < 0:
            raise ConfigError("cache_size", cache_size, "give the number of rankings to keep, or 0 for none")
        self.corpus = corpus
        self._cache = _Cache(cache_size)
        self._vocabulary: dict[str, int] = {}
        vocabulary = self._vocabulary
        ids = [
            [vocabulary.setdefault(word, len(vocabulary)) for word in tokenize(f"{document.title}\n{document.text}")]
            for document in corpus
        ]
        self._index = bm25s.BM25(k1=1.5, b=0.75, method="lucene", backend="numpy", csc_backend="numpy")
        # bm25s cannot index a corpus without a single word; such a corpus answers nothing.
        if vocabulary:
            self._index.index((ids, vocabulary), create_empty_token=False, show_progress=False)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked documents for each query; see :class:`~ssp_env.search.base.Retriever`.

        Args:
            queries: any strings. One without a word of the corpus gets an empty list.
            k: how many documents a query, at least 1; more than the corpus holds is fine.

        Raises:
            ConfigError: ``k`` below 1.
            UsageError: ``queries`` is one string, which would be searched letter by letter.
        """
        if k < 1:
            raise ConfigError("k", k, "ask for at least one document")
        if isinstance(queries, str):
            raise UsageError("search takes a sequence of queries, not one string")
        rankings: dict[str, tuple[Document, ...]] = {}
        for query in dict.fromkeys(queries):
            ranking = self._cache.get((query, k))
            if ranking is None:
                ranking = self._rank(query, k)
                self._cache.put((query, k), ranking)
            rankings[query] = ranking
        return [list(rankings[query]) for query in queries]

    def _rank(self, query: str, k: int) -> tuple[Document, ...]:
        words = dict.fromkeys(tokenize(query))
        ids = [self._vocabulary[word] for word in words if word in self._vocabulary]
        if not ids:
            return ()
        scores = self._index.get_scores_from_ids(ids)
        ranking = []
        for position in _best(scores, k):
            document = self.corpus[position]
            ranking.append(Document(document.id, document.title, document.text, float(scores[position])))
        return tuple(ranking)


def _best(scores: np.ndarray, k: int) -> list[int]:
    """Positions of the ``k`` highest positive scores, best first, equal ones by position.

    bm25s's own selection leaves open which of several equal scores makes it into the top ``k``.
    """
    candidates = np.flatnonzero(scores > 0)
    if len(candidates) > k:
        kth = np.partition(scores[candidates], -k)[-k]
        candidates = candidates[scores[candidates] >= kth]
    order = np.argsort(-scores[candidates], kind="stable")
    best: list[int] = candidates[order[:k]].tolist()
    return best


class _Cache:
    """A least-recently-used map from query and ``k`` to a ranking, safe between threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = Lock()
        self._entries: OrderedDict[tuple[str, int], tuple[Document, ...]] = OrderedDict()

    def get(self, key: tuple[str, int]) -> tuple[Document, ...] | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: tuple[str, int], ranking: tuple[Document, ...]) -> None:
        with self._lock:
            self._entries[key] = ranking
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def __getstate__(self) -> dict[str, object]:
        # A retriever may travel to another process; a lock and another process's entries need not.
        return {"_size": self._size}

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__init__(state["_size"])  # type: ignore[misc]

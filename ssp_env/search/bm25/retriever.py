"""BM25 in process: over a corpus in memory, or over an index on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from threading import Lock
from typing import Protocol

from cachetools import LRUCache, cached

from ssp_env.errors import ConfigError
from ssp_env.search.base import check_request
from ssp_env.search.bm25.index import BM25Index, Ranking, tokenize
from ssp_env.types import Document, Passages


class WordIndex(Protocol):
    """Which passages hold which words, in memory or on disk."""

    def knows(self, words: Sequence[str]) -> bool:
        """Whether any of the words occurs in the corpus."""
        ...

    def best(self, words: Sequence[str], k: int) -> Ranking:
        """The ``k`` best passages for distinct words; none that has none of them."""
        ...


class BM25Retriever:
    """Lucene's BM25 over title and text of each passage.

    In memory k1 is 1.5 and b .75; for an index on disk, see :mod:`ssp_env.search.bm25.disk`.

    A word that a query repeats counts once. Documents that share no word with it are never
    returned; in memory, equal scores are ordered by position. May be shared between threads."""

    def __init__(
        self, corpus: Passages, index: WordIndex | None = None, *, cache_size: int = 1_000_000
    ) -> None:
        """
        Args:
            corpus: what to search in.
            index: its index, opened from disk; ``None`` builds one in memory.
            cache_size: how many results (of about 64 bytes) the rankings that are kept, by query
                and ``k``, may take in all; the least recently used goes first. 0 keeps none.
        """
        if cache_size < 0:
            raise ConfigError("cache_size", cache_size, "must be at least 0")
        self.corpus = corpus
        self._index: WordIndex = BM25Index(corpus) if index is None else index
        self.kind = None if index is None else "bm25"
        self._cache_size = cache_size
        # An entry takes as much as four results, whatever a policy searches for: its key is short.
        kept: LRUCache[bytes, Ranking] = LRUCache(cache_size, lambda found: len(found[0]) + 4)
        self._ranked = cached(kept, _key, Lock())(self._rank)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """As in ``Retriever``; a query without a word of the corpus gets an empty list."""
        check_request(queries, k)
        rankings = {query: self._documents(query, k) for query in dict.fromkeys(queries)}
        return [list(rankings[query]) for query in queries]

    def knows(self, text: str) -> bool:
        """Whether any word of a text occurs in the corpus, so that a search finds something."""
        return self._index.knows(tokenize(text))

    def _rank(self, query: str, k: int) -> Ranking:
        return self._index.best(list(dict.fromkeys(tokenize(query))), k)

    def _documents(self, query: str, k: int) -> list[Document]:
        ranking = zip(*self._ranked(query, k), strict=True)
        return [replace(self.corpus[position], score=score) for position, score in ranking]

    def __reduce__(self) -> tuple[object, ...]:
        again = partial(type(self), cache_size=self._cache_size)
        return again, (self.corpus, self._index)


def _key(query: str, k: int) -> bytes:
    return blake2b(f"{k} {query}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

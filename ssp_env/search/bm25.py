"""BM25 over title and text of each passage, in memory or on disk, ranked as Lucene ranks.

In memory, :mod:`~ssp_env.search.postings` adds up arrays. On disk, tantivy finds the best passages
in files that are mapped: over 21 million passages, an index in memory would take tens of gigabytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ssp_env.errors import MissingExtra
from ssp_env.search.base import check_request, passage_text
from ssp_env.search.postings import BM25Index, Ranking
from ssp_env.search.store import track
from ssp_env.search.words import query_words, tokenize
from ssp_env.types import Document, Passages

_MEMORY = 256_000_000
"""Bytes that a build on disk may fill before it writes them out."""
_CACHED = 2**14
"""Rankings that are kept, by query and ``k``."""


def _tantivy() -> Any:
    try:
        return import_module("tantivy")
    except ModuleNotFoundError as error:
        raise MissingExtra("an index on disk (tantivy)", "text") from error


class BM25Retriever:
    """Lucene's BM25, in memory and on disk.

    A word that a query repeats counts once. Documents that share no word with it are never
    returned; in memory, equal scores are ordered by position. May be shared between threads."""

    def __init__(self, corpus: Passages, index: BM25Index | DiskIndex | None = None) -> None:
        """``index`` is one that was opened from disk, or ``BM25Index(corpus, k1, b)``; ``None``
        builds one in memory."""
        self.corpus = corpus
        self._index = BM25Index(corpus) if index is None else index
        # Policies ask the same again and again. A cache of the object, so that it goes with it.
        self._ranked = lru_cache(_CACHED)(self._index.best)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """As in ``Retriever``; a query without a word of the corpus gets an empty list."""
        check_request(queries, k)
        return [
            [replace(self.corpus[place], score=score) for place, score in self._ranked(query, k)]
            for query in queries
        ]

    def describe(self) -> dict[str, Any]:
        return {"corpus": self.corpus.digest(), **self._index.describe()}

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.corpus, self._index)


class DiskIndex:
    """An index on disk, by tantivy, which has Lucene's k1 and b alone."""

    def __init__(self, folder: Path) -> None:
        tantivy = _tantivy()
        self._folder = folder
        # To open an index, tantivy makes a lock file in its folder, which may be read-only.
        with TemporaryDirectory(ignore_cleanup_errors=True) as links:
            for path in folder.iterdir():
                os.symlink(path.absolute(), Path(links) / path.name)
            index = tantivy.Index.open(links)
            index.config_reader(reload_policy="manual")  # without a thread that watches the files
            self._searcher = index.searcher()
        term = partial(tantivy.Query.term_query, index.schema, "words", index_option="freq")
        self._should, self._term = tantivy.Occur.Should, term
        self._any_of = tantivy.Query.boolean_query

    def describe(self) -> dict[str, Any]:
        return {"kind": "bm25"}

    def best(self, query: str, k: int) -> Ranking:
        """The ``k`` best passages; those without any word of the query are left out."""
        if not (words := query_words(query)):
            return []
        asked = self._any_of([(self._should, self._term(word)) for word in words])
        limit = min(k, self._searcher.num_docs)
        hits = self._searcher.search(asked, limit, count=False).hits
        found: Any = self._searcher.fast_field_values("position", [where for _, where in hits])

        # Equal scores by position, as far as tantivy's choice of the best leaves it open.
        scores = (score for score, _ in hits)
        return sorted(zip(found, scores, strict=True), key=lambda hit: (-hit[1], hit[0]))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._folder,)


def build(folder: Path, passages: Passages) -> None:
    """Writes an index on disk, in bounded memory."""
    tantivy = _tantivy()
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    schema.add_integer_field("position", fast=True)
    try:
        index = tantivy.Index(schema.build(), path=str(folder))
        # One thread: several would deal passages out to segments as time has it.
        writer = index.writer(heap_size=_MEMORY, num_threads=1)
        for position, document in enumerate(track(passages, "words", len(passages))):
            words = " ".join(tokenize(passage_text(document)))
            writer.add_document(tantivy.Document(words=words, position=position))
        writer.commit()
        writer.wait_merging_threads()
    except ValueError as error:  # such as a disk that is full
        raise OSError(str(error)) from error

    for path in folder.glob(".*"):  # locks, and what only writers need
        path.unlink()
    # tantivy lets only the user read this one, who may not be the one to search.
    (folder / "meta.json").chmod(0o644)

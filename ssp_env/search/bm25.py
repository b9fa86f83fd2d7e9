"""BM25 over title and text of each passage, in memory or on disk.

Two libraries do the work. bm25s scores every passage that holds a word of the query: exact, and the
faster of the two for corpora in memory. tantivy finds the best passages without scoring all of
them, from files that are mapped: for one query over 21 million passages bm25s would take between
one and three CPU-seconds, and tens of gigabytes of memory to build the index."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ssp_env.search.base import check_request, passage_text
from ssp_env.search.store import track
from ssp_env.types import Document, Passages

# bm25s starts JAX as soon as it is imported, if JAX is installed: each process would take three
# quarters of a GPU's memory, or end if CUDA_VISIBLE_DEVICES hides the GPU. We rank with numpy.
_jax = sys.modules.get("jax")
sys.modules["jax"] = None  # type: ignore[assignment]
import bm25s  # noqa: E402

del sys.modules["jax"]
if _jax is not None:
    sys.modules["jax"] = _jax

Ranking = list[tuple[int, float]]
"""Positions of passages, best first, and their scores."""

_MEMORY = 256_000_000
"""Bytes that a build on disk may fill before it writes them out."""
_CACHED = 2**14
"""Rankings that are kept, by query and ``k``."""
_WORD = re.compile(r"\w+")


def tokenize(text: str) -> list[str]:
    """Splits a text into lower-case runs of Unicode word characters.

    No stop word is removed, as that gains nothing but speed, and nothing is stemmed."""
    return _WORD.findall(text.lower())


class BM25Retriever:
    """Lucene's BM25. In memory k1 is 1.5, on disk 1.2 (tantivy's), which moves a few ranks.

    A word that a query repeats counts once. Documents that share no word with it are never
    returned; in memory, equal scores are ordered by position. May be shared between threads."""

    def __init__(self, corpus: Passages, index: BM25Index | DiskIndex | None = None) -> None:
        """``index`` is one that was opened from disk; ``None`` builds one in memory."""
        self.corpus = corpus
        self._index = BM25Index(corpus) if index is None else index
        self._ranked = lru_cache(_CACHED)(self._rank)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """As in ``Retriever``; a query without a word of the corpus gets an empty list."""
        check_request(queries, k)
        return [
            [replace(self.corpus[place], score=score) for place, score in self._ranked(query, k)]
            for query in queries
        ]

    def describe(self) -> dict[str, Any]:
        kind = {"kind": "bm25"} if isinstance(self._index, DiskIndex) else {}
        return {"corpus": self.corpus.digest(), **kind}

    def _rank(self, query: str, k: int) -> Ranking:
        return self._index.best(list(dict.fromkeys(tokenize(query))), k)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.corpus, self._index)


class BM25Index:
    """An index in memory, by bm25s: about two seconds for 27,000 passages."""

    def __init__(self, corpus: Sequence[Document]) -> None:
        self._vocabulary: dict[str, int] = {}
        number = self._vocabulary
        ids = [
            [number.setdefault(word, len(number)) for word in tokenize(passage_text(document))]
            for document in corpus
        ]
        options = {"method": "lucene", "backend": "numpy", "csc_backend": "numpy"}
        self._index: Any = bm25s.BM25(k1=1.5, b=0.75, **options)
        # bm25s cannot index a corpus without a single word; such a corpus answers nothing.
        if number:
            self._index.index((ids, number), create_empty_token=False, show_progress=False)

    def best(self, words: Sequence[str], k: int) -> Ranking:
        """The ``k`` best passages for distinct words; scores add up in the words' order."""
        ids = [self._vocabulary[word] for word in words if word in self._vocabulary]
        if not ids:
            return []
        scores = self._index.get_scores_from_ids(ids)

        candidates = np.flatnonzero(scores > 0)
        best = scores[candidates]
        if len(best) > k:
            # Only those from the k-th best score on are sorted.
            enough = best >= np.partition(best, -k)[-k]
            candidates, best = candidates[enough], best[enough]
        order = np.argsort(-best, kind="stable")[:k]
        return list(zip(candidates[order].tolist(), best[order].tolist(), strict=True))


class DiskIndex:
    """An index on disk, by tantivy: k1 is 1.2, and lengths of passages are rounded to a byte."""

    def __init__(self, folder: Path) -> None:
        import tantivy

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

    def best(self, words: Sequence[str], k: int) -> Ranking:
        if not words:
            return []
        query = self._any_of([(self._should, self._term(word)) for word in words])
        limit = min(k, self._searcher.num_docs)
        hits = self._searcher.search(query, limit, count=False).hits
        found: Any = self._searcher.fast_field_values("position", [where for _, where in hits])

        # Equal scores by position, as far as tantivy's choice of the best leaves it open.
        scores = (score for score, _ in hits)
        return sorted(zip(found, scores, strict=True), key=lambda hit: (-hit[1], hit[0]))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._folder,)


def build(folder: Path, passages: Passages) -> None:
    """Writes an index on disk, in bounded memory."""
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    schema.add_integer_field("position", fast=True)
    try:
        index = tantivy.Index(schema.build(), path=str(folder))
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

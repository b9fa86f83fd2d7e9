"""BM25 over an index on disk, for any number of passages: made and searched by the library tantivy.

tantivy finds the best passages without scoring all of them. It is BM25 as Lucene has it: k1 is 1.2,
and lengths of passages are rounded to a byte. So scores, and a few ranks, are not those of
:class:`~ssp_env.search.bm25.index.BM25Index`, which is for corpora in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tantivy

from ssp_env.errors import DataError
from ssp_env.search.bm25.index import Ranking, words_of
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.corpus import Progress
from ssp_env.search.index.manifest import Manifest
from ssp_env.search.index.store import PassageStore
from ssp_env.search.index.workplace import Workplace, again

_MEMORY = 256_000_000
"""Bytes that a build may fill before it writes them out."""
_EVERY = 4096
"""Passages between two reports of progress."""


class DiskIndex:
    """Which passages hold which words, mapped into memory."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            DataError: tantivy cannot read it.
        """
        self._folder = folder
        # To open an index, tantivy makes a file for a lock beside it; but folders may be read-only.
        with TemporaryDirectory(ignore_cleanup_errors=True) as links, self._readable():
            for path in folder.iterdir():
                os.symlink(path.absolute(), Path(links) / path.name)
            index = tantivy.Index.open(links)
            index.config_reader(reload_policy="manual")  # without a thread that watches the files
            self._schema, self._searcher = index.schema, index.searcher()

    def knows(self, words: Sequence[str]) -> bool:
        """Whether any of the words occurs in the corpus."""
        with self._readable():
            return any(self._searcher.doc_freq("words", word) for word in words)

    def best(self, words: Sequence[str], k: int) -> Ranking:
        """Positions and scores of the ``k`` best passages, best first, for distinct words.

        Raises:
            DataError: the index is corrupt.
        """
        terms = [(tantivy.Occur.Should, self._term(word)) for word in words]
        if not terms:
            return [], []
        with self._readable():
            query = tantivy.Query.boolean_query(terms)
            limit = min(k, self._searcher.num_docs)
            hits = self._searcher.search(query, limit, count=False).hits
            found: Any = self._searcher.fast_field_values("position", [where for _, where in hits])
            if any(position >= self._searcher.num_docs for position in found):
                raise ValueError("it names passages that are not there")

        # Equal scores by position, as far as tantivy's choice of the best leaves it open.
        ranked = sorted(zip((-score for score, _ in hits), found, strict=True))
        return [position for _, position in ranked], [-score for score, _ in ranked]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._folder,)

    def _term(self, word: str) -> Any:
        return tantivy.Query.term_query(self._schema, "words", word, index_option="freq")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # A panic of Rust is not an Exception, and its class cannot be imported.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                what = f"is corrupt ({error}); {again(self._folder)}"
                raise DataError(self._folder, what) from error
            raise


def build(
    place: Workplace, store: PassageStore, encoder: None, progress: Progress
) -> dict[str, Any]:
    """Writes the index of a store in bounded memory; returns the parameters for its manifest.

    What a killed build left is thrown away."""
    place.clear()
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    schema.add_integer_field("position", fast=True)

    stage = "indexing words"
    try:
        index = tantivy.Index(schema.build(), path=str(place.path))
        writer = index.writer(heap_size=_MEMORY, num_threads=1)
        for position, document in enumerate(store):
            words = " ".join(words_of(document))
            writer.add_document(tantivy.Document(words=words, position=position))
            if position % _EVERY == 0:
                progress(stage, position, len(store))
        writer.commit()
        writer.wait_merging_threads()
    except ValueError as error:  # such as a disk that is full
        raise OSError(str(error)) from error

    for path in place.path.glob(".*"):  # locks, and what only writers need
        path.unlink()
    # tantivy lets only the user read this one, who may not be the one to search.
    (place.path / "meta.json").chmod(0o644)
    progress(stage, len(store), len(store))
    return {"k1": 1.2, "b": 0.75, "tokens": r"lower-case \w+"}


def load(folder: Path, store: PassageStore, encoder: None, manifest: Manifest) -> BM25Retriever:
    """The retriever over an index whose manifest was found to fit ``store``."""
    return BM25Retriever(store, DiskIndex(folder))

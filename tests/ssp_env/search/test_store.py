"""Passages on disk: the same as in memory, from whatever file, and refused when damaged."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from corpus_files import jsonl
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp_env.errors import DataError
from ssp_env.search.corpus import Corpus, read_corpus
from ssp_env.search.store import PassageStore, build_store
from ssp_env.types import Document

ROWS = [Document(f"p{i}", f"Title {i}", f"Text {i}. " + "word " * (i % 7)) for i in range(50)]
PARTS = st.text(st.characters(codec=None), max_size=20)


def stored(folder: Path, documents: Sequence[Document] = ROWS) -> PassageStore:
    return build_store(jsonl(folder / "c.jsonl", documents), folder / "s")


def test_a_store_holds_what_a_corpus_holds(tmp_path: Path) -> None:
    corpus, store = Corpus(ROWS), stored(tmp_path)
    assert store.name == "c.jsonl"
    assert len(store) == len(corpus)
    assert list(store) == list(corpus)
    assert [store[i] for i in range(-50, 50)] == [corpus[i] for i in range(-50, 50)]
    assert store[np.int64(3)] == corpus[3]
    assert store[::-3] == list(corpus[::-3])
    assert store.digest() == corpus.digest()
    assert all(store.by_id(document.id) == document for document in corpus)
    for start in (0, 1, 49, 50):
        assert list(store.read_from(start)) == ROWS[start:]
    for missing in (50, -51):
        with pytest.raises(IndexError):
            store[missing]
    with pytest.raises(KeyError):
        store.by_id("p50")


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(PARTS, PARTS, PARTS), min_size=1, max_size=8, unique_by=lambda row: row[0])
)
def test_any_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    documents = [Document(*row) for row in rows]
    store = stored(tmp_path_factory.mktemp("any"), documents)
    assert list(store) == documents == store[:]
    assert [store.by_id(document.id) for document in documents] == documents
    assert store.digest() == Corpus(documents).digest()


def test_plain_and_gzip_give_the_same_passages_and_are_one_jsonl(tmp_path: Path) -> None:
    plain = jsonl(tmp_path / "c.jsonl", ROWS)
    zipped = tmp_path / "c.jsonl.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    store = build_store(zipped, tmp_path / "s")
    assert list(store) == list(read_corpus(plain)) == ROWS
    before = {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    assert list(build_store(plain, tmp_path / "s")) == ROWS
    assert before == {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}


@pytest.mark.parametrize(
    "other", [ROWS[:-1], [*ROWS, Document("new", "", "")], [ROWS[1], ROWS[0], *ROWS[2:]]]
)
def test_a_folder_of_other_passages_is_refused(tmp_path: Path, other: list[Document]) -> None:
    stored(tmp_path)
    with pytest.raises(DataError, match="other passages"):
        build_store(jsonl(tmp_path / "d.jsonl", other), tmp_path / "s")


def test_an_id_that_occurs_twice_leaves_nothing(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "c.jsonl", [*ROWS, ROWS[7]])
    with pytest.raises(DataError, match=r"c\.jsonl: id 'p7' occurs twice: passages 8 and 51"):
        build_store(path, tmp_path / "s")
    assert list(tmp_path.iterdir()) == [path]


def test_a_pickled_store_is_small_and_opens_where_it_arrives(tmp_path: Path) -> None:
    store = stored(tmp_path, [Document(str(i), "", "x" * 1000) for i in range(100)])
    data = pickle.dumps(store)
    assert len(data) < 1000
    assert list(pickle.loads(data)) == list(store)


def test_many_threads_read_one_store(tmp_path: Path) -> None:
    store, asked = stored(tmp_path), list(range(50)) * 160
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda i: (store[i], store.by_id(f"p{i}")), asked))
    assert read == [(ROWS[i], ROWS[i]) for i in asked]


def test_bytes_that_are_not_text_are_told_from_passages(tmp_path: Path) -> None:
    path = stored(tmp_path).folder / "passages.sqlite"
    path.write_bytes(path.read_bytes().replace(b"Title 0", b"Title\xff0"))
    store = PassageStore(path.parent)
    for read in (lambda: store[0], lambda: list(store), lambda: store.by_id("p0")):
        with pytest.raises(DataError, match="is corrupt"):
            read()

    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DataError, match="is corrupt"):
        PassageStore(path.parent)

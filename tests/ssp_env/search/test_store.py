"""Passages on disk: the same as in memory, from whatever file, and refused when damaged."""

from __future__ import annotations

import gzip
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ssp_env.search.index.store as store_module
from ssp_env.errors import DataError
from ssp_env.game.noise import draw_noise
from ssp_env.search.corpus import Corpus, read_corpus
from ssp_env.search.index.store import PassageStore, build_store, write_store
from ssp_env.types import Document

ROWS = [Document(f"p{i}", f"Title {i}", f"Text {i}. " + "word " * (i % 7)) for i in range(50)]
PARTS = st.text(st.characters(codec=None), max_size=20)


def source(path: Path, documents: list[Document]) -> Path:
    rows = ({"id": d.id, "title": d.title, "text": d.text} for d in documents)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("batch", [7, 50, 4096])
def test_a_store_holds_what_a_corpus_holds(
    tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "BATCH", batch)
    corpus, store = Corpus(ROWS), write_store(ROWS, tmp_path / "s", "mine")
    assert store.name == "mine"
    assert len(store) == len(corpus)
    assert list(store) == list(corpus)
    assert [store[i] for i in range(-50, 50)] == [corpus[i] for i in range(-50, 50)]
    assert store[::-3] == list(corpus[::-3])
    assert store.digest() == corpus.digest()
    assert all(store.by_id(document.id) == document for document in corpus)
    for start in (0, 1, 6, 7, 49, 50):
        assert list(store.read_from(start)) == ROWS[start:]
    for missing in (50, -51):
        with pytest.raises(IndexError):
            store[missing]
    with pytest.raises(KeyError):
        store.by_id("p50")


def test_a_batch_of_long_passages_is_closed_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_BATCH_BYTES", 100)
    store = write_store(ROWS, tmp_path / "s")
    assert len(store._batches) > 5
    assert list(store) == ROWS == store[:]


def test_noise_is_drawn_from_a_store_as_from_a_corpus(tmp_path: Path) -> None:
    store, corpus = write_store(ROWS, tmp_path / "s"), Corpus(ROWS)
    for count in (4, 40):
        drawn = [
            draw_noise(np.random.default_rng(3), count, ROWS[:3], [(1, ROWS[9])], each)
            for each in (store, corpus)
        ]
        assert drawn[0] == drawn[1]
        assert len(drawn[0]) == count


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(PARTS, PARTS, PARTS), min_size=1, max_size=8, unique_by=lambda row: row[0])
)
def test_any_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    documents = [Document(*row) for row in rows]
    store = write_store(documents, tmp_path_factory.mktemp("any") / "s")
    assert list(store) == documents == store[:]
    assert [store.by_id(document.id) for document in documents] == documents
    assert store.digest() == Corpus(documents).digest()


def test_plain_and_gzip_give_the_same_passages_and_are_one_source(tmp_path: Path) -> None:
    plain = source(tmp_path / "c.jsonl", ROWS)
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
    build_store(source(tmp_path / "c.jsonl", ROWS), tmp_path / "s")
    with pytest.raises(DataError, match="other passages"):
        build_store(source(tmp_path / "d.jsonl", other), tmp_path / "s")


def test_lines_of_a_file_that_repeat_an_id_are_named(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    lines = ['{"id": "a", "contents": "x"}', "", '{"id": "b", "contents": "y"}']
    path.write_text("\n".join([*lines, lines[0], lines[2], ""]))
    with pytest.raises(DataError, match=r"c\.jsonl:4: id 'a' occurs twice, first in line 1"):
        build_store(path, tmp_path / "s")
    assert list(tmp_path.iterdir()) == [path]


def test_hashes_that_collide_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "hash_text", lambda text: 7)
    store = write_store(ROWS, tmp_path / "s")
    assert [store.by_id(document.id) for document in ROWS] == ROWS
    with pytest.raises(KeyError):
        store.by_id("none")


def test_a_bad_line_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    path = source(tmp_path / "c.jsonl", ROWS)
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(DataError, match=r"c\.jsonl:51: not JSON"):
        build_store(path, tmp_path / "s")
    assert list(tmp_path.iterdir()) == [path]


def test_a_pickled_store_is_small_and_opens_where_it_arrives(tmp_path: Path) -> None:
    store = write_store([Document(str(i), "", "x" * 1000) for i in range(100)], tmp_path / "s")
    data = pickle.dumps(store)
    assert len(data) < 1000
    assert list(pickle.loads(data)) == list(store)


def test_many_threads_read_one_store(tmp_path: Path) -> None:
    store = write_store(ROWS, tmp_path / "s")
    asked = list(range(50)) * 160
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda i: (store[i], store.by_id(f"p{i}")), asked))
    assert read == [(ROWS[i], ROWS[i]) for i in asked]


def test_bytes_that_are_not_text_are_told_from_passages(tmp_path: Path) -> None:
    write_store(ROWS, tmp_path / "s")
    path = tmp_path / "s" / "passages.arrow"
    path.write_bytes(path.read_bytes().replace(b"Title 0", b"Title\xff0"))
    store = PassageStore(tmp_path / "s")
    with pytest.raises(DataError, match="is corrupt"):
        store[0]
    with pytest.raises(DataError, match="is corrupt"):
        list(store)

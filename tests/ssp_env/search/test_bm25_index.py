"""BM25 from disk: the same numbers as bm25s, the same rankings as in memory, by either way of
ranking."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ssp_env.search.bm25.build as build_module
import ssp_env.search.bm25.postings as postings_module
from ssp_env.search.base import Retriever
from ssp_env.search.bm25.retriever import BM25Retriever, tokenize, words_of
from ssp_env.search.corpus import Corpus
from ssp_env.search.index.directory import build_index, open_index
from ssp_env.search.index.store import PassageStore, hash_id
from ssp_env.testing import RetrieverTests
from ssp_env.types import Document

WORDS = [f"w{i}" for i in range(40)]
CORPORA = st.lists(st.lists(st.sampled_from(WORDS), max_size=15), min_size=1, max_size=40)
QUERIES = st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=12).map(" ".join)


def skewed(passages: int, seed: int = 0) -> list[Document]:
    """Passages whose words are as unevenly frequent as those of real text, with many equal
    scores."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 301)
    rows = [
        rng.choice(300, size=rng.integers(0, 30), p=weights / weights.sum())
        for _ in range(passages)
    ]
    return [
        Document(f"d{i}", "", " ".join(f"w{word}" for word in row)) for i, row in enumerate(rows)
    ]


def on_disk(folder: Path, documents: Sequence[Document]) -> BM25Retriever:
    source = folder / "c.jsonl"
    rows = ({"id": d.id, "title": d.title, "text": d.text} for d in documents)
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_index(source, folder / "index", "bm25")
    retriever = open_index(folder / "index")
    assert isinstance(retriever, BM25Retriever)
    return retriever


def scored(
    retriever: BM25Retriever, queries: Sequence[str], k: int
) -> list[list[tuple[str, float | None]]]:
    return [[(d.id, d.score) for d in ranking] for ranking in retriever.search(queries, k)]


def by_bm25s(documents: Sequence[Document], query: str, k: int) -> list[tuple[str, float]]:
    """The ranking by a full pass of bm25s and a full sort."""
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    texts = [words_of(document) for document in documents]
    index.index(texts, show_progress=False)
    words = [word for word in dict.fromkeys(tokenize(query)) if word in index.vocab_dict]
    scores: NDArray[np.float32] = (
        index.get_scores(words) if words else np.zeros(len(documents), np.float32)
    )
    order = np.argsort(-scores, kind="stable")[:k]
    return [(documents[i].id, float(scores[i])) for i in order if scores[i] > 0]


@pytest.fixture(scope="module", params=[(10**9, 10**9), (700, 10**9), (10**9, 50), (300, 20)])
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BM25Retriever:
    """An index built with this many words a run, and postings a range."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "RUN_WORDS", request.param[0])
        patch.setattr(build_module, "RANGE_POSTINGS", request.param[1])
        return on_disk(tmp_path_factory.mktemp("index"), skewed(200))


def test_the_index_on_disk_is_the_one_in_memory_bit_for_bit(disk: BM25Retriever) -> None:
    memory = BM25Retriever(Corpus(skewed(200)))
    words, a, b = (
        memory._index._words,
        memory._index._postings._arrays,
        disk._index._postings._arrays,
    )
    assert len(words) == len(disk._index._words) > 200
    assert a.starts[-1] == b.starts[-1]
    for word, column in words.items():  # type: ignore[union-attr]
        other = int(np.searchsorted(disk._index._words, np.uint64(hash_id(word.encode()))))  # type: ignore[arg-type]
        mine, its = slice(*a.starts[column : column + 2]), slice(*b.starts[other : other + 2])
        np.testing.assert_array_equal(a.passages[mine], b.passages[its])
        np.testing.assert_array_equal(a.scores[mine].view(np.int32), b.scores[its].view(np.int32))
        assert a.peaks[column] == b.peaks[other]


def test_rankings_and_scores_are_those_of_bm25s(
    disk: BM25Retriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = skewed(200)
    queries = [
        "w0",
        "w0 w1 w2",
        "w250",
        "w250 w0",
        "w299 w298 w3 w0",
        " ".join(f"w{i}" for i in range(300)),
        "x",
        "",
    ]
    expected = {
        (query, k): by_bm25s(documents, query, k) for query in queries for k in (1, 3, 40, 500)
    }
    for whole in (10**9, 0):
        monkeypatch.setattr(postings_module, "WHOLE", whole)
        retriever = BM25Retriever(disk.corpus, disk._index, cache_size=0)
        for (query, k), ranking in expected.items():
            assert scored(retriever, [query], k) == [ranking]


@settings(max_examples=15)
@given(CORPORA, st.lists(QUERIES, min_size=1, max_size=6), st.integers(1, 12))
def test_every_way_to_rank_agrees(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], queries: list[str], k: int
) -> None:
    documents = [Document(str(i), "", " ".join(text)) for i, text in enumerate(texts)]
    memory = BM25Retriever(Corpus(documents), cache_size=0)
    disk = on_disk(tmp_path_factory.mktemp("any"), documents)
    results = []
    with pytest.MonkeyPatch.context() as patch:
        for whole, cheap, sparse in (
            (10**9, 0, 1),
            (0, 0, 1),
            (0, 5, 1),
            (0, 10**9, 1),
            (0, 0, 10**9),
        ):
            patch.setattr(postings_module, "WHOLE", whole)
            patch.setattr(postings_module, "_CHEAP", cheap)
            patch.setattr(postings_module, "_SPARSE", sparse)
            results += [scored(memory, queries, k), scored(disk, queries, k)]
    assert all(result == results[0] for result in results)


def test_uneven_words_rank_the_same_by_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = BM25Retriever(Corpus(skewed(3000, seed=1)), cache_size=0)
    rng = np.random.default_rng(2)
    queries = [
        " ".join(f"w{i}" for i in rng.zipf(1.3, size=rng.integers(1, 12)) % 300) for _ in range(200)
    ]
    whole = scored(retriever, queries, 5)
    monkeypatch.setattr(postings_module, "WHOLE", 0)
    monkeypatch.setattr(postings_module, "_CHEAP", 0)
    for sparse in (1, 16, 10**9):
        monkeypatch.setattr(postings_module, "_SPARSE", sparse)
        assert scored(retriever, queries, 5) == whole
    assert all(not np.any(scratch) for scratch in retriever._index._postings._scratch)


def test_without_room_for_columns_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = ["w0 w1 w2", "w0", "w250 w1"]
    corpus = Corpus(skewed(300))
    with_columns = BM25Retriever(corpus)
    expected = scored(with_columns, queries, 7)
    assert with_columns._index._postings._columns
    monkeypatch.setattr(postings_module, "COLUMN_BYTES", 0)
    without = BM25Retriever(corpus)
    assert scored(without, queries, 7) == expected
    assert not without._index._postings._columns


@pytest.mark.parametrize("texts", [["", "..."], ["..."], ["", "w1", ""]])
def test_passages_without_words(tmp_path: Path, texts: list[str]) -> None:
    documents = [Document(str(i), "", text) for i, text in enumerate(texts)]
    disk, memory = on_disk(tmp_path, documents), BM25Retriever(Corpus(documents))
    for query in ("", "w1", "w2 w1", "\ud800"):
        assert scored(disk, [query], 3) == scored(memory, [query], 3)
    assert disk.knows("w1") == ("w1" in texts)


def test_a_run_that_ends_with_the_passages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document(str(i), "", "a b c") for i in range(8)]
    for run in (3, 6, 12, 24, 25):
        monkeypatch.setattr(build_module, "RUN_WORDS", run)
        (tmp_path / str(run)).mkdir()
        assert [d.id for d in on_disk(tmp_path / str(run), documents).search(["b"], 9)[0]] == list(
            "01234567"
        )


def test_words_that_share_a_hash_are_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        build_module, "hash_id", lambda word: 5 if word in (b"a", b"b") else hash_id(word)
    )
    disk = on_disk(
        tmp_path, [Document("0", "", "a b a"), Document("1", "", "b c"), Document("2", "", "c")]
    )
    assert disk._index._postings._arrays.starts.tolist()[-1] == 4


def test_a_pickled_retriever_is_small(disk: BM25Retriever) -> None:
    data = pickle.dumps(disk)
    assert len(data) < 2000
    assert scored(pickle.loads(data), ["w0 w7"], 4) == scored(disk, ["w0 w7"], 4)


@pytest.mark.parametrize("whole", [0, 10**9])
def test_many_threads_rank_as_one(
    disk: BM25Retriever, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings_module, "WHOLE", whole)
    retriever = BM25Retriever(disk.corpus, disk._index, cache_size=0)
    queries = [f"w{i} w{i % 7} w{i // 3}" for i in range(100)]
    alone = scored(retriever, queries, 5)
    wrong: list[int] = []

    def search() -> None:
        wrong.extend(i for i in range(5) if scored(retriever, queries, 5) != alone)

    threads = [threading.Thread(target=search) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_interrupted_search_spoils_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings_module, "WHOLE", 0)
    retriever = BM25Retriever(Corpus(skewed(300)), cache_size=0)
    expected = scored(retriever, ["w1 w2"], 5)
    with monkeypatch.context() as patch:

        def interrupted(values: object, k: int) -> None:
            raise KeyboardInterrupt

        patch.setattr(postings_module, "_kth", interrupted)
        with pytest.raises(KeyboardInterrupt):
            retriever.search(["w1 w2 w3"], 5)
    assert scored(retriever, ["w1 w2"], 5) == expected


def test_the_retriever_reads_passages_from_the_store(disk: BM25Retriever) -> None:
    assert isinstance(disk.corpus, PassageStore)
    assert disk.corpus.by_id("d7") == skewed(200)[7]


class TestRetrieverFromDisk(RetrieverTests):
    queries = ("w0 w7", "w250", "w3")

    @pytest.fixture(autouse=True)
    def _disk(self, disk: BM25Retriever) -> None:
        self._retriever = disk

    def make_retriever(self) -> Retriever:
        return self._retriever

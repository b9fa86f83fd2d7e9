"""BM25 from disk: the numbers of bm25s, the rankings of the index in memory."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ssp_env.search.bm25.build as build_module
from ssp_env.search.base import Retriever
from ssp_env.search.bm25.index import tokenize, words_of
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.corpus import Corpus
from ssp_env.search.index.directory import build_index, open_index
from ssp_env.testing import RetrieverTests
from ssp_env.types import Document

WORDS = [f"w{i}" for i in range(40)]
CORPORA = st.lists(st.lists(st.sampled_from(WORDS), max_size=15), min_size=1, max_size=40)
QUERIES = st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=12).map(" ".join)


def skewed(passages: int, seed: int = 0) -> list[Document]:
    """Passages whose words are as unevenly frequent as in real text, with many equal scores."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 301)
    chances = weights / weights.sum()
    rows = [rng.choice(300, size=rng.integers(0, 30), p=chances) for _ in range(passages)]
    texts = [" ".join(f"w{word}" for word in row) for row in rows]
    return [Document(f"d{i}", "", text) for i, text in enumerate(texts)]


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
    """The ranking by bm25s as its users use it, and a full sort."""
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    index.index([words_of(document) for document in documents], show_progress=False)
    words = [word for word in dict.fromkeys(tokenize(query)) if word in index.vocab_dict]
    scores: NDArray[np.float32] = (
        index.get_scores(words) if words else np.zeros(len(documents), np.float32)
    )
    order = np.argsort(-scores, kind="stable")[:k]
    return [(documents[i].id, float(scores[i])) for i in order if scores[i] > 0]


@pytest.fixture(scope="module", params=[10**9, 700, 1])
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BM25Retriever:
    """An index built in blocks of so many words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "BLOCK_WORDS", request.param)
        return on_disk(tmp_path_factory.mktemp("index"), skewed(200))


def test_rankings_and_scores_are_those_of_bm25s(disk: BM25Retriever) -> None:
    documents = skewed(200)
    everything = " ".join(f"w{i}" for i in range(300))
    for query in ("w0", "w0 w1 w2", "w250 w0", "w299 w298 w3 w0", everything, "x", ""):
        for k in (1, 3, 40, 500):
            assert scored(disk, [query], k) == [by_bm25s(documents, query, k)]


@settings(max_examples=15, deadline=None)
@given(CORPORA, st.lists(QUERIES, min_size=1, max_size=6), st.integers(1, 12))
def test_memory_and_disk_agree(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], queries: list[str], k: int
) -> None:
    documents = [Document(str(i), "", " ".join(text)) for i, text in enumerate(texts)]
    memory = BM25Retriever(Corpus(documents), cache_size=0)
    disk = on_disk(tmp_path_factory.mktemp("any"), documents)
    assert scored(memory, queries, k) == scored(disk, queries, k)


@pytest.mark.parametrize("texts", [["", "..."], ["..."], ["", "w1", ""]])
def test_passages_without_words(tmp_path: Path, texts: list[str]) -> None:
    documents = [Document(str(i), "", text) for i, text in enumerate(texts)]
    disk, memory = on_disk(tmp_path, documents), BM25Retriever(Corpus(documents))
    for query in ("", "w1", "w2 w1", "\ud800"):
        assert scored(disk, [query], 3) == scored(memory, [query], 3)
    assert disk.knows("w1") == memory.knows("w1") == ("w1" in texts)


def test_a_pickled_retriever_is_small(disk: BM25Retriever) -> None:
    data = pickle.dumps(disk)
    assert len(data) < 2000
    assert scored(pickle.loads(data), ["w0 w7"], 4) == scored(disk, ["w0 w7"], 4)


def test_many_threads_rank_as_one(disk: BM25Retriever) -> None:
    retriever = BM25Retriever(disk.corpus, disk._index, cache_size=50)
    queries = [f"w{i} w{i % 7} w{i // 3}" for i in range(100)]
    alone = scored(retriever, queries, 5)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: scored(retriever, queries, 5), range(18)))
    assert found == [alone] * 18


class TestRetrieverFromDisk(RetrieverTests):
    queries = ("w0 w7", "w250", "w3")

    @pytest.fixture(autouse=True)
    def _disk(self, disk: BM25Retriever) -> None:
        self._retriever = disk

    def make_retriever(self) -> Retriever:
        return self._retriever

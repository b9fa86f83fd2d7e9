"""BM25 in memory and on disk: ranking, ties, odd queries."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bm25s
import numpy as np
import pytest
from corpus_files import jsonl
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.errors import DataError
from ssp_env.search.bm25 import BM25Retriever, DiskIndex, tokenize, words_of
from ssp_env.search.corpus import Corpus
from ssp_env.search.index import build_index, open_index
from ssp_env.types import Document

CORPUS = Corpus(
    [
        Document("a", "Vienna", "The capital of Austria lies on the Danube."),
        Document("b", "Danube", "A river in Europe."),
        Document("c", "Twin one", "identical words"),
        Document("d", "Twin one", "identical words"),
        Document("e", "Šibenik", "Grad u Hrvatskoj, 北京."),
        Document("f", "", ""),
    ]
)


def on_disk(folder: Path, documents: Sequence[Document]) -> BM25Retriever:
    build_index(jsonl(folder / "c.jsonl", documents), folder / "index", "bm25")
    retriever = open_index(folder / "index")
    assert isinstance(retriever, BM25Retriever)
    return retriever


@pytest.fixture(scope="module", params=["memory", "disk"])
def retriever(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> BM25Retriever:
    if request.param == "memory":
        return BM25Retriever(CORPUS)
    return on_disk(tmp_path_factory.mktemp("index"), CORPUS)


def ids(ranking: list[Document]) -> list[str]:
    return [document.id for document in ranking]


def test_title_and_text_are_searched_and_the_rest_dropped(retriever: BM25Retriever) -> None:
    assert ids(retriever.search(["vienna"], 5)[0]) == ["a"]
    assert sorted(ids(retriever.search(["DANUBE!"], 5)[0])) == ["a", "b"]
    assert ids(retriever.search(["identical"], 5)[0]) == ["c", "d"]
    assert retriever.search(["šibenik"], 3)[0][0].id == "e"
    assert retriever.search(["北京"], 3)[0][0].id == "e"


@pytest.mark.parametrize("query", ["", " \t\n", "\x00\x01\x7f", "?!…", "\ud800", "zzzunknown"])
def test_queries_that_match_nothing(retriever: BM25Retriever, query: str) -> None:
    assert retriever.search([query], 3) == [[]]


QUERIES = st.text(max_size=30) | st.sampled_from(
    ["danube", "VIENNA in the", "identical words", "北京"]
)


@given(st.lists(QUERIES, max_size=5), st.integers(1, 9))
def test_any_strings_are_answered_in_order(
    retriever: BM25Retriever, queries: list[str], k: int
) -> None:
    together = retriever.search(queries, k)
    assert together == [retriever.search([query], k)[0] for query in queries]
    assert all(len(ranking) <= k for ranking in together)


def test_a_copy_and_threads_answer_alike_and_a_caller_spoils_nothing(
    retriever: BM25Retriever,
) -> None:
    queries = ["danube", "identical", "capital of europe"]
    alone = retriever.search(queries, 3)
    assert pickle.loads(pickle.dumps(retriever)).search(queries, 3) == alone
    retriever.search(queries, 3)[0].clear()
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda _: retriever.search(queries, 3), range(18))) == [alone] * 18


def skewed(passages: int) -> list[Document]:
    """Passages whose words are as unevenly frequent as in real text, with many equal scores."""
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, 301)
    rows = [
        rng.choice(300, size=rng.integers(0, 30), p=weights / weights.sum())
        for _ in range(passages)
    ]
    texts = [" ".join(f"w{word}" for word in row) for row in rows]
    return [Document(f"d{i}", "", text) for i, text in enumerate(texts)]


def test_in_memory_rankings_and_scores_are_those_of_bm25s_ties_by_position() -> None:
    documents = skewed(200)
    retriever = BM25Retriever(Corpus(documents))
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    index.index([words_of(document) for document in documents], show_progress=False)
    everything = " ".join(f"w{i}" for i in range(300))
    for query in ("w0", "w0 w1 w2", "w250 w0", "w299 w298 w3 w0", everything):
        scores = index.get_scores([word for word in tokenize(query) if word in index.vocab_dict])
        order = [i for i in np.argsort(-scores, kind="stable") if scores[i] > 0]
        for k in (1, 3, 40, 500):
            found = [(document.id, document.score) for document in retriever.search([query], k)[0]]
            assert found == [(documents[i].id, float(scores[i])) for i in order[:k]]


@pytest.mark.parametrize("texts", [["", "..."], ["", "w1", ""]])
def test_passages_without_words(tmp_path: Path, texts: list[str]) -> None:
    documents = [Document(str(i), "", text) for i, text in enumerate(texts)]
    for retriever in (on_disk(tmp_path, documents), BM25Retriever(Corpus(documents))):
        found = ["1"] if "w1" in texts else []
        assert [ids(each) for each in retriever.search(["", "w2 w1"], 3)] == [[], found]


def test_an_index_whose_bytes_are_changed_is_an_error_not_a_crash(tmp_path: Path) -> None:
    on_disk(tmp_path, skewed(200))
    [path] = (tmp_path / "index" / "bm25").glob("*.fast")
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DataError, match="is corrupt"):
        DiskIndex(path.parent).best(["w0"], 3)

"""BM25 in memory and on disk: ranking, ties, odd queries."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import bm25s
import numpy as np
import pytest
from corpus_files import jsonl
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.search.base import Corpus, Retriever
from ssp_env.search.bm25 import BM25Retriever, tokenize, words_of
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
WORDLESS = Corpus([Document("a", "", ""), Document("b", "", "...")])


@pytest.fixture(scope="module", params=["memory", "disk"])
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Corpus], Retriever]:
    def make(corpus: Corpus) -> Retriever:
        if request.param == "memory":
            return BM25Retriever(corpus)
        folder = tmp_path_factory.mktemp("index")
        return open_index(build_index(jsonl(folder / "c.jsonl", corpus), folder / "i").parent)

    return make


@pytest.fixture(scope="module")
def retriever(opened: Callable[[Corpus], Retriever]) -> Retriever:
    return opened(CORPUS)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("vienna", "a"),
        ("DANUBE!", "ba"),
        ("identical", "cd"),
        ("šibenik", "e"),
        ("北京", "e"),
        *((text, "") for text in ("", " \t\n", "\x00\x01\x7f", "?!…", "\ud800", "zzzunknown")),
    ],
)
def test_title_and_text_are_searched_and_equal_scores_are_in_order(
    retriever: Retriever, query: str, found: str
) -> None:
    [ranking] = retriever.search([query], 5)
    assert "".join(document.id for document in ranking) == found


def test_passages_without_words_are_never_found(opened: Callable[[Corpus], Retriever]) -> None:
    assert opened(WORDLESS).search(["", "w2 w1", "..."], 3) == [[], [], []]


QUERIES = st.text(max_size=30) | st.sampled_from(["danube", "VIENNA in the", "identical words"])


@given(st.lists(QUERIES, max_size=5), st.integers(1, 9))
def test_any_strings_are_answered_in_order(
    retriever: Retriever, queries: list[str], k: int
) -> None:
    together = retriever.search(queries, k)
    assert together == [retriever.search([query], k)[0] for query in queries]
    assert all(len(ranking) <= k for ranking in together)


def test_a_copy_and_threads_answer_alike_and_a_caller_spoils_nothing(
    retriever: Retriever,
) -> None:
    queries = ["danube", "identical", "capital of europe"]
    alone = retriever.search(queries, 3)
    assert pickle.loads(pickle.dumps(retriever)).search(queries, 3) == alone
    retriever.search(queries, 3)[0].clear()
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda _: retriever.search(queries, 3), range(18))) == [alone] * 18


def test_in_memory_rankings_and_scores_are_those_of_bm25s_ties_by_position() -> None:
    # Words as unevenly frequent as in real text, with many equal scores.
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, 301)
    rows = [rng.choice(300, rng.integers(0, 30), p=weights / weights.sum()) for _ in range(200)]
    texts = [" ".join(f"w{word}" for word in row) for row in rows]
    documents = [Document(f"d{i}", "", text) for i, text in enumerate(texts)]

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

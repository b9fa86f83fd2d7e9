"""BM25: ranking, ties, odd queries, the cache."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.errors import ConfigError
from ssp_env.search.bm25.index import tokenize
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.corpus import Corpus
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


@pytest.fixture(scope="module")
def retriever() -> BM25Retriever:
    return BM25Retriever(CORPUS)


def ids(ranking: list[Document]) -> list[str]:
    return [document.id for document in ranking]


def test_title_and_text_are_searched_and_the_rest_dropped(retriever: BM25Retriever) -> None:
    assert ids(retriever.search(["vienna"], 5)[0]) == ["a"]
    assert sorted(ids(retriever.search(["DANUBE!"], 5)[0])) == ["a", "b"]
    assert retriever.search(["šibenik"], 3)[0][0].id == "e"
    assert retriever.search(["北京"], 3)[0][0].id == "e"


def test_scores_follow_the_formula() -> None:
    texts = ["x x y", "y z z z", "w"]
    corpus = Corpus([Document(str(i), "", text) for i, text in enumerate(texts)])
    document = BM25Retriever(corpus).search(["x"], 1)[0][0]
    idf = np.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    length = 1 - 0.75 + 0.75 * 3 / ((3 + 4 + 1) / 3)
    assert document.score == pytest.approx(idf * 2 / (2 + 1.5 * length), rel=1e-5)


def test_ties_go_by_position_even_at_the_cut() -> None:
    same = [Document(str(i), "", "same") for i in range(500)]
    retriever = BM25Retriever(Corpus([*same, Document("last", "", "same other")]))
    assert ids(retriever.search(["same"], 7)[0]) == [str(i) for i in range(7)]
    assert ids(retriever.search(["same other"], 3)[0]) == ["last", "0", "1"]


def test_every_k_gives_a_prefix_of_the_whole_ranking() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{j}" for j in rng.integers(0, 6, size=4)) for _ in range(60)]
    retriever = BM25Retriever(Corpus([Document(str(i), "", t) for i, t in enumerate(texts)]))
    everything = ids(retriever.search(["w0 w1 w2"], 60)[0])
    for k in range(1, len(everything) + 3):
        assert ids(retriever.search(["w0 w1 w2"], k)[0]) == everything[:k]


@pytest.mark.parametrize("query", ["", " \t\n", "\x00\x01\x7f", "?!…", "\ud800", "zzzunknown"])
def test_queries_that_match_nothing(retriever: BM25Retriever, query: str) -> None:
    assert retriever.search([query], 3) == [[]]


def test_repeating_a_word_changes_nothing(retriever: BM25Retriever) -> None:
    once, often = retriever.search(["danube austria", "danube danube austria danube"], 5)
    assert [d.score for d in once] == [d.score for d in often]


WORDS = st.sampled_from(
    ["danube", "VIENNA", "river", "identical", "words", "in", "北京", "unknown", "\x00", "the"]
)
QUERIES = st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=6).map(" ".join))


@given(st.lists(QUERIES, max_size=5), st.integers(1, 9))
def test_any_strings_are_answered_in_order(queries: list[str], k: int) -> None:
    retriever = SHARED
    together = retriever.search(queries, k)
    assert together == [retriever.search([query], k)[0] for query in queries]
    assert all(len(ranking) <= k for ranking in together)


SHARED = BM25Retriever(CORPUS)


def count_rankings(retriever: BM25Retriever, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    rank = retriever._rank

    def counted(query: str, k: int) -> tuple[list[int], list[float]]:
        seen.append(query)
        return rank(query, k)

    monkeypatch.setattr(retriever, "_rank", counted)
    return seen


def test_repeated_queries_are_ranked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = BM25Retriever(CORPUS)
    seen = count_rankings(retriever, monkeypatch)
    retriever.search(["danube", "vienna", "danube", "nothing"], 3)
    retriever.search(["vienna", "danube", "nothing"], 3)
    assert seen == ["danube", "vienna", "nothing"]
    retriever.search(["danube"], 2)
    assert seen[-1] == "danube"
    assert len(seen) == 4


def test_the_least_recently_used_ranking_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    # A result counts one, and a ranking one more: "danube" 3, "vienna" and "river" 2.
    retriever = BM25Retriever(CORPUS, cache_size=5)
    seen = count_rankings(retriever, monkeypatch)
    for query in ("danube", "vienna", "danube", "river", "danube", "vienna"):
        retriever.search([query], 3)
    assert seen == ["danube", "vienna", "river", "vienna"]


def test_a_caller_cannot_spoil_the_cache() -> None:
    retriever = BM25Retriever(CORPUS)
    first, twin = retriever.search(["danube", "danube"], 3)
    first.clear()
    assert len(twin) == 2
    assert retriever.search(["danube"], 3)[0] == twin


def test_negative_cache_size() -> None:
    with pytest.raises(ConfigError, match="cache_size"):
        BM25Retriever(CORPUS, cache_size=-1)


def test_survives_pickling(retriever: BM25Retriever) -> None:
    copy = pickle.loads(pickle.dumps(retriever))
    assert copy.search(["danube", "identical"], 3) == retriever.search(["danube", "identical"], 3)


def test_tokenize() -> None:
    assert tokenize("The Who's 3rd, “ÉTÉ”-tour\x00x") == [
        "the",
        "who",
        "s",
        "3rd",
        "été",
        "tour",
        "x",
    ]

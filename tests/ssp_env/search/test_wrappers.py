"""Retrievers over others: rank fusion, reranking, and rankings that are kept on disk."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.errors import ConfigError, DataError, ServiceError
from ssp_env.search.base import Corpus, Retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.wrappers import (
    DEPTH,
    RRF_K,
    CachedRetriever,
    HybridRetriever,
    RerankedRetriever,
)
from ssp_env.testing import RetrieverTests
from ssp_env.types import Document


class Letters:
    """Finds documents that are letters: those of the query, or as ``rankings`` say.

    A batch that holds a ``bad`` query fails."""

    def __init__(self, rankings: dict[str, str] | None = None, name: str = "index 1") -> None:
        self.rankings, self.name = rankings or {}, name
        self.bad: set[str] = set()
        self.asked: list[tuple[list[str], int]] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        self.asked.append((list(queries), k))
        if self.bad & set(queries):
            raise ServiceError("search", "down")
        return [self.ranked(query, k) for query in queries]

    def ranked(self, query: str, k: int) -> list[Document]:
        letters = self.rankings.get(query, query)
        return [Document(each, f"title {query}", "x\ud800", 0.1) for each in letters[:k]]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def ids(ranking: Sequence[Document]) -> str:
    return "".join(document.id for document in ranking)


# -- fusion and reranking ----------------------------------------------------------------------


def test_each_part_is_asked_once_and_deep_enough_and_the_first_decides_equal_scores() -> None:
    parts = [Letters({"q": "ab", "r": "c"}), Letters({"q": "ba", "r": ""})]
    answers = HybridRetriever(parts).search(["q", "", "q", "r"], 1)
    assert [ids(ranking) for ranking in answers] == ["a", "", "a", "c"]
    HybridRetriever(parts).search(["q"], DEPTH + 5)
    for part in parts:
        assert part.asked == [(["q", "", "q", "r"], DEPTH), (["q"], DEPTH + 5)]
    parts[1].bad = {"q"}
    with pytest.raises(ServiceError, match="down"):
        HybridRetriever(parts).search(["q"], 3)


def test_parts_over_different_corpora_are_refused() -> None:
    passages = [Document("a", "Vienna", "capital"), Document("b", "Danube", "river")]
    one, same = Corpus(passages, "one"), Corpus(passages, "same")
    other = BM25Retriever(Corpus(passages[::-1], "other"))
    HybridRetriever([BM25Retriever(one), BM25Retriever(same), Letters()])
    with pytest.raises(ConfigError, match=r"retrievers = \['one', .*: these corpora differ"):
        HybridRetriever([BM25Retriever(one), Letters(), BM25Retriever(same), other])


RANKINGS = st.lists(
    st.lists(st.sampled_from("abcdefghij"), max_size=12).map("".join), min_size=1, max_size=4
)


@given(RANKINGS, st.data())
def test_fusion_is_the_formula_for_any_rankings(letters: list[str], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(letters), max_size=len(letters)))
    [fused] = HybridRetriever([Letters({"q": each}) for each in letters], weights).search(["q"], 20)
    exact: dict[str, Fraction] = {}
    for ranking, weight in zip(letters, weights, strict=True):
        for rank, letter in enumerate(ranking, start=1):
            if letter not in ranking[: rank - 1]:
                exact[letter] = exact.get(letter, Fraction(0)) + Fraction(weight, RRF_K + rank)
    assert {document.id: document.score for document in fused} == pytest.approx(
        {letter: float(score) for letter, score in exact.items()}
    )
    scores = [document.score for document in fused]
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]


class Backwards:
    """A reranker that likes letters late in the alphabet, in pairs of equals."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, str]]] = []

    def scores(self, pairs: Sequence[tuple[str, Document]]) -> list[float]:
        self.calls.append([(query, document.id) for query, document in pairs])
        return [float((ord(document.id) - ord("a")) // 2) for _, document in pairs]


def test_the_rerankers_order_holds_in_one_call_and_equals_keep_the_retrievers() -> None:
    reranker = Backwards()
    inner = Letters({"q": "abcdefgh", "p": "ab"})
    found = RerankedRetriever(inner, reranker, depth=6).search(["q", "", "p"], 5)
    assert [ids(ranking) for ranking in found] == ["efcda", "", "ab"]
    assert [document.score for document in found[0]] == [2, 2, 1, 1, 0]
    assert reranker.calls == [[*(("q", letter) for letter in "abcdef"), ("p", "a"), ("p", "b")]]
    assert RerankedRetriever(inner, reranker).search([""], 2) == [[]]
    assert len(reranker.calls) == 1


# -- rankings that are kept --------------------------------------------------------------------


def cached(path: Path, name: str = "index 1") -> tuple[CachedRetriever, Letters]:
    inner = Letters(name=name)
    return CachedRetriever(inner, path), inner


class TestCached(RetrieverTests):
    queries = ("one", "two", "cat")

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "cache"

    def make_retriever(self) -> Retriever:
        return cached(self.path)[0]


def test_only_the_misses_go_on_as_one_batch_each_once_and_order_is_kept(tmp_path: Path) -> None:
    retriever, inner = cached(tmp_path)
    retriever.search(["b", "dogs"], 3)
    found = retriever.search(["a", "b", "cd", "a", "dogs"], 3)
    assert inner.asked == [(["b", "dogs"], 3), (["a", "cd"], 3)]
    assert found == [inner.ranked(query, 3) for query in ("a", "b", "cd", "a", "dogs")]
    assert [document.score for document in found[1]] == [0.1]
    found[0].clear()
    assert len(found[3]) == 1, "callers cannot spoil it"
    retriever.search(["a"], 2)
    assert inner.asked[2:] == [(["a"], 2)], "another k is another search"


def test_failures_are_never_kept_and_hit_only_what_asked(tmp_path: Path) -> None:
    retriever, inner = cached(tmp_path)
    inner.bad = {"bad"}
    good, bad = retriever.search_each(["good", "bad"], 2)
    assert (good, type(bad)) == (inner.ranked("good", 2), ServiceError)
    inner.bad = set()
    assert ids(retriever.search(["bad", "good"], 2)[0]) == "ba"
    asked = [queries for queries, _ in inner.asked]
    assert asked == [["good", "bad"], ["good"], ["bad"], ["bad"]]


def test_the_directory_outlasts_the_process_for_what_is_searched(tmp_path: Path) -> None:
    queries = ["a", "бб", "\ud800", "x" * 100_001, "\0"]
    first, _ = cached(tmp_path)
    found = first.search(queries, 3)
    first.close()
    second, inner = cached(tmp_path)
    twin = pickle.loads(pickle.dumps(second))
    assert second.search(queries, 3) == twin.search(queries, 3) == found
    assert inner.asked == twin.retriever.asked == []
    other, another = cached(tmp_path, "index 2")
    other.search(["a"], 3)
    assert another.asked == [(["a"], 3)]
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(DataError, match="cannot be used as a cache"):
        cached(tmp_path / "file")

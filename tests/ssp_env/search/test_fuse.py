"""Retrievers over others: rank fusion and reranking."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.corpus import Corpus
from ssp_env.search.fuse import DEPTH, HybridRetriever, RerankedRetriever
from ssp_env.types import Document


class Fixed:
    """A retriever whose rankings are written down."""

    def __init__(self, rankings: dict[str, str]) -> None:
        self.rankings = rankings
        self.asked: list[tuple[list[str], int]] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        self.asked.append((list(queries), k))
        return [
            [Document(letter, f"title {letter}", "", 1.0) for letter in self.rankings[query]][:k]
            for query in queries
        ]


def ids(ranking: Sequence[Document]) -> str:
    return "".join(document.id for document in ranking)


def test_each_part_is_asked_once_and_deep_enough_and_the_first_decides_equal_scores() -> None:
    parts = [Fixed({"q": "ab", "p": "", "r": "c"}), Fixed({"q": "ba", "p": "", "r": ""})]
    answers = HybridRetriever(parts).search(["q", "p", "q", "r"], 1)
    assert [ids(ranking) for ranking in answers] == ["a", "", "a", "c"]
    HybridRetriever(parts).search(["q"], DEPTH + 5)
    for part in parts:
        assert part.asked == [(["q", "p", "q", "r"], DEPTH), (["q"], DEPTH + 5)]


def test_a_part_that_fails_is_no_ranking() -> None:
    class Down:
        def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
            raise ServiceError("search", "down")

    good = Fixed({"q": "a", "p": "b"})
    with pytest.raises(ServiceError, match="down"):
        HybridRetriever([good, Down()]).search(["q"], 3)


def test_parts_over_different_corpora_and_wrong_weights_are_refused() -> None:
    passages = [Document("a", "Vienna", "capital"), Document("b", "Danube", "river")]
    one, same = Corpus(passages, "one"), Corpus(passages, "same")
    other = BM25Retriever(Corpus(passages[::-1], "other"))
    HybridRetriever([BM25Retriever(one), BM25Retriever(same), BM25Retriever(one), Fixed({})])
    with pytest.raises(ConfigError, match=r"retrievers = \['one', .*: these corpora differ"):
        HybridRetriever([BM25Retriever(one), Fixed({}), BM25Retriever(same), other])
    with pytest.raises(ConfigError, match="give 2, one per retriever"):
        HybridRetriever([Fixed({}), Fixed({})], [1])


RANKINGS = st.lists(
    st.lists(st.sampled_from("abcdefghij"), max_size=12).map("".join), min_size=1, max_size=4
)


@given(RANKINGS, st.integers(0, 100), st.data())
def test_fusion_is_the_formula_for_any_rankings(
    letters: list[str], rrf_k: int, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(letters), max_size=len(letters)))
    parts = [Fixed({"q": ranking}) for ranking in letters]
    [fused] = HybridRetriever(parts, weights, rrf_k=rrf_k).search(["q"], 20)
    exact: dict[str, Fraction] = {}
    for ranking, weight in zip(letters, weights, strict=True):
        for rank, letter in enumerate(ranking, start=1):
            if letter not in ranking[: rank - 1]:
                exact[letter] = exact.get(letter, Fraction(0)) + Fraction(weight, rrf_k + rank)
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
    inner = Fixed({"q": "abcdefgh", "": "", "p": "ab"})
    found = RerankedRetriever(inner, reranker, depth=6).search(["q", "", "p"], 5)
    assert [ids(ranking) for ranking in found] == ["efcda", "", "ab"]
    assert [document.score for document in found[0]] == [2, 2, 1, 1, 0]
    assert reranker.calls == [[*(("q", letter) for letter in "abcdef"), ("p", "a"), ("p", "b")]]
    assert RerankedRetriever(inner, reranker).search([""], 2) == [[]]
    assert len(reranker.calls) == 1

"""Reciprocal rank fusion: the formula, ties, weights, what its parts may do wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.corpus import Corpus
from ssp_env.search.fuse import DEPTH, HybridRetriever, fuse
from ssp_env.types import Document


class Fixed:
    """A retriever whose rankings are written down."""

    def __init__(self, rankings: dict[str, str]) -> None:
        self.rankings = rankings
        self.asked: list[tuple[list[str], int]] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        self.asked.append((list(queries), k))
        return [documents(self.rankings[query])[:k] for query in queries]


def documents(letters: str) -> list[Document]:
    return [Document(letter, f"title {letter}", "", 1.0) for letter in letters]


def ids(ranking: Sequence[Document]) -> str:
    return "".join(document.id for document in ranking)


def test_each_part_is_asked_once_and_deep_enough_and_the_first_decides_equal_scores() -> None:
    parts = [Fixed({"q": "ab", "p": "", "r": "c"}), Fixed({"q": "ba", "p": "", "r": ""})]
    answers = HybridRetriever(parts).search(["q", "p", "q", "r"], 1)
    assert [ids(ranking) for ranking in answers] == ["a", "", "a", "c"]
    HybridRetriever(parts).search(["q"], DEPTH + 5)
    for part in parts:
        assert part.asked == [(["q", "p", "q", "r"], DEPTH), (["q"], DEPTH + 5)]


def test_a_part_that_fails_or_forgets_a_query_is_no_ranking() -> None:
    class Down:
        def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
            raise ServiceError("search", "down")

    class Short:
        def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
            return [[]]

    good = Fixed({"q": "a", "p": "b"})
    with pytest.raises(ServiceError, match="down"):
        HybridRetriever([good, Down()]).search(["q"], 3)
    with pytest.raises(UsageError, match="1 rankings for 2 queries"):
        HybridRetriever([good, Short()]).search(["q", "p"], 3)


@pytest.mark.parametrize(
    ("parts", "settings", "field"),
    [
        ([], {}, "retrievers"),
        ([Fixed({}), "bm25"], {}, "retrievers"),
        *(([Fixed({})], {"rrf_k": value}, "rrf_k") for value in (-1, math.nan, math.inf)),
        *(
            ([Fixed({}), Fixed({})], {"weights": weights}, "weights")
            for weights in ([1], [1, 0], [1, -1], [1, math.nan], [1, math.inf], [1, 1, 1])
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(
    parts: list[Any], settings: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        HybridRetriever(parts, **settings)
    assert raised.value.field == field


def test_parts_over_different_corpora_are_refused() -> None:
    passages = [Document("a", "Vienna", "capital"), Document("b", "Danube", "river")]
    one, same = Corpus(passages, "one"), Corpus(passages, "same")
    other = BM25Retriever(Corpus(passages[::-1], "other"))
    HybridRetriever([BM25Retriever(one), BM25Retriever(same), BM25Retriever(one), Fixed({})])
    with pytest.raises(ConfigError, match=r"retrievers = \['one', .*: these corpora differ"):
        HybridRetriever([BM25Retriever(one), Fixed({}), BM25Retriever(same), other])


rankings = st.lists(
    st.lists(st.sampled_from("abcdefghij"), max_size=12).map("".join), min_size=1, max_size=4
)


@given(rankings, st.integers(0, 100), st.data())
def test_fusion_is_the_formula_for_any_rankings(
    letters: list[str], rrf_k: int, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(letters), max_size=len(letters)))
    fused = fuse([documents(ranking) for ranking in letters], weights, rrf_k)
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

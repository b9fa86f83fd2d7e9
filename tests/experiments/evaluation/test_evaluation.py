"""Retrievers in the place of the real one, and scores of several attempts."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.evaluation.retrievers import LyingRetriever, planted_answers, with_retriever
from experiments.evaluation.scores import majority, pass_at_k
from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError
from ssp_env.game.rules import Rules
from ssp_env.types import Document, Question

ASKED = [
    Question("1", "which city?", ("Rome", "the eternal city"), "places"),
    Question("2", "and which capital?", ("Rome", "Roma"), "places"),
    Question("3", "which of the two?", ("roma", "Rome"), "places"),
    Question("4", "which third?", ("Oslo",), "places"),
    Question("5", "who?", ("Ada",), "people"),
]


@pytest.fixture(scope="module")
def rules() -> Rules:
    return set_up({"world": "mini"}).rules


class Fixed:
    """Finds the same passage for everything."""

    def search(self, queries: list[str], k: int) -> list[list[Document]]:
        text = "Rome, like new york and New York City, is no Romeo."
        return [[Document("d", "Rome", text)] for _ in queries]


@pytest.mark.parametrize("seed", range(3))
def test_planted_answers_are_another_question_s_of_the_group(seed: int) -> None:
    planted = planted_answers(ASKED, seed)
    assert {planted[w] for w in ("Rome", "the eternal city", "Roma", "roma")} == {"Oslo"}
    assert planted["Oslo"].casefold() in ("rome", "roma")
    assert "Ada" not in planted


def test_the_lie_is_consistent_and_spares_other_words() -> None:
    liar = LyingRetriever(Fixed(), {"Rome": "Oslo", "New York": "Bonn", "New York City": "Bonn"})
    ((found,),) = liar.search(["anything"], 1)
    assert (found.title, found.text) == ("Oslo", "Oslo, like Bonn and Bonn, is no Romeo.")
    assert found.id == "d"


def test_rules_get_another_retriever(rules: Rules) -> None:
    assert with_retriever("empty", rules, ASKED, 0).retriever.search(["Rome"], 3) == [[]]
    liar = with_retriever("lying", replace(rules, retriever=Fixed()), ASKED, 0)
    ((found, *_),) = liar.retriever.search(["Rome"], 3)
    assert found.title == "Oslo"
    with pytest.raises(ConfigError, match="two different answers"):
        with_retriever("lying", rules, ASKED[4:], 0)


@settings(deadline=None)
@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.data())
def test_pass_at_k_counts_all_draws(made: tuple[int, int], data: st.DataObject) -> None:
    right, attempts = made
    k = data.draw(st.integers(1, attempts))
    draws = list(combinations(range(attempts), k))
    hit = sum(any(i < right for i in draw) for draw in draws)
    assert pass_at_k(right, attempts, k) == pytest.approx(hit / len(draws))


@pytest.mark.parametrize(
    ("answers", "right", "wins"),
    [
        (["Paris", "paris.", "Rome"], [True, True, False], True),
        (["Rome", "Paris", "the Rome"], [False, True, False], False),
        (["Paris", "Rome"], [True, False], True),
        (["Rome", "Paris"], [False, True], False),
        ([None, "Paris", None], [False, True, False], True),
        ([None, None], [False, False], False),
    ],
)
def test_majority(answers: list[str | None], right: list[bool], wins: bool) -> None:
    assert majority(answers, right) is wins

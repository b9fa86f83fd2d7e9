"""Retrievers in the place of the real one."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from experiments.evaluation.interventions import (
    LyingRetriever,
    RandomRetriever,
    intervene,
    planted_answers,
)
from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError
from ssp_env.game.rules import Rules
from ssp_env.types import Document, Question

ASKED = [
    Question("1", "which city?", ("New York City", "New York"), "places"),
    Question("2", "which other?", ("Rome",), "places"),
    Question("3", "which third?", ("Oslo",), "places"),
    Question("4", "who?", ("Ada",), "people"),
]


@pytest.fixture(scope="module")
def rules() -> Rules:
    return set_up({"world": "mini"}).rules


class Fixed:
    """Finds the same passage for everything."""

    def search(self, queries: list[str], k: int) -> list[list[Document]]:
        text = "Rome, like new york and New York City, is no Romeo."
        return [[Document("d", "Rome", text)] for _ in queries]


def test_planted_answers_are_another_question_s_of_the_group() -> None:
    planted = planted_answers(ASKED, 0)
    assert set(planted) == {"New York City", "New York", "Rome", "Oslo"}
    assert planted["New York City"] == planted["New York"]
    assert len({planted[q.answers[0]] for q in ASKED[:3]}) == 3
    assert all(planted[q.answers[0]] != q.answers[0] for q in ASKED[:3])
    assert planted_answers(ASKED, 0) == planted


def test_no_lie_is_the_truth() -> None:
    asked = [
        Question("1", "which city?", ("Rome", "the eternal city"), "places"),
        Question("2", "and which capital?", ("Rome", "Roma"), "places"),
        Question("3", "which of the two?", ("roma", "Rome"), "places"),
        Question("4", "which third?", ("Oslo",), "places"),
    ]
    for seed in range(5):
        planted = planted_answers(asked, seed)
        assert {planted[w] for w in ("Rome", "the eternal city", "Roma", "roma")} == {"Oslo"}
        assert planted["Oslo"] != "Oslo"


def test_the_lie_is_consistent_and_spares_other_words() -> None:
    liar = LyingRetriever(Fixed(), {"Rome": "Oslo", "New York": "Bonn", "New York City": "Bonn"})
    (((found,),),) = ([*liar.search(["anything"], 1)],)
    assert (found.title, found.text) == ("Oslo", "Oslo, like Bonn and Bonn, is no Romeo.")
    assert found.id == "d"


def test_random_passages_hang_on_the_query_alone(rules: Rules) -> None:
    random = RandomRetriever(rules.corpus, seed=0)
    first, second = random.search(["a", "b"], 3)
    assert random.search(["b"], 3) == [second]
    assert first != second
    assert len({document.id for document in first}) == 3
    assert RandomRetriever(rules.corpus, seed=1).search(["a"], 3) != [first]
    assert len(RandomRetriever(rules.corpus[:2], seed=0).search(["a"], 3)[0]) == 2


def test_interventions_are_put_into_rules(rules: Rules) -> None:
    assert intervene("empty", rules, ASKED, 0).checked.search(["Rome"]) == [[]]

    began = time.perf_counter()
    late = intervene("delayed:0.05", rules, ASKED, 0).checked.search(["Rome"])
    assert time.perf_counter() - began >= 0.05
    assert late == rules.checked.search(["Rome"])

    liar = intervene("lying", replace(rules, retriever=Fixed()), ASKED, 0)
    (((found, *_),),) = ([*liar.checked.search(["Rome"])],)
    assert found.title == planted_answers(ASKED, 0)["Rome"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("emtpy", "did you mean 'empty'"),
        ("delayed:x", "seconds above 0"),
        ("delayed:0", "seconds above 0"),
        ("empty:3", "empty"),
        ("lying", "two different answers"),
    ],
)
def test_bad_names(name: str, says: str, rules: Rules) -> None:
    with pytest.raises(ConfigError, match=says):
        intervene(name, rules, ASKED[3:], 0)

"""Retrievers in the place of the real one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.evaluation.retrievers import (
    LyingRetriever,
    RandomRetriever,
    planted_answers,
    with_retriever,
)
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


def test_random_passages_depend_on_the_query_alone(rules: Rules) -> None:
    random = RandomRetriever(rules.corpus, seed=0)
    first, second = random.search(["a", "b"], 3)
    assert random.search(["b"], 3) == [second] != [first]
    assert len({document.id for document in first}) == 3
    assert RandomRetriever(rules.corpus, seed=1).search(["a"], 3) != [first]


def test_rules_get_another_retriever(rules: Rules) -> None:
    assert with_retriever("empty", rules, ASKED, 0).retriever.search(["Rome"], 3) == [[]]
    liar = with_retriever("lying", replace(rules, retriever=Fixed()), ASKED, 0)
    ((found, *_),) = liar.retriever.search(["Rome"], 3)
    assert found.title == "Oslo"
    for name, says in {"emtpy": "did you mean 'empty'", "lying": "two different answers"}.items():
        with pytest.raises(ConfigError, match=says):
            with_retriever(name, rules, ASKED[4:], 0)

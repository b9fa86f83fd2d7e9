"""Rule filters: what each of them refuses, and that its name is the reason."""

from __future__ import annotations

from typing import get_args

import pytest
from scripted import MINI

from ssp_env.game.config import DEFAULT_FILTERS, FilterName, GameConfig
from ssp_env.game.filters import FILTERS, Proposal
from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Limits, SearchRecord, Trajectory
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.types import Document, GroundTruth, Role

CONFIG = MINI.replace(question_chars=(10, 20))
TRUTH = GroundTruth("g", "New York", ("NYC", "Big Apple"))
FOUND = SearchRecord("cities", (Document("d", "", "text"),))
EMPTY = SearchRecord("cities", ())


def fails(rule: str, question: str, *searches: SearchRecord, config: GameConfig = CONFIG) -> bool:
    trajectory = Trajectory(Limits.of(Role.PROPOSER, config, ByteTokenizer(), Tags()), [1])
    trajectory.searches.extend(searches)
    return FILTERS[rule](Proposal(question, TRUTH, trajectory, config))


def test_names_are_reason_codes() -> None:
    assert tuple(FILTERS) == get_args(FilterName), "the config names what ships"
    assert set(DEFAULT_FILTERS) <= set(FILTERS)
    assert all(name == rule.__name__ for name, rule in FILTERS.items())


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("empty_question", ["é?", "東"], ["", " ?! ", "‹›", "\u3164\u200b?"]),
        ("short_question", ["x y z 6789", "Which  city\u200b is it?"], ["x y z 678", "x y  z 678"]),
        ("few_words", ["a b c d e f g h i j"], ["a b c d e f g h  i", ""]),
        ("short_question", [], [f"Who is{padding * 10}?" for padding in " \u200b\x00\u3164\n"]),
        ("long_question", ["x" * 20], ["x" * 21, f"Who{' ' * 20}?"]),
        ("spoiler", ["Is it York?", "In NYCity?"], ["Is it New York?", "nyc?", "The BIG-APPLE?"]),
    ],
)
def test_questions(rule: str, good: list[str], bad: list[str]) -> None:
    assert not any(fails(rule, question) for question in good)
    assert all(fails(rule, question) for question in bad)


def test_past_questions_are_known_again_in_slightly_other_words() -> None:
    past = "Which river runs through the old town of the capital of Austria?"
    trajectory = Trajectory(Limits.of(Role.PROPOSER, CONFIG, ByteTokenizer(), Tags()), [1])

    def repeats(question: str, *asked: str) -> bool:
        return FILTERS["past_question"](Proposal(question, TRUTH, trajectory, CONFIG, asked))

    assert repeats(past, "Who is it?", past)
    assert repeats(f"Again: {past.upper()}  ", past)
    assert repeats(past.replace("river", "ri\u200bver"), past)
    assert not repeats(past)
    assert not repeats(past.replace("the old town of ", ""), past)


def test_searches() -> None:
    two = CONFIG.replace(min_searches=2)
    assert fails("no_search", "?")
    assert fails("no_search", "?", EMPTY, EMPTY)
    assert not fails("no_search", "?", EMPTY, FOUND)
    assert fails("no_search", "?", FOUND, config=two)
    assert not fails("no_search", "?", FOUND, EMPTY, config=two)

    assert not fails("repeated_query", "?", FOUND, SearchRecord("city", ()))
    assert fails("repeated_query", "?", FOUND, SearchRecord(" CITIES\n", ()))
    assert fails("repeated_query", "?", FOUND, SearchRecord("ｃｉｔ\u200bies", ()))

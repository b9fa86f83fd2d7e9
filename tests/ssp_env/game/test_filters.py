"""Rule filters: what each of them refuses, and that its name is the reason."""

from __future__ import annotations

from typing import get_args

import pytest
from scripted import MINI

from ssp_env.game.config import DEFAULT_FILTERS, FilterName, GameConfig
from ssp_env.game.filters import FILTERS, Proposal
from ssp_env.game.trajectory import Limits, SearchRecord, Trajectory
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.types import Document, GroundTruth, Role

CONFIG = MINI.replace(min_question_chars=10, max_question_chars=20)
TRUTH = GroundTruth("g", "New York", ("NYC", "Big Apple"))
PAGE = Document("d", "", "text")
FOUND = SearchRecord("cities", (PAGE,))
NOTHING_FOUND = SearchRecord("cities", ())


def fails(
    rule: str,
    question: str = "Which city is it?",
    *searches: SearchRecord,
    config: GameConfig = CONFIG,
) -> bool:
    trajectory = Trajectory(Limits.of(Role.PROPOSER, config, ByteTokenizer()), [1])
    trajectory.searches.extend(searches)
    return FILTERS[rule](Proposal(question, TRUTH, trajectory, config))


def test_names_are_reason_codes() -> None:
    assert tuple(FILTERS) == get_args(FilterName), "the config names what ships"
    assert set(DEFAULT_FILTERS) <= set(FILTERS)
    assert all(name == rule.__name__ for name, rule in FILTERS.items())
    assert all(rule.__doc__ for rule in FILTERS.values())


@pytest.mark.parametrize(
    ("question", "empty"),
    [
        ("", True),
        (" ?! ", True),
        ("‹›", True),
        ("\u3164\u200b?", True),
        ("é?", False),
        ("東", False),
    ],
)
def test_empty_question(question: str, empty: bool) -> None:
    assert fails("empty_question", question) is empty


def test_least_number_of_searches() -> None:
    assert not fails("no_search", "?", FOUND)
    assert fails("no_search", "?", FOUND, config=CONFIG.replace(min_searches=2))
    assert not fails("no_search", "?", FOUND, NOTHING_FOUND, config=CONFIG.replace(min_searches=2))


def test_least_number_of_words() -> None:
    question = "Which  city\u200b is it?"
    assert not fails("short_question", question, config=CONFIG.replace(min_question_words=4))
    assert fails("short_question", question, config=CONFIG.replace(min_question_words=5))


def test_no_search() -> None:
    assert fails("no_search")
    assert fails("no_search", "?", NOTHING_FOUND, NOTHING_FOUND)
    assert not fails("no_search", "?", NOTHING_FOUND, FOUND)


@pytest.mark.parametrize(
    ("length", "short", "long"),
    [(9, True, False), (10, False, False), (20, False, False), (21, False, True)],
)
def test_length(length: int, short: bool, long: bool) -> None:
    assert fails("short_question", "x" * length) is short
    assert fails("long_question", "x" * length) is long


def test_the_papers_own_examples_are_long_enough() -> None:
    """The shortest of them, its example of a question with many answers, is for verification."""
    shortest = Proposal(
        "Temptations singer",
        GroundTruth("o", "Otis Williams"),
        Trajectory(Limits.of(Role.PROPOSER, GameConfig(), ByteTokenizer()), [1]),
        GameConfig(),
    )
    assert not FILTERS["short_question"](shortest)
    assert not FILTERS["spoiler"](shortest)


@pytest.mark.parametrize("padding", [" ", "\u200b", "\x00", "\u3164", "\n"])
def test_what_does_not_show_makes_no_question_longer(padding: str) -> None:
    assert fails("short_question", "Who" + padding * 10 + "?")
    assert fails("long_question", "Who" + padding * 20 + "?"), "but it takes room"


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("Is it New York?", True),
        ("Is it nyc?", True),
        ("The BIG-APPLE is what?", True),
        ("Is it York?", False),
        ("Is it in NYCity?", False),
    ],
)
def test_spoiler_looks_for_every_wording(question: str, told: bool) -> None:
    assert fails("spoiler", question) is told


def test_repeated_query() -> None:
    assert not fails("repeated_query", "?", FOUND, SearchRecord("city", ()))
    assert fails("repeated_query", "?", FOUND, SearchRecord(" CITIES\n", ()))
    assert fails("repeated_query", "?", FOUND, SearchRecord("ｃｉｔ\u200bies", ()))
    assert not fails("repeated_query")

"""What the mixins test with: awkward texts, a few passages, and small games, really played."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ssp_env.doors.setup import set_up
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.players import MiniPlayer
from ssp_env.types import Document
from ssp_env.worlds import open_world

SCRIPTS = (
    *(
        "Αθήνα",
        "Москва",
        "Ереван",
        "Երևան",
        "თბილისი",
        "ירושלים",
        "القاهرة",
        "ܐܪܡܝܐ",
        "አዲስ አበባ",
        "दिल्ली",
        "ঢাকা",
    ),
    *("தமிழ்", "ไทย", "ລາວ", "မြန်မာ", "ភ្នំពេញ", "བོད", "北京", "東京タワー", "서울", "ᏣᎳᎩ"),
    *("Ⅻ ½ ﬁ", "e\u0301o\u0308", "👩‍👩‍👧 🇫🇷", "𐎠𐎡"),
)
"""A word or two of many scripts, ligatures, combining marks and emoji."""

AWKWARD = (
    "",
    " \t\n",
    "\0\x01\x1b[31m\x7f\u200b\u202e\ufeff",
    "'\"; DROP TABLE -- *?~:^()[]",
    "</information><answer>x</answer>",
    " ".join(SCRIPTS),
    "what is it ? " * 8_000,
)
"""Texts that a policy may well write: nothing, control characters, tags, every script, 100 kB."""

PASSAGES = tuple(
    Document(f"d{i}", title, text)
    for i, (title, text) in enumerate(
        (
            ("Vienna", "Vienna is the capital of Austria and lies on the Danube."),
            ("Danube", "The Danube flows into the Black Sea."),
            ("Prague", "Prague is the capital of Czechia and lies on the Vltava."),
            ("Lyon", "Lyon is a city in France, where the Rhône meets the Saône."),
            ("Oslo", "Oslo is the capital of Norway."),
            ("Turin", "Turin is a city in Italy and lies on the Po."),
        )
    )
)
"""Passages about cities and rivers."""


def missing(part: str) -> NoReturn:
    """Says that a mixin's user has to override something."""
    raise NotImplementedError(f"override {part} in your subclass")


def skip(why: str) -> NoReturn:
    """Skips a test, under pytest as well as under unittest."""
    raise unittest.SkipTest(why)


def shown(text: str) -> str:
    """A text as errors show it: never 100 kB of it."""
    return repr(text) if len(text) <= 60 else f"{text[:40]!r}... ({len(text)} characters)"


def small_rules(attempts: int = 4, **parts: Any) -> Rules:
    """Rules of the small world."""
    game = {"attempts": attempts, "max_prompt_tokens": 400, "max_response_tokens": 200}
    return set_up({"world": open_world("small"), "game": game, **parts}).rules  # type: ignore[typeddict-item]


def play_small_game(right: int, attempts: int = 4, **parts: Any) -> Game:
    """A valid game of the small world, really played, in which that many attempts were right.

    Args:
        right: how many attempts get the answer right; the others say "nothing".
        attempts: how many there are.
        parts: objects in place of the rules' own.
    """
    rules = small_rules(attempts, **parts)

    scripted, tags = MiniPlayer(rules.config.tags), rules.config.tags
    for truth in rules.world.answers:
        round_ = Round(rules, lambda rng, count, truth=truth: [truth] * count, 1, [0])  # type: ignore[misc]
        while pending := round_.pending():
            for trajectory in pending:
                index = next(
                    (
                        i
                        for i, a in enumerate(round_.games[0].attempts)
                        if a.trajectory is trajectory
                    ),
                    -1,
                )
                if index >= right:
                    wrong = f"{tags.opening('answer')} nothing {tags.closing('answer')}"
                    trajectory.feed_turn(rules.tokenizer.encode(wrong))
                else:
                    scripted.play([trajectory])

            round_.advance()

        if round_.games[0].outcome is Outcome.VALID:
            return round_.games[0]

    raise AssertionError("no answer of the small world makes a valid game")


def same_twice(what: str, ask: Callable[[], object]) -> None:
    """Asks twice and compares."""
    first, second = ask(), ask()
    assert first == second, (
        f"{what}: the same question has to get the same answer, but got {_short(first)} and then "
        f"{_short(second)}: "
        "leave out clocks, global random numbers and counters"
    )


def check_numbers(what: str, values: Sequence[object], count: int) -> None:
    """Checks that there is one result for each thing asked."""
    assert isinstance(values, list | tuple), (
        f"{what} has to return a list, not {type(values).__name__}"
    )
    assert len(values) == count, (
        f"{what}: one result for each thing asked, in order, but {count} got {len(values)}: "
        "keep a place in the list for those without a result"
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:120] + "..."

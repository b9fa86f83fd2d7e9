"""Schedules of the game's numbers: what holds at which step, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.schedule import NUMBERS, all_rules, at_step, idle_points

GAME = GameConfig(asked_searches=(1, 2))


def test_a_number_holds_from_its_step_on() -> None:
    schedules = {"max_searches": [(2, 3), (5, 10)], "asked_searches": [(5, (1, 3))]}
    seen = [at_step(GAME, schedules, step) for step in range(7)]
    assert [rules.max_searches for rules in seen] == [10, 10, 3, 3, 3, 10, 10]
    assert [rules.asked_searches[1] for rules in seen] == [2, 2, 2, 2, 2, 3, 3]
    assert at_step(GAME, {}, 3) is GAME
    steps = [step for step, _ in all_rules(GAME, schedules)]
    assert steps == [2, 5]


def test_points_behind_the_last_step_are_told() -> None:
    schedules = {"max_searches": [(2, 3), (5, 4), (9, 5)], "attempts": [(4, 2)]}
    (line,) = idle_points(schedules, 4)
    assert line.startswith("learning.schedules.max_searches has no effect from step 5, 9 on")
    assert not [*idle_points(schedules, 9)]


def test_numbers_and_pairs_of_them_can_change_and_nothing_else() -> None:
    assert {"attempts", "noise_documents", "max_searches", "asked_searches"} <= {*NUMBERS}
    assert not {"closed_book", "prompts", "filters", "verifier"} & {*NUMBERS}


@pytest.mark.parametrize(
    ("schedules", "field", "fix"),
    [
        ({"max_serches": [(1, 2)]}, "max_serches", "did you mean 'max_searches'"),
        ({"closed_book": [(1, 0)]}, "closed_book", "no number of the game"),
        ({"max_searches": []}, "max_searches", "give points as"),
        ({"max_searches": [(5, 2), (1, 3)]}, "max_searches", "in their order"),
        ({"max_searches": [(1, 3), (1, 4)]}, "max_searches", "each step once"),
        ({"max_searches": [(1, 0)]}, "max_searches", "from step 1 on: "),
        ({"max_searches": [(7, 1)]}, "game.asked_searches", "from step 7 on: "),
        ({"attempts": [(1, 6)]}, "attempts", r"raise game\.attempts, which is 5"),
        ({"asked_searches": [(1, 2)]}, "asked_searches", r"such as that of game\.asked_searches"),
        ({"attempts": [(1, 2.5)]}, "attempts", "from step 1 on"),
    ],
)
def test_a_schedule_that_no_game_could_follow_is_refused(
    schedules: dict[str, Any], field: str, fix: str
) -> None:
    with pytest.raises(ConfigError, match=fix) as refused:
        list(all_rules(GAME, schedules))
    assert refused.value.field in (field, f"learning.schedules.{field}")

"""Intervals and comparisons, against tables and the normal approximation; accuracies by group."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ssp_agents.metrics import Accuracy, accuracies
from ssp_env.game.outcome import Ending
from ssp_env.game.record import GameRecord, TrajectoryRecord
from ssp_env.judge.base import Verdict
from ssp_env.types import Question, Role
from ssp_experiments.stats import compare, over_questions, over_runs, share


@pytest.mark.parametrize(
    ("right", "asked", "low", "high"),
    # Wilson's score interval as statistics texts tabulate it.
    [
        (0, 10, 0.0, 0.2775),
        (75, 150, 0.4209, 0.5791),
        (0, 0, 0.0, 1.0),
    ],
)
def test_shares(right: int, asked: int, low: float, high: float) -> None:
    found = share(right, asked)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)
    assert math.isnan(found.mean) if not asked else found.mean == right / asked


def test_student_s_interval_over_runs() -> None:
    found = over_runs([0.4, 0.6, 0.8])
    assert (found.mean, found.half) == pytest.approx((0.6, 4.303 * 0.2 / 3**0.5), abs=1e-3)
    assert found.interval == [found.low, found.high]
    one = over_runs([0.4])
    assert (one.mean, one.half, one.interval) == (0.4, None, None)


def test_an_interval_of_many_questions_is_the_normal_one() -> None:
    found = over_questions([1.0, 0.5, 0.0, 0.5] * 1000, np.random.default_rng(0))
    assert found.low < found.mean == 0.5 < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(0.125 / 4000), rel=0.1)


def test_a_difference_in_every_question_is_no_chance() -> None:
    found = compare([0.0] * 40, [0.5] * 40, np.random.default_rng(0))
    assert (found["better"], found["worse"]) == (40, 0)
    low, high = found["interval"]
    assert 0.3 < low < found["difference"] == 0.5 < high
    assert found["p"] < 0.001


def record(group: str, outcome: str, *right: bool) -> GameRecord:
    empty: dict[str, Any] = dict.fromkeys(GameRecord.__dataclass_fields__)
    # One's own reward may pay wrong answers a little, and right ones nothing.
    plays = tuple(
        TrajectoryRecord(
            Role.SOLVER, (), (), Ending.ACTION, "x", Verdict(correct), 0.0 if correct else -0.05
        )
        for correct in right
    )
    held = {"question_group": group, "outcome": outcome, "trajectories": plays}
    return GameRecord(**{**empty, **held})


def test_accuracy_is_the_first_attempt_s_by_group() -> None:
    asked = [Question("q", "what ?", ("x",), group) for group in ("2", "1", "2", "2", "1", "3")]
    played = [record("2", "valid", True), record("1", "valid", False, True)]
    played += [record("2", "valid", False), record("2", "void"), record("1", "invalid")]
    found = {"1": Accuracy(0, 2), "2": Accuracy(1, 2, 1), "3": Accuracy(0, 0)}
    assert accuracies(played, asked) == found

"""Accuracies and their intervals."""

from __future__ import annotations

import math
from typing import Any

from experiments.run.recorder import Accuracy, accuracies
from ssp_env.game.outcome import Ending
from ssp_env.game.record import GameRecord, TrajectoryRecord
from ssp_env.types import Question, Role


def record(outcome: str, *rewards: float | None) -> GameRecord:
    empty: dict[str, Any] = dict.fromkeys(GameRecord.__dataclass_fields__)
    plays = tuple(
        TrajectoryRecord(Role.SOLVER, (), (), Ending.ACTION, "x", reward=reward)
        for reward in rewards
    )
    return GameRecord(**{**empty, "outcome": outcome, "trajectories": plays})


def question(group: str) -> Question:
    return Question("q", "what ?", ("x",), group)


def test_accuracy_is_the_first_attempt_s_by_group() -> None:
    asked = [question(group) for group in ("2", "1", "2", "2", "1")]
    played = [
        record("valid", 1.0),
        record("valid", 0.0, 1.0),
        record("valid", 0.0),
        record("void"),
        record("invalid"),
    ]
    assert accuracies(asked, played) == {"1": Accuracy(0, 2), "2": Accuracy(1, 2, 1)}


def test_nothing_asked_is_nothing_known() -> None:
    nothing = Accuracy(0, 0, 4)
    assert math.isnan(nothing.value)
    assert nothing.interval() == (0.0, 1.0)

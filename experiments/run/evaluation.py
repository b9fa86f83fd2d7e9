"""Accuracy on questions that were never trained on, by group, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.stats import share
from ssp_env.game.record import GameRecord
from ssp_env.types import Question


@dataclass(frozen=True)
class Accuracy:
    """Share of right answers in a group of questions."""

    right: int
    asked: int
    void: int = 0
    """Questions that an outage hit; they are not among those asked."""

    @property
    def value(self) -> float:
        """The share; not a number if nothing was asked."""
        return self.right / self.asked if self.asked else math.nan

    def interval(self) -> tuple[float, float]:
        """Wilson's interval of 95%; everything is possible if nothing was asked."""
        found = share(self.right, self.asked)
        return found.low, found.high


def accuracies(questions: Sequence[Question], records: Sequence[GameRecord]) -> dict[str, Accuracy]:
    """Pass@1 of each group, from the first attempt at each question.

    Args:
        questions: what was asked.
        records: one game per question, in the same order.
    """
    tallies: dict[str, list[int]] = {}

    for question, record in zip(questions, records, strict=True):
        tally = tallies.setdefault(question.group, [0, 0, 0])
        if record.outcome == "void":
            tally[2] += 1
            continue

        solver = [trajectory for trajectory in record.trajectories if trajectory.role == "solver"]
        tally[0] += bool(solver and solver[0].reward)
        tally[1] += 1

    return {group: Accuracy(*tally) for group, tally in sorted(tallies.items())}

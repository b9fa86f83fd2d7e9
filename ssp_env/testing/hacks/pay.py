"""What players were paid, how sure that is, and whether a cheat pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

_Z = 1.96
"""Half the width of a 95% interval, in standard errors."""


class Finding(StrEnum):
    """What the games of a cheat show."""

    HELD = "held"
    """It pays no more than an honest player's margin allows: the interval ends below it."""
    PAYS = "pays"
    """It pays more: the interval begins above the margin."""
    UNSURE = "unsure"
    """The interval holds the margin; more games would decide."""
    NO_RESULT = "no result"
    """So many of its games are void that either may be true."""
    NOT_PLAYED = "not played"
    """These rules do not have what it cheats."""


@dataclass(frozen=True)
class Interval:
    """A figure with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Pay:
    """What a role was paid per game."""

    paid: tuple[float, ...]
    """Reward of each game that no outage hit; 0 for a solver that was not asked."""
    void: int
    """Games that an outage hit, as a whole or in one of their attempts."""

    @property
    def mean(self) -> float:
        """The mean; not a number if all games are void."""
        return sum(self.paid) / len(self.paid) if self.paid else math.nan


def more_than(cheat: Sequence[float], honest: Sequence[float]) -> Interval:
    """How much more the mean of one sample is than that of another, with a 95% interval.

    The interval is that of Agresti and Caffo (2000), for figures between bounds in place of shares:
    each sample is given one lowest and one highest value more. It therefore has a width even where
    all games pay alike.

    Args:
        cheat: rewards of a cheater's games; at least one.
        honest: those of an honest player's; at least one.
    """
    bounds = [min(0.0, *cheat, *honest), max(1.0, *cheat, *honest)]
    left, right = np.array([*cheat, *bounds]), np.array([*honest, *bounds])

    error = math.sqrt(left.var() / len(left) + right.var() / len(right))
    centre = float(left.mean() - right.mean())
    return Interval(
        float(np.mean(cheat) - np.mean(honest)), centre - _Z * error, centre + _Z * error
    )


def find(cheat: Pay, honest: Pay, margin: float) -> tuple[Finding, Interval | None]:
    """Whether a cheat pays more than an honest player by more than a margin.

    Void games count for the cheat: they might all have been paid in full.

    Args:
        cheat: what the role that gains was paid.
        honest: what an honest player was paid in that role; not all games are void.
        margin: how much more is allowed.
    """
    if not cheat.paid:
        return Finding.NO_RESULT, None

    more = more_than(cheat.paid, honest.paid)
    if more.low > margin:
        return Finding.PAYS, more

    best = max(1.0, *cheat.paid)
    at_best = more_than([*cheat.paid, *[best] * cheat.void], honest.paid)
    if at_best.high <= margin:
        return Finding.HELD, more
    return (Finding.NO_RESULT if cheat.void else Finding.UNSURE), more

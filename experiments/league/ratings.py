"""Elo by role, and how much each player loses to the best of the others.

All intervals are of 95%, by bootstrap over answers.

The proposer wins an attempt if its question is valid and the attempt is wrong, which is what 1-p
pays. Proposers and solvers are rated on one scale (Bradley and Terry 1952, "Rank Analysis of
Incomplete Block Designs"): a proposer rated d wins against a solver rated r with probability
1 / (1 + 10^((r - d) / 400)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MEAN = 1000.0
"""Rating of the mean solver: only differences mean something."""
ELO = 400.0 / np.log(10.0)
"""Rating points per unit of log odds."""
PRIOR = 0.5
"""Games that each side is taken to have won in each pairing beside those played, so that a player
who always wins has a finite rating."""
RESAMPLES = 1000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float


def wins(solved: Floats) -> Floats:
    """The share of attempts that the proposer won, of shape (proposers, solvers, answers).

    Args:
        solved: share of right attempts, of the same shape; NaN without a valid question.
    """
    return np.where(np.isnan(solved), 0.0, 1.0 - np.nan_to_num(solved))


def rate(won: Floats, games: int) -> tuple[Floats, Floats]:
    """The most likely ratings of proposers and of solvers.

    Args:
        won: the share of games that the proposer won, of shape (proposers, solvers).
        games: how many each pairing played.
    """
    proposers, solvers = won.shape
    target = (won * games + PRIOR) / (games + 2 * PRIOR)

    # Newton's method on the log-likelihood. The last solver is held at 0, since only differences
    # can be told; the weights of all pairings are equal.
    design = np.zeros((proposers * solvers, proposers + solvers))
    for row in range(proposers):
        for column in range(solvers):
            design[row * solvers + column, [row, proposers + column]] = 1.0, -1.0
    design, strength = design[:, :-1], np.zeros(proposers + solvers - 1)
    for _ in range(50):
        expected = 1.0 / (1.0 + np.exp(-design @ strength))
        slope = design.T @ (target.ravel() - expected)
        curvature = (design * (expected * (1.0 - expected))[:, None]).T @ design
        change = np.linalg.solve(curvature, slope)
        # Shortened where it would overshoot.
        strength += change * min(1.0, 2.0 / max(1e-12, float(np.abs(change).max())))
        if np.abs(change).max() < 1e-8:
            break

    rating = ELO * np.append(strength, 0.0)
    rating += MEAN - rating[proposers:].mean()
    return rating[:proposers], rating[proposers:]


def ratings(solved: Floats, attempts: int, seed: int) -> tuple[list[Interval], list[Interval]]:
    """Ratings of proposers and of solvers, with intervals by bootstrap over answers.

    All games about an answer are drawn together, for those about one question are alike.

    Args:
        solved: see :func:`wins`.
        attempts: how often each question was tried.
        seed: of the bootstrap.
    """
    won, answers = wins(solved), solved.shape[2]
    point = rate(won.mean(axis=2), answers * attempts)

    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(RESAMPLES):
        chosen = rng.integers(answers, size=answers)
        drawn.append(np.concatenate(rate(won[:, :, chosen].mean(axis=2), answers * attempts)))
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)

    found = [
        Interval(float(value), float(least), float(most))
        for value, least, most in zip(np.concatenate(point), low, high, strict=True)
    ]
    return found[: len(point[0])], found[len(point[0]) :]


@dataclass(frozen=True)
class Exploited:
    """What the best opponent of the league takes from a player, against what its own step takes.

    Gains are differences in the proposer's mean reward, with intervals by bootstrap over answers.
    Where nobody does better than the player's own step, that step is named, and gains nothing.
    """

    by_proposer: int
    """Who pays itself most against this solver."""
    proposer_gains: Interval
    """How much more than the proposer of the solver's own step."""
    by_solver: int
    """Who leaves this proposer least."""
    solver_gains: Interval
    """How much less than the solver of the proposer's own step leaves it."""


def exploited(paid: Floats, seed: int) -> list[Exploited]:
    """For each player, its worst opponent in the league.

    It is chosen on every other answer, and what it gains is measured on the rest: the best of
    several on the very games that are measured would seem to gain where all are equal.

    Args:
        paid: the proposer's reward, of shape (proposers, solvers, answers), one row and one column
            per player, and two answers or more.
        seed: of the bootstrap.
    """
    chosen_on, measured = paid[..., ::2].mean(axis=2), paid[..., 1::2]
    found = []
    for player in range(len(paid)):
        worst = _best(chosen_on[:, player], player)
        best = _best(-chosen_on[player], player)
        own = measured[player, player]
        found.append(
            Exploited(
                worst,
                _mean(measured[worst, player] - own, seed),
                best,
                _mean(own - measured[player, best], seed),
            )
        )
    return found


def _best(values: Floats, own: int) -> int:
    """The place of the largest value; one's own, unless another is larger."""
    best = int(values.argmax())
    return best if values[best] > values[own] else own


def _mean(values: Floats, seed: int) -> Interval:
    """A mean over answers, with its interval by bootstrap."""
    count = len(values)
    draws = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high))

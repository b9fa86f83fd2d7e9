"""Elo by role, and how much each player loses to the best of the others.

All intervals are of 95%, by bootstrap over answers.

The proposer wins an attempt if its question is valid and the attempt is wrong, which is what 1-p
pays. Proposers and solvers are rated on one scale (Bradley and Terry 1952, "Rank Analysis of
Incomplete Block Designs"): a proposer rated d wins against a solver rated r with probability
1 / (1 + 10^((r - d) / 400)).
"""

from __future__ import annotations

from dataclasses import dataclass

import choix
import numpy as np

from experiments.stats import Estimate, Floats, resampled

MEAN = 1000.0
"""Rating of the mean solver: only differences mean something."""
ELO = 400.0 / np.log(10.0)
"""Rating points per unit of log odds."""
PRIOR = 0.5
"""Games that each side is taken to have won in each pairing in addition to those played, so that a
player who always wins has a finite rating."""


def wins(solved: Floats) -> Floats:
    """The share of attempts that the proposer won, of shape (proposers, solvers, answers).

    Args:
        solved: share of right attempts, of the same shape; NaN without a valid question.
    """
    return np.where(np.isnan(solved), 0.0, 1.0 - np.nan_to_num(solved))


def rate(won: Floats, games: int) -> Floats:
    """The most likely ratings of all proposers, then of all solvers.

    Args:
        won: the share of games that the proposer won, of shape (proposers, solvers).
        games: how many each pairing played.
    """
    proposers, solvers = won.shape
    # counts[i, j]: games that player i won against player j; proposers first.
    counts = np.zeros((proposers + solvers, proposers + solvers))
    counts[:proposers, proposers:] = won * games + PRIOR
    counts[proposers:, :proposers] = (1.0 - won.T) * games + PRIOR
    rating: Floats = ELO * choix.ilsr_pairwise_dense(counts)
    rating += MEAN - rating[proposers:].mean()
    return rating


def ratings(solved: Floats, attempts: int, seed: int) -> tuple[list[Estimate], list[Estimate]]:
    """Ratings of proposers and of solvers, with intervals by bootstrap over answers.

    All games about an answer are drawn together, for those about one question are alike.

    Args:
        solved: see :func:`wins`.
        attempts: how often each question was tried.
        seed: of the bootstrap.
    """
    won, count = wins(solved), solved.shape[2]

    def rated(answers: np.ndarray) -> Floats:
        return rate(won[:, :, answers].mean(axis=2), count * attempts)

    answers = np.arange(count)
    ends = resampled(answers, rated, np.random.default_rng(seed))
    found = [
        Estimate(float(value), float(low), float(high), count)
        for value, low, high in zip(rated(answers), *ends, strict=True)
    ]
    return found[: len(won)], found[len(won) :]


@dataclass(frozen=True)
class Exploited:
    """What the best opponent of the league takes from a player, against what its own step takes.

    Gains are differences in the proposer's mean reward. Where no opponent does better than the
    player's own step, that step is named, and gains nothing.
    """

    by_proposer: int
    """The proposer that is paid most against this solver."""
    proposer_gains: Estimate
    """How much more than the proposer of the solver's own step."""
    by_solver: int
    """The solver that leaves this proposer least."""
    solver_gains: Estimate
    """How much less than the solver of the proposer's own step leaves it."""


def exploited(paid: Floats, seed: int) -> list[Exploited]:
    """For each player, its worst opponent in the league.

    It is chosen on every other answer, and what it gains is measured on the rest: the best of
    several on the very games that are measured would seem to gain where all are equal.

    Args:
        paid: the proposer's reward, of shape (proposers, solvers, answers), one row and one column
            per player, and four answers or more.
        seed: of the bootstrap.
    """
    chosen_on, measured = paid[..., ::2].mean(axis=2), paid[..., 1::2]
    found = []
    for player in range(len(paid)):
        worst = _best(chosen_on[:, player], player)
        best = _best(-chosen_on[player], player)
        own = measured[player, player]
        gains = (measured[worst, player] - own, own - measured[player, best])
        one, other = (_gain(values, seed) for values in gains)
        found.append(Exploited(worst, one, best, other))
    return found


def _best(values: Floats, own: int) -> int:
    """The place of the largest value; one's own, unless another is larger."""
    best = int(values.argmax())
    return best if values[best] > values[own] else own


def _gain(values: Floats, seed: int) -> Estimate:
    low, high = resampled(values, np.mean, np.random.default_rng(seed))
    return Estimate(float(values.mean()), float(low), float(high), len(values))

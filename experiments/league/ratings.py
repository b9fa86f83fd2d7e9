"""Elo by role, with 95% intervals by bootstrap over answers.

The proposer wins an attempt if its question is valid and the attempt is wrong, which is what 1-p
pays. Proposers and solvers are rated on one scale (Bradley and Terry 1952, "Rank Analysis of
Incomplete Block Designs"): a proposer rated d wins against a solver rated r with probability
1 / (1 + 10^((r - d) / 400)).
"""

from __future__ import annotations

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
    """Ratings of proposers and of solvers.

    All games about an answer are drawn together, for those about one question are alike.

    Args:
        solved: share of right attempts, of shape (proposers, solvers, answers); NaN without a
            valid question, which its proposer loses.
        attempts: how often each question was tried.
        seed: of the bootstrap.
    """
    won, count = np.nan_to_num(1.0 - solved), solved.shape[2]

    def rated(answers: np.ndarray) -> Floats:
        return rate(won[:, :, answers].mean(axis=2), count * attempts)

    answers = np.arange(count)
    ends = resampled(answers, rated, np.random.default_rng(seed))
    found = [
        Estimate(float(value), float(low), float(high), count)
        for value, low, high in zip(rated(answers), *ends, strict=True)
    ]
    return found[: len(won)], found[len(won) :]

"""Rewards of both roles, from what the judge said."""

from __future__ import annotations

from collections.abc import Callable

ProposerReward = Callable[[float], float]
"""Mean solve rate p in [0, 1] -> reward."""


def one_minus_p(p: float) -> float:
    """The paper's: hard questions pay, up to the impossible (Appendix, "Rewards Design")."""
    return 1.0 - p


def four_p_one_minus_p(p: float) -> float:
    """Pays most at p = 1/2 and nothing for what is never solved, so that ambiguous questions do not pay."""
    return 4.0 * p * (1.0 - p)


PROPOSER_REWARDS: dict[str, ProposerReward] = {"1-p": one_minus_p, "4p(1-p)": four_p_one_minus_p}
"""Proposer rewards by their config name."""


def solver_reward(correct: bool) -> float:
    """1 for a right answer, 0 otherwise (the paper's r_solve)."""
    return 1.0 if correct else 0.0

"""Rewards of both roles. Any function of a game will do; these ship."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssp_env.game.game import Attempt, Game

ProposerReward = Callable[["Game"], float]
"""A valid game, all attempts judged -> the proposer's reward. Invalid games pay ``invalid_reward``
instead."""

SolverReward = Callable[["Game", "Attempt"], float]
"""A valid game and one of its attempts, judged -> the reward of this attempt."""


def one_minus_p(game: Game) -> float:
    """1 - mean solve rate, as in the paper: the harder a question, the more it pays.

    Even an impossible one: see the paper's appendix "Rewards Design".
    """
    return 1.0 - game.share_right


def four_p_one_minus_p(game: Game) -> float:
    """4 p (1 - p) of the mean solve rate p: most at 1/2, nothing for what is never solved."""
    return 4.0 * game.share_right * (1.0 - game.share_right)


PROPOSER_REWARDS: dict[str, ProposerReward] = {"1-p": one_minus_p, "4p(1-p)": four_p_one_minus_p}
"""Proposer rewards by their config name."""


def right_answer(game: Game, attempt: Attempt) -> float:
    """1 for a right answer, 0 otherwise (the paper's r_solve)."""
    return 1.0 if attempt.right else 0.0

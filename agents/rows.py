"""From played games to training rows: which trajectories are learnt from, with which advantage and weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agents.config import LearningConfig
from agents.losses.grpo import grpo_advantages
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.trajectory import Trajectory

ROLE_IDS = {"proposer": 0, "solver": 1}


@dataclass(frozen=True)
class Row:
    """One trajectory to learn from."""

    ids: np.ndarray
    """int32 (length,): prompt, turns and observations."""
    mask: np.ndarray
    """uint8 (length,): 1 on the policy's own tokens."""
    logprobs: np.ndarray
    """float32 (length,): behaviour log-probabilities."""
    role: str
    game: int
    """Which game of the step it belongs to: an index into the step's games, over all runners."""
    advantage: float
    """GRPO: the reward relative to its group. REINFORCE: the return."""
    weight: float = 0.0
    """Factor on the sum of its token losses; see :func:`weigh`."""

    @property
    def tokens(self) -> int:
        """How many tokens the policy wrote."""
        return int(self.mask.sum())


def rows_of(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    """The rows of one runner's games, whole groups at a time; void games give none.

    A row whose gradient is exactly zero (REINFORCE with return 0) is left out.
    """
    rows: list[Row] = []
    if "proposer" in config.learning_roles:
        rows.extend(_proposer_rows(games, config))
    if "solver" in config.learning_roles:
        rows.extend(_solver_rows(games, config))
    return rows


def weigh(rows: Sequence[Row], config: LearningConfig, games: int, attempts: int) -> list[Row]:
    """Sets each row's weight from denominators over the *whole* update, before rows are dealt to learners.

    REINFORCE: 1/B, a sum over tokens (equation 5). GRPO: 1/(B n) and 1/length (equation 4), or one token mean
    over all rows of the role (``aggregation="token"``). Empty slots count in B.

    Args:
        rows: all rows of one optimizer update.
        config: algorithms, aggregation, the proposer's weight.
        games: slots of this update (B).
        attempts: solver trajectories a question (n).
    """
    totals = {role: sum(row.tokens for row in rows if row.role == role) for role in ROLE_IDS}
    weighed = []
    for row in rows:
        scale = config.proposer_weight if row.role == "proposer" else 1.0
        if config.algorithm(row.role) == "reinforce":
            trajectories = games * (attempts if row.role == "solver" else 1)
            weight = scale / trajectories
        elif config.aggregation == "token":
            weight = scale / max(1, totals[row.role])
        else:
            trajectories = games * (attempts if row.role == "solver" else 1)
            weight = scale / (trajectories * max(1, row.tokens))
        weighed.append(replace(row, weight=weight))
    return weighed


def _proposer_rows(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    played = [g for g in games if g.origin is Origin.PROPOSED and g.outcome in (Outcome.VALID, Outcome.INVALID)]
    paid = [(g, g.proposer, g.proposer_reward) for g in played if g.proposer is not None]
    rewards = np.array([reward or 0.0 for _, _, reward in paid])
    if config.proposer_algorithm == "grpo":
        groups = np.array([game.group for game, _, _ in paid])
        advantages = grpo_advantages(rewards, groups, std_normalise=config.std_normalise)
    else:
        advantages = rewards
    rows = [_row(t, "proposer", game, a) for (game, t, _), a in zip(paid, advantages, strict=True)]
    if config.proposer_algorithm == "reinforce" or config.drop_uniform_groups:
        rows = [row for row in rows if row.advantage]
    return rows


def _solver_rows(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    tried = [(game, attempt) for game in games if game.outcome is Outcome.VALID for attempt in game.attempts]
    rewards = np.array([attempt.reward or 0.0 for _, attempt in tried])
    if config.solver_algorithm == "grpo":
        groups = np.array([game.slot for game, _ in tried])
        advantages = grpo_advantages(rewards, groups, std_normalise=config.std_normalise)
    else:
        advantages = rewards
    rows = [_row(a.trajectory, "solver", game, value) for (game, a), value in zip(tried, advantages, strict=True)]
    if config.solver_algorithm == "reinforce":
        return [row for row in rows if row.advantage]
    if config.drop_uniform_groups:
        alive = {row.game for row in rows if row.advantage}
        return [row for row in rows if row.game in alive]
    return rows


def _row(trajectory: Trajectory, role: str, game: Game, advantage: float) -> Row:
    return Row(
        np.asarray(trajectory.ids, dtype=np.int32),
        np.frombuffer(bytes(trajectory.mask), dtype=np.uint8),
        np.asarray(trajectory.logprobs, dtype=np.float32),
        role,
        game.slot,
        float(advantage),
    )

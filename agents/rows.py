"""From played games to training rows: what is learnt from, with which advantage and weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agents.config import LearningConfig
from agents.losses import grpo_advantages
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
    """Factor on the sum of its token losses; see :func:`with_loss_weights`."""

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
        rows.extend(_closed_book_rows(games, config))

    return rows


def with_loss_weights(
    rows: Sequence[Row], config: LearningConfig, games: int, attempts: int
) -> list[Row]:
    """Sets each row's weight, from denominators over the *whole* update.

    This happens before rows are dealt to learners, so the losses of all learners simply add up.

    REINFORCE: 1/B, a sum over tokens (equation 5). GRPO: 1/(B n) and 1/length (equation 4), or one
    token mean over all rows of the role (``aggregation="token"``). Empty slots count in B, void
    attempts in n: what did not happen has no gradient, and changes nobody else's weight.

    Args:
        rows: all rows of one optimizer update.
        config: algorithms, aggregation, the proposer's weight.
        games: slots of this update (B).
        attempts: solver trajectories per question (n).
    """
    totals = {role: sum(row.tokens for row in rows if row.role == role) for role in ROLE_IDS}
    weighted = []
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

        weighted.append(replace(row, weight=weight))

    return weighted


def _proposer_rows(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    played = [
        g
        for g in games
        if g.origin is Origin.PROPOSED and g.outcome in (Outcome.VALID, Outcome.INVALID)
    ]
    paid = [(g, g.proposer, g.proposer_reward) for g in played if g.proposer is not None]
    rewards = np.array([reward or 0.0 for _, _, reward in paid])
    advantages, kept = _credit(
        rewards, [game.group for game, _, _ in paid], config.proposer_algorithm, config
    )

    return [
        _row(t, "proposer", game, a)
        for (game, t, _), a, k in zip(paid, advantages, kept, strict=True)
        if k
    ]


def _solver_rows(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    tried = [
        (game, attempt)
        for game in games
        if game.outcome is Outcome.VALID
        for attempt in game.counted
    ]
    rewards = np.array([attempt.reward or 0.0 for _, attempt in tried])
    advantages, kept = _credit(
        rewards, [game.slot for game, _ in tried], config.solver_algorithm, config
    )

    return [
        _row(t.trajectory, "solver", game, a)
        for (game, t), a, k in zip(tried, advantages, kept, strict=True)
        if k
    ]


def _closed_book_rows(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    """The answers from memory, paid like any answer of the solver, so that it does not play dumb.

    Each question is asked once, so GRPO compares an answer with those to the step's other
    questions.
    """
    asked = [
        (game, game.closed_book, game.closed_book_reward)
        for game in games
        if game.closed_book is not None and game.closed_book_reward is not None
    ]
    rewards = np.array([reward for _, _, reward in asked])
    advantages, kept = _credit(rewards, [0] * len(asked), config.solver_algorithm, config)

    return [
        _row(trajectory, "solver", game, a)
        for (game, trajectory, _), a, k in zip(asked, advantages, kept, strict=True)
        if k
    ]


def _credit(
    rewards: np.ndarray, groups: Sequence[int], algorithm: str, config: LearningConfig
) -> tuple[np.ndarray, np.ndarray]:
    """The advantage of each trajectory (or its return), and whether it is learnt from."""
    if algorithm == "reinforce":
        return rewards, rewards != 0

    of = np.array(groups, dtype=np.int64)
    advantages = grpo_advantages(rewards, of, std_normalise=config.std_normalise)
    if not config.drop_uniform_groups:
        return advantages, np.ones(len(rewards), dtype=bool)

    return advantages, np.isin(of, of[advantages != 0])


def _row(trajectory: Trajectory, role: str, game: Game, advantage: float) -> Row:
    return Row(
        np.asarray(trajectory.ids, dtype=np.int32),
        np.frombuffer(bytes(trajectory.mask), dtype=np.uint8),
        np.asarray(trajectory.logprobs, dtype=np.float32),
        role,
        game.slot,
        float(advantage),
    )

"""From played games to training rows: reward, advantage and loss weight of each trajectory.

Paper, Algorithm 1, lines 8 to 13. ``rows_of`` works on one runner's games; advantages and weights
need the whole step, whose rows come together in :func:`credited` and :func:`with_loss_weights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agents.config import ROLES, LearningConfig
from agents.losses import find_algorithm
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
    """float32 (length,): behaviour log-probabilities; NaN in an example, which nobody sampled."""
    role: str
    game: int
    """Index of its game among the step's games, over all runners."""
    advantage: float
    """Set by :func:`credited`; 0 before."""
    weight: float = 0.0
    """Factor on the sum of its token losses; see :func:`with_loss_weights`."""
    reward: float = 0.0
    group: str = ""
    """Rewards are compared within one role and group."""
    question: str | None = None
    """Question that a proposal ended with."""

    @property
    def tokens(self) -> int:
        """Tokens that the policy wrote."""
        return int(self.mask.sum())


# -- rewards: one row per trajectory -----------------------------------------------------------


def rows_of(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    """Rows of one runner's games, without advantages; void games give none."""
    proposals, attempts, examples, from_memory = [], [], [], []
    for game in games:
        # A question that is reused, or put together from others, has no proposal to pay for.
        decided = game.outcome in (Outcome.VALID, Outcome.INVALID)
        if decided and game.origin is Origin.PROPOSED and game.proposer is not None:
            group = f"answer {game.start.seed} {game.start.group}"
            row = _row(game, game.proposer, "proposer", game.proposer_reward or 0.0, group)
            proposals.append(replace(row, question=game.question))

        question = f"question {game.start.seed} {game.slot}"
        if game.outcome is Outcome.VALID:
            attempts += [
                _row(game, attempt.trajectory, "solver", attempt.reward or 0.0, question)
                for attempt in game.counted
            ]
        if game.outcome is Outcome.VALID and game.example is not None:
            # A right attempt that nobody sampled joins the group of those that were.
            row = _row(game, game.example, "solver", 1.0, question)
            examples.append(replace(row, logprobs=np.full_like(row.logprobs, np.nan)))
        if game.closed_book is not None and game.closed_book_reward is not None:
            # Answers from memory are paid like any other, so that the solver does not play dumb.
            # Each question is asked once: one group for all of the step.
            reward = game.closed_book_reward
            from_memory.append(_row(game, game.closed_book, "solver", reward, "closed book"))

    kept = proposals if "proposer" in config.learning_roles else []
    if "solver" in config.learning_roles:
        kept = [*kept, *attempts, *examples, *from_memory]
    return kept


def _row(game: Game, trajectory: Trajectory, role: str, reward: float, group: str) -> Row:
    mask = np.frombuffer(bytes(trajectory.mask), dtype=np.uint8)
    return Row(
        np.asarray(trajectory.ids, dtype=np.int32),
        mask,
        np.asarray(trajectory.logprobs, dtype=np.float32),
        role,
        game.slot,
        0.0,
        reward=float(reward),
        group=group,
    )


# -- advantages, over a whole step -------------------------------------------------------------


def credited(rows: Sequence[Row], config: LearningConfig) -> list[Row]:
    """Rows with advantages, without those that nothing is learnt from.

    Left out are uniform groups (``drop_uniform_groups``) and rows that have neither advantage nor
    KL, unless their tokens count in a denominator. ``rows`` are all of the step.
    """
    advantages, kept = np.zeros(len(rows)), np.ones(len(rows), dtype=bool)
    for role in ROLES:
        own = np.array([row.role == role for row in rows], dtype=bool)
        rewards = np.array([row.reward for row in rows if row.role == role])
        names = [row.group for row in rows if row.role == role]
        numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
        groups = np.array([numbers[name] for name in names], dtype=np.int64)

        algorithm = find_algorithm(config.algorithm(role))
        found = algorithm.advantage(rewards, groups, config)
        advantages[own] = found
        if not algorithm.kl:
            kept[own] = (found != 0) | (config.aggregation(role) == "token")
        elif config.drop_uniform_groups:
            kept[own] = np.isin(groups, groups[found != 0])

    return [
        replace(row, advantage=float(advantage))
        for row, advantage, keep in zip(rows, advantages, kept, strict=True)
        if keep
    ]


# -- weights, over an optimizer update ---------------------------------------------------------


def deal(rows: Sequence[Row], learning: LearningConfig) -> list[tuple[list[Row], int]]:
    """Rows of each optimizer update of a step, and how many slots it stands for.

    Games are dealt whole, and in turn, so that every update gets its share of those that give rows
    at all.
    """
    parts = learning.minibatches
    sizes = [len(range(i, learning.batch_size, parts)) for i in range(parts)]
    turn = {game: i % parts for i, game in enumerate(sorted({row.game for row in rows}))}
    return [([row for row in rows if turn[row.game] == i], size) for i, size in enumerate(sizes)]


def with_loss_weights(
    rows: Sequence[Row], config: LearningConfig, games: int, attempts: int
) -> list[Row]:
    """Sets each row's weight, from denominators over the *whole* update.

    This happens before rows are dealt to learners, so the losses of all learners simply add up.
    With B ``games`` (slots) and n ``attempts`` each, a row's token losses are multiplied by

    - ``sum``: 1/B for a proposal (equation 5), 1/(B n) for an attempt;
    - ``sequence``: the same, divided by the trajectory's length (equation 4);
    - ``token``: 1 / all tokens of the role's rows.

    Empty slots count in B and void attempts in n: what did not happen has no gradient, and changes
    nobody else's weight. ``rows`` are all of one optimizer update.
    """
    totals = {role: sum(row.tokens for row in rows if row.role == role) for role in ROLE_IDS}
    weighted = []
    for row in rows:
        scale = config.proposer_weight if row.role == "proposer" else 1.0
        trajectories = games * (attempts if row.role == "solver" else 1)
        match config.aggregation(row.role):
            case "sum":
                weight = scale / trajectories
            case "sequence":
                weight = scale / (trajectories * max(1, row.tokens))
            case "token":
                weight = scale / max(1, totals[row.role])

        weighted.append(replace(row, weight=weight))

    return weighted

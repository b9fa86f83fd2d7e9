"""From played games to training rows: what can be learnt from, and with which weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agents.config import LearningConfig
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import Ending, Outcome
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
    """Which game of the step it belongs to: an index into the step's games, over all runners."""
    advantage: float
    """GRPO: the reward relative to its group. REINFORCE: the return, less a baseline. Set by
    :class:`agents.credit.Credit`; 0 before."""
    weight: float = 0.0
    """Factor on the sum of its token losses; see :func:`with_loss_weights`."""
    reward: float = 0.0
    """What its game paid."""
    group: str = ""
    """GRPO compares rows of one role whose groups have the same name."""
    question: str | None = None
    """The question that a proposal ended with."""
    void_turn: bool = False
    """Whether its last turn has no complete action."""

    @property
    def tokens(self) -> int:
        """How many tokens the policy wrote."""
        return int(self.mask.sum())


def rows_of(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    """The rows of one runner's games; void games give none. Advantages are not set yet."""
    rows: list[Row] = []
    if "proposer" in config.learning_roles:
        rows.extend(_proposer_rows(games, config))
    if "solver" in config.learning_roles:
        rows.extend(_solver_rows(games))
        rows.extend(_example_rows(games))
        rows.extend(_closed_book_rows(games))

    return rows


def with_loss_weights(
    rows: Sequence[Row], config: LearningConfig, games: int, attempts: int
) -> list[Row]:
    """Sets each row's weight, from denominators over the *whole* update.

    This happens before rows are dealt to learners, so the losses of all learners simply add up.

    ``sum``: 1/B for proposals and 1/(B n) for attempts, a sum over tokens (equation 5 for the
    proposer). ``sequence``: the same, divided by the trajectory's length (equation 4). ``token``:
    one mean over the tokens of all rows of the role. Empty slots count in B, void attempts in n:
    what did not happen has no gradient, and changes nobody else's weight.

    Args:
        rows: all rows of one optimizer update.
        config: aggregations, the proposer's weight.
        games: slots of this update (B).
        attempts: solver trajectories per question (n).
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


def _proposer_rows(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    played = [
        g
        for g in games
        if g.origin is Origin.PROPOSED and g.outcome in (Outcome.VALID, Outcome.INVALID)
    ]

    return [
        _row(
            game.proposer,
            "proposer",
            game,
            game.proposer_reward or 0.0,
            _proposal_group(game, config),
            question=game.question,
        )
        for game in played
        if game.proposer is not None
    ]


def _proposal_group(game: Game, config: LearningConfig) -> str:
    if config.proposal_groups == "asked_searches":
        return f"asked {game.asked_searches}"
    return f"answer {game.seed} {game.group}"


def _solver_rows(games: Sequence[Game]) -> list[Row]:
    return [
        _row(
            attempt.trajectory,
            "solver",
            game,
            attempt.reward or 0.0,
            f"question {game.seed} {game.slot}",
        )
        for game in games
        if game.outcome is Outcome.VALID
        for attempt in game.counted
    ]


def _example_rows(games: Sequence[Game]) -> list[Row]:
    """Right attempts that nobody sampled, in the group of those at the same question."""
    rows = [
        _row(game.example, "solver", game, 1.0, f"question {game.seed} {game.slot}")
        for game in games
        if game.outcome is Outcome.VALID and game.example is not None
    ]
    return [replace(row, logprobs=np.full_like(row.logprobs, np.nan)) for row in rows]


def _closed_book_rows(games: Sequence[Game]) -> list[Row]:
    """The answers from memory, paid like any answer of the solver, so that it does not play dumb.

    Each question is asked once, so GRPO compares an answer with those to the step's other
    questions.
    """
    return [
        _row(game.closed_book, "solver", game, game.closed_book_reward, "closed book")
        for game in games
        if game.closed_book is not None and game.closed_book_reward is not None
    ]


def _row(
    trajectory: Trajectory,
    role: str,
    game: Game,
    reward: float,
    group: str,
    question: str | None = None,
) -> Row:
    return Row(
        np.asarray(trajectory.ids, dtype=np.int32),
        np.frombuffer(bytes(trajectory.mask), dtype=np.uint8),
        np.asarray(trajectory.logprobs, dtype=np.float32),
        role,
        game.slot,
        0.0,
        reward=float(reward),
        group=group,
        question=question,
        void_turn=_ends_in_a_void_turn(trajectory),
    )


def _ends_in_a_void_turn(trajectory: Trajectory) -> bool:
    """Whether the last turn ended without any complete action.

    A budget that was spent by documents cut no turn short: that turn was a search.
    """
    if trajectory.ending is not Ending.BUDGET_TOKENS:
        return trajectory.ending is Ending.FORMAT

    mask = np.frombuffer(bytes(trajectory.mask), dtype=np.int8)
    turns = int((np.diff(mask, prepend=0) == 1).sum())
    return turns > len(trajectory.searches)

"""From played games to what a model is trained on: rows, their advantages and weights.

Paper, Algorithm 1, lines 8 to 13. ``rows_of`` works on one runner's games; advantages and weights
need the rows of the whole step. No Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ssp_agents.config import ROLES, Aggregation, LearningConfig, given_per_step
from ssp_agents.losses import find_algorithm, less_average
from ssp_env.config import load, own_code
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import TrajectoryRecord
from ssp_env.game.trajectory import Trajectory

Credit = Callable[[Game, Trajectory, int], Sequence[float]]
"""A finished game, one of its trajectories, and how many turns the policy wrote in it -> the factor
on the advantage of each turn's tokens, in order; 1 for each is as without."""

ROLE_IDS: dict[str, int] = {role: number for number, role in enumerate(ROLES)}


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
    """Index of its game in its game batch; once a step's game batches come together, in the whole
    step."""
    advantage: float
    """Set by :func:`with_advantages`; 0 before."""
    weight: float = 0.0
    """Factor on the sum of its token losses; see :func:`with_loss_weights`."""
    reward: float = 0.0
    group: str = ""
    """Rewards are compared within one role and group."""
    credit: np.ndarray | None = None
    """float32 (length,): factor on the advantage of each token; ``None``: 1."""

    @property
    def tokens(self) -> int:
        return int(self.mask.sum())


# -- rewards: one row per trajectory -----------------------------------------------------------


def rows_of(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    """Rows of one runner's games, without advantages; void games give none."""
    # Answers from memory, at the closed-book gate, are never paid: nothing is learnt from them.
    proposals, attempts, examples = [], [], []
    row_of = partial(_row, credit=find_credit(config))
    for game in games:
        # R = 1 - mean solve rate for a valid question (or as game.proposer_reward says), and
        # game.invalid_reward for an invalid one. A question that is reused, or put together from
        # others, has no proposal to pay for.
        decided = game.outcome in (Outcome.VALID, Outcome.INVALID)
        if decided and game.origin is Origin.PROPOSED and game.proposer is not None:
            group = f"answer {game.initial_state.seed} {game.initial_state.group}"
            proposals.append(row_of(game, game.proposer, "proposer", game.proposer_reward, group))

        # r = 1 for a right answer, compared among the n attempts at one question.
        question = f"question {game.initial_state.seed} {game.index}"
        if game.outcome is Outcome.VALID:
            for a in game.counted:
                attempts.append(row_of(game, a.trajectory, "solver", a.reward, question))
        if game.outcome is Outcome.VALID and (example := game.example) is not None:
            # A right attempt that nobody sampled joins the group of those that were.
            row = row_of(game, example.trajectory, "solver", example.reward, question)
            examples.append(replace(row, logprobs=np.full_like(row.logprobs, np.nan)))
        example, compared = game.example_proposal, find_algorithm(config, "proposer").grouped
        if game.outcome is Outcome.VALID and example is not None and not compared:
            # Paid as if the proposer had written it; there is none that it could be compared with.
            group = f"example {game.initial_state.seed} {game.index}"
            row = row_of(game, example.trajectory, "proposer", example.reward, group)
            proposals.append(replace(row, logprobs=np.full_like(row.logprobs, np.nan)))

    kept = proposals if "proposer" in config.learning_roles else []
    if "solver" in config.learning_roles:
        kept = [*kept, *attempts, *examples]
    return kept


def find_credit(learning: LearningConfig) -> Credit | None:
    """The function that ``learning.credit`` names, which every process imports."""
    given = learning.credit
    credit = load("learning.credit", given) if isinstance(given, str) and given else given
    if credit and not callable(credit):
        fix = f"is of type {type(credit).__name__}, not a function"
        raise ConfigError("learning.credit", given, fix)
    return credit or None


def _row(
    game: Game,
    trajectory: Trajectory,
    role: str,
    reward: float | None,
    group: str,
    credit: Credit | None = None,
) -> Row:
    return Row(
        np.asarray(trajectory.ids, dtype=np.int32),
        np.frombuffer(bytes(trajectory.mask), dtype=np.uint8),
        np.asarray(trajectory.logprobs, dtype=np.float32),
        role,
        game.index,
        0.0,
        reward=float(reward or 0.0),
        group=group,
        credit=None if credit is None else _credit_of_tokens(credit, game, trajectory),
    )


def _credit_of_tokens(credit: Credit, game: Game, trajectory: Trajectory) -> np.ndarray:
    """The factor of each token of a trajectory: float32 (length,), 1 where it is not of a turn."""
    turns = [slice(start, stop) for start, stop, by_policy in trajectory.runs() if by_policy]
    with own_code("learning.credit", getattr(credit, "__name__", str(credit))):
        shares = np.asarray(credit(game, trajectory, len(turns)), dtype=np.float32)
        if shares.shape != (len(turns),) or not np.isfinite(shares).all():
            raise ValueError(f"{len(turns)} finite numbers are wanted, one a turn: not {shares}")
    of_tokens = np.ones(len(trajectory.ids), dtype=np.float32)
    for turn, share in zip(turns, shares, strict=True):
        of_tokens[turn] = share
    return of_tokens


def recorded_row(played: TrajectoryRecord, role: str, game: int = 0) -> Row:
    """Row of a recorded trajectory, without reward or advantage."""
    mask = np.frombuffer(played.mask, dtype=np.uint8)
    logprobs = np.zeros(len(mask), dtype=np.float32)
    # Records have log-probabilities of the policy's own tokens alone.
    logprobs[mask > 0] = played.logprobs
    return Row(np.asarray(played.ids, dtype=np.int32), mask, logprobs, role, game, 0.0)


# -- advantages, over a whole step -------------------------------------------------------------


def with_advantages(
    rows: Sequence[Row], config: LearningConfig, averages: dict[str, float] | None = None
) -> list[Row]:
    """Rows with advantages, without those that nothing is learnt from.

    Left out are uniform groups (``drop_uniform_groups``) and rows that have neither advantage nor
    KL, unless their tokens count in a denominator. ``rows`` are all of the step. ``averages`` of
    each role's rewards move on with them, where its algorithm has such a baseline; they begin at 0.

    >>> ids, own, logprobs = np.arange(4), np.array([0, 1, 1, 1]), np.zeros(4)
    >>> rewards = [1.0, 0.0, 0.0, 0.0]
    >>> attempts = [Row(ids, own, logprobs, "solver", 0, 0.0, reward=r) for r in rewards]
    >>> [row.advantage for row in with_advantages(attempts, LearningConfig())]
    [0.75, -0.25, -0.25, -0.25]
    """
    averages = {} if averages is None else averages
    advantages, kept = np.zeros(len(rows)), np.ones(len(rows), dtype=bool)
    for role in ROLES:
        # of_role: bool (rows,); rewards, groups and computed: (rows of this role,).
        of_role = np.array([row.role == role for row in rows], dtype=bool)
        # A role without rows in this step has arrays of length 0.
        rewards = np.array([row.reward for row in rows if row.role == role])
        group_names = np.array([row.group for row in rows if row.role == role], dtype=np.str_)
        _, groups = np.unique(group_names, return_inverse=True)

        algorithm = find_algorithm(config, role)
        if algorithm.baseline is not None:
            before = averages.get(role, 0.0)
            rewards, averages[role] = less_average(rewards, before, algorithm.baseline)
        computed = algorithm.advantage(rewards, groups, config)
        if np.shape(computed) != rewards.shape:
            fix = f"its advantages have to be {rewards.shape}, one a trajectory, "
            fix += f"not {np.shape(computed)}"
            raise ConfigError(f"learning.{role}_algorithm", config.algorithm(role), fix)
        advantages[of_role] = computed
        # Without KL, a row with A = 0 has no gradient, but its tokens count in a mean over all
        # tokens. With KL, the rows of a group stay or go together.
        if not (algorithm.kl and config.kl_coeff):
            kept[of_role] = (computed != 0) | (_aggregation(config, role) == "token")
        elif config.drop_uniform_groups:
            kept[of_role] = np.isin(groups, groups[computed != 0])

    return [
        replace(row, advantage=float(advantage))
        for row, advantage, keep in zip(rows, advantages, kept, strict=True)
        if keep
    ]


# -- weights, over an optimizer update ---------------------------------------------------------


def split_updates(rows: Sequence[Row], learning: LearningConfig) -> list[tuple[list[Row], int]]:
    """Rows of each optimizer update of a step, and how many games it stands for.

    Games stay whole and go to the updates in turn, so that each gets its share of those that give
    rows at all.
    """
    parts = learning.minibatches
    # B of each update; they add up to that of the step.
    sizes = [len(range(i, learning.batch_size, parts)) for i in range(parts)]
    # By the games' numbers, so that the rows' order decides nothing.
    turn = {game: i % parts for i, game in enumerate(sorted({row.game for row in rows}))}
    return [([row for row in rows if turn[row.game] == i], size) for i, size in enumerate(sizes)]


def shard_rows(rows: Sequence[Row], shards: int) -> list[list[Row]]:
    """Shards of rows: longest first, each to the shard with the fewest tokens.

    Rows of one text go to one learner, which reads it once. A shard that would stay empty gets a
    row of weight 0, because a learner without rows hangs its peers."""
    parts: list[list[Row]] = [[] for _ in range(shards)]
    loads = [0] * shards
    texts: dict[tuple[bytes, bytes], list[Row]] = {}
    # Ties are broken by game and role, so that any order of rows is sharded in the same way.
    for row in sorted(rows, key=lambda row: (-len(row.ids), row.game, row.role)):
        texts.setdefault((row.ids.tobytes(), row.mask.tobytes()), []).append(row)

    # Largest first, to the least loaded: at most 4/3 of the best split's longest (Graham 1969).
    for equal in texts.values():
        lightest = loads.index(min(loads))
        parts[lightest].extend(equal)
        # The model reads equal rows once, so they cost as much as one of them.
        loads[lightest] += len(equal[0].ids)

    for part in parts:
        if not part:
            part.append(replace(min(rows, key=lambda row: len(row.ids)), weight=0.0))

    return parts


def _aggregation(config: LearningConfig, role: str) -> Aggregation:
    """Sum or mean by which a role's token losses are put together."""
    given = config.proposer_aggregation if role == "proposer" else config.solver_aggregation
    return given or find_algorithm(config, role).aggregation


def with_loss_weights(
    rows: Sequence[Row], config: LearningConfig, num_games: int, game: GameConfig
) -> list[Row]:
    """Sets each row's weight, from denominators over the *whole* update.

    This happens before rows go to learners, so the losses of all learners simply add up.
    Games that are missing count in B (``num_games``) and void attempts in n (``game.attempts``):
    what did not happen has no gradient, and changes nobody else's weight. Given questions count in
    the solver's B alone. ``rows`` are all of one optimizer update.

    An attempt of three tokens, of two questions with five attempts each: 1/2 1/5 1/3.

    >>> row = Row(np.arange(4), np.array([0, 1, 1, 1]), np.zeros(4), "solver", 0, advantage=0.5)
    >>> (weighted,) = with_loss_weights([row], LearningConfig(), 2, GameConfig(attempts=5))
    >>> round(1 / weighted.weight)
    30
    """
    totals = {role: sum(row.tokens for row in rows if row.role == role) for role in ROLE_IDS}
    proposed = config.batch_size - given_per_step(config, game)
    weighted = []
    for row in rows:
        # B proposals, or B n attempts.
        scale = config.proposer_weight if row.role == "proposer" else 1.0
        # Given questions have no proposal. The share that has one is that of the step.
        of_step = game.attempts if row.role == "solver" else proposed / config.batch_size
        trajectories = num_games * of_step
        denominators: dict[Aggregation, float] = {
            # Equation 5: 1/B sum over proposals of sum over tokens; 1/(B n) for attempts.
            "sum": trajectories,
            # Equation 4: 1/B sum over questions, 1/n sum over attempts, 1/|rho| over tokens.
            "sequence": trajectories * max(1, row.tokens),
            # One mean over all tokens of the role (DAPO).
            "token": max(1, totals[row.role]),
            # 1/L in place of 1/|rho|, the same for all trajectories (Dr. GRPO).
            "constant": trajectories * game.max_response_tokens,
        }
        weight = scale / denominators[_aggregation(config, row.role)]
        weighted.append(replace(row, weight=weight))

    return weighted

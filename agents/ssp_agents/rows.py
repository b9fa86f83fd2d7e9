"""From played games to what a model is trained on: rows, advantages, weights, padded columns.

Paper, Algorithm 1, lines 8 to 13. ``rows_of`` works on one runner's games; advantages and weights
need the whole step, whose rows come together in :func:`credited` and :func:`with_loss_weights`.
Columns are dealt to learners as shards, and cut into micro-batches there. No Ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp_agents.config import ROLES, Aggregation, LearningConfig
from ssp_agents.losses import find_algorithm
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import TrajectoryRecord
from ssp_env.game.trajectory import Trajectory

ROLE_IDS = {"proposer": 0, "solver": 1}

Columns = dict[str, Any]
"""One array or tensor per column, all with the same first dimension (rows)."""
PADDED = ("ids", "loss_mask", "behaviour_logprobs")
"""Columns with a second dimension: the length of the longest row."""
MAX_PADDING = 1.15
"""A micro-batch holds at most this many padded tokens per true token. Padding costs as much
arithmetic as text; at the tiny preset, unbounded, it was more than half of the learner's time."""


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
    """Slot of its game in its round; in the whole step after :func:`renumber`."""
    advantage: float
    """Set by :func:`credited`; 0 before."""
    weight: float = 0.0
    """Factor on the sum of its token losses; see :func:`with_loss_weights`."""
    reward: float = 0.0
    group: str = ""
    """Rewards are compared within one role and group."""
    path: Sequence[int] = ()
    """What the proposer of its question wrote and found until its last search, where a teacher is
    to read it (``learning.privileged``)."""

    @property
    def tokens(self) -> int:
        return int(self.mask.sum())


# -- rewards: one row per trajectory -----------------------------------------------------------


def rows_of(games: Sequence[Game], config: LearningConfig) -> list[Row]:
    """Rows of one runner's games, without advantages; void games give none."""
    proposals, attempts, examples, from_memory = [], [], [], []
    for game in games:
        # R = 1 - mean solve rate for a valid question, 0 for an invalid one (or as
        # game.proposer_reward says). One that is reused, or put together from others, has no
        # proposal to pay for.
        decided = game.outcome in (Outcome.VALID, Outcome.INVALID)
        if decided and game.origin is Origin.PROPOSED and game.proposer is not None:
            group = f"answer {game.start.seed} {game.start.group}"
            reward = game.proposer_reward or 0.0
            proposals.append(_row(game, game.proposer, "proposer", reward, group))

        # r = 1 for a right answer, compared among the n attempts at one question.
        question = f"question {game.start.seed} {game.slot}"
        if game.outcome is Outcome.VALID:
            path: Sequence[int] = ()
            if config.privileged and (proposer := game.proposer) is not None:
                # Its turns and what they found; the last turn, which asks, is left out.
                ends = [stop for _, stop, own in proposer.runs() if not own]
                path = proposer.ids[proposer.prompt_length : max(ends, default=0)]
            attempts += [
                replace(_row(game, a.trajectory, "solver", a.reward or 0.0, question), path=path)
                for a in game.counted
            ]
        if game.outcome is Outcome.VALID and game.example is not None:
            # A right attempt that nobody sampled joins the group of those that were.
            reward = game.example.reward or 0.0
            row = _row(game, game.example.trajectory, "solver", reward, question)
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
    return Row(
        np.asarray(trajectory.ids, dtype=np.int32),
        np.frombuffer(bytes(trajectory.mask), dtype=np.uint8),
        np.asarray(trajectory.logprobs, dtype=np.float32),
        role,
        game.slot,
        0.0,
        reward=float(reward),
        group=group,
    )


def recorded_row(played: TrajectoryRecord, role: str, game: int = 0) -> Row:
    """Row of a recorded trajectory, without reward or advantage."""
    mask = np.frombuffer(played.mask, dtype=np.uint8)
    logprobs = np.zeros(len(mask), dtype=np.float32)
    logprobs[mask > 0] = played.logprobs
    return Row(np.asarray(played.ids, dtype=np.int32), mask, logprobs, role, game, 0.0)


# -- advantages, over a whole step -------------------------------------------------------------


def credited(rows: Sequence[Row], config: LearningConfig) -> list[Row]:
    """Rows with advantages, without those that nothing is learnt from.

    Left out are uniform groups (``drop_uniform_groups``) and rows that have neither advantage nor
    KL, unless their tokens count in a denominator or they have a teacher. ``rows`` are all of the
    step.
    """
    advantages, kept = np.zeros(len(rows)), np.ones(len(rows), dtype=bool)
    taught = np.array([len(row.path) > 0 for row in rows], dtype=bool)
    for role in ROLES:
        # own: bool (rows,); rewards, groups and found: (rows of this role,).
        own = np.array([row.role == role for row in rows], dtype=bool)
        rewards = np.array([row.reward for row in rows if row.role == role])
        names = [row.group for row in rows if row.role == role]
        numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
        groups = np.array([numbers[name] for name in names], dtype=np.int64)

        algorithm = find_algorithm(config, role)
        found = algorithm.advantage(rewards, groups, config)
        if np.shape(found) != rewards.shape:
            fix = f"its advantages have to be {rewards.shape}, one a trajectory, "
            fix += f"not {np.shape(found)}"
            raise ConfigError(f"learning.{role}_algorithm", config.algorithm(role), fix)
        advantages[own] = found
        # Without KL, a row with A = 0 has no gradient, but its tokens count in a mean over all
        # tokens. With KL, the rows of a group stay or go together.
        if not algorithm.kl:
            kept[own] = (found != 0) | (_aggregation(config, role) == "token")
        elif config.drop_uniform_groups:
            kept[own] = np.isin(groups, groups[found != 0])

    return [
        replace(row, advantage=float(advantage))
        for row, advantage, keep in zip(rows, advantages, kept | taught, strict=True)
        if keep
    ]


# -- weights, over an optimizer update ---------------------------------------------------------


def deal(rows: Sequence[Row], learning: LearningConfig) -> list[tuple[list[Row], int]]:
    """Rows of each optimizer update of a step, and how many slots it stands for.

    Games are dealt whole, and in turn, so that every update gets its share of those that give rows
    at all.
    """
    parts = learning.minibatches
    # B of each update; they add up to that of the step.
    sizes = [len(range(i, learning.batch_size, parts)) for i in range(parts)]
    turn = {game: i % parts for i, game in enumerate(sorted({row.game for row in rows}))}
    return [([row for row in rows if turn[row.game] == i], size) for i, size in enumerate(sizes)]


def _aggregation(config: LearningConfig, role: str) -> Aggregation:
    """Sum or mean by which a role's token losses are put together."""
    given = config.proposer_aggregation if role == "proposer" else config.solver_aggregation
    return given or find_algorithm(config, role).aggregation


def with_loss_weights(
    rows: Sequence[Row], config: LearningConfig, slots: int, game: GameConfig
) -> list[Row]:
    """Sets each row's weight, from denominators over the *whole* update.

    This happens before rows are dealt to learners, so the losses of all learners simply add up.
    Empty slots count in B (``slots``) and void attempts in n (``game.attempts``): what did not
    happen has no gradient, and changes nobody else's weight. ``rows`` are all of one optimizer
    update.
    """
    totals = {role: sum(row.tokens for row in rows if row.role == role) for role in ROLE_IDS}
    weighted = []
    for row in rows:
        # B proposals, or B n attempts.
        scale = config.proposer_weight if row.role == "proposer" else 1.0
        trajectories = slots * (game.attempts if row.role == "solver" else 1)
        match _aggregation(config, row.role):
            case "sum":
                # Equation 5: 1/B sum over proposals of sum over tokens; 1/(B n) for attempts.
                weight = scale / trajectories
            case "sequence":
                # Equation 4: 1/B sum over questions, 1/n sum over attempts, 1/|rho| over tokens.
                weight = scale / (trajectories * max(1, row.tokens))
            case "token":
                # One mean over all tokens of the role (DAPO).
                weight = scale / max(1, totals[row.role])
            case "constant":
                # 1/L in place of 1/|rho|, the same for all trajectories (Dr. GRPO).
                weight = scale / (trajectories * game.max_response_tokens)

        weighted.append(replace(row, weight=weight))

    return weighted


# -- columns -----------------------------------------------------------------------------------


def columns_of(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """The columns of an update; ids, mask and log-probabilities are padded on the right.

    Returns:
        ``ids`` int64, ``loss_mask`` and ``behaviour_logprobs`` float32, all (rows, longest);
        ``lengths`` and ``role`` int64, ``advantages`` and ``weights`` float32, all (rows,). Where
        rows have a path: ``paths`` int64 (rows, longest path), ``path_lengths`` int64 (rows,).
    """
    shape = len(rows), max(len(row.ids) for row in rows)
    columns: dict[str, np.ndarray] = {
        # Any id pads: the loss mask is 0 there, and layers are causal.
        "ids": np.zeros(shape, dtype=np.int64),
        "loss_mask": np.zeros(shape, dtype=np.float32),
        "behaviour_logprobs": np.zeros(shape, dtype=np.float32),
        "lengths": np.array([len(row.ids) for row in rows], dtype=np.int64),
        "role": np.array([ROLE_IDS[row.role] for row in rows], dtype=np.int64),
        "advantages": np.array([row.advantage for row in rows], dtype=np.float32),
        "weights": np.array([row.weight for row in rows], dtype=np.float32),
    }

    for i, row in enumerate(rows):
        for name, values in zip(PADDED, (row.ids, row.mask, row.logprobs), strict=True):
            columns[name][i, : len(values)] = values

    if longest := max(len(row.path) for row in rows):
        columns["path_lengths"] = np.array([len(row.path) for row in rows], dtype=np.int64)
        columns["paths"] = np.zeros((len(rows), longest), dtype=np.int64)
        for i, row in enumerate(rows):
            columns["paths"][i, : len(row.path)] = row.path
    return columns


def informed(part: Columns) -> Columns:
    """Rows as a teacher reads them: each with its path, if it has one, between its prompt and its
    first own token. The policy's tokens are the same, in the same order."""
    if "paths" not in part:
        return part
    ids, mask, paths = part["ids"], part["loss_mask"], part["paths"]
    length, longest = ids.shape[1], paths.shape[1]
    place = torch.arange(length + longest, device=ids.device).expand(len(ids), -1)
    start, size = (mask > 0).int().argmax(dim=1)[:, None], part["path_lengths"][:, None]

    # Place t holds ids[t] of the prompt, then the path from `start` on, then ids[t - size].
    of_path = (place >= start) & (place < start + size)  # (rows, length + longest)
    of_row = torch.where(place < start, place, place - size)
    last = of_row.clamp(0, length - 1)
    read = paths.gather(1, (place - start).clamp(0, longest - 1))
    own = mask.gather(1, last) * (~of_path & (of_row < length))
    return {**part, "ids": torch.where(of_path, read, ids.gather(1, last)), "loss_mask": own}


def deal_to_learners(rows: Sequence[Row], shards: int) -> list[list[Row]]:
    """Shards of rows: longest first, each to the shard with the fewest tokens.

    Rows of one text go to one learner, which reads it once. A shard that would stay empty gets a
    row of weight 0, because a learner without rows hangs its peers."""
    dealt: list[list[Row]] = [[] for _ in range(shards)]
    loads = [0] * shards
    texts: dict[tuple[bytes, bytes], list[Row]] = {}
    # Ties are broken by game and role, so that any order of rows is dealt in the same way.
    for row in sorted(rows, key=lambda row: (-len(row.ids), row.game, row.role)):
        texts.setdefault((row.ids.tobytes(), row.mask.tobytes()), []).append(row)

    # Largest first, to the least loaded: at most 4/3 of the best split's longest (Graham 1969).
    for equal in texts.values():
        lightest = loads.index(min(loads))
        dealt[lightest].extend(equal)
        loads[lightest] += len(equal[0].ids)

    for part in dealt:
        if not part:
            part.append(replace(min(rows, key=lambda row: len(row.ids)), weight=0.0))

    return dealt


def of_role(columns: Columns, role: int) -> Columns:
    """The rows of one role.

    Where there are none, the shortest row with weight 0: learners exchange gradients, so that each
    has to have some.
    """
    mine = columns["role"] == role
    chosen = torch.nonzero(mine).flatten() if mine.any() else columns["lengths"].argmin()[None]
    part = {name: column[chosen] for name, column in columns.items() if isinstance(column, Tensor)}
    return {**part, "weights": part["weights"] * mine[chosen]}


def microbatches(columns: Columns, max_tokens: int) -> Iterator[Columns]:
    """Cuts the rows of an update, tensors as :func:`columns_of` names them, into groups of similar
    length, longest first.

    A group is closed before it would exceed ``max_tokens`` padded tokens, or ``MAX_PADDING`` times
    its true tokens. A single text always fits. Attempts at one question are often equal to the last
    token: such rows stay together and count once, because the model reads each text once, see
    :func:`one_of_each`. Groups have one more column, ``text`` int64 (rows,), which rises, and is
    the same for rows that are equal.
    """
    ids, mask = (columns[name].cpu().numpy() for name in ("ids", "loss_mask"))
    paths = columns.get("paths", columns["ids"][:, :0]).cpu().numpy()
    length_of = columns["lengths"].tolist()
    rows_of_text: dict[tuple[bytes, ...], list[int]] = {}
    for row in sorted(range(len(length_of)), key=lambda row: -length_of[row]):
        read = slice(length_of[row])
        text = ids[row, read].tobytes(), mask[row, read].tobytes(), paths[row].tobytes()
        rows_of_text.setdefault(text, []).append(row)

    # Different texts, longest first; a micro-batch is a run of them, padded to its first.
    texts = list(rows_of_text.values())
    lengths = [length_of[rows[0]] for rows in texts]
    device, start = columns["ids"].device, 0
    while start < len(texts):
        longest, true, stop = lengths[start], lengths[start], start + 1
        while stop < len(texts):
            padded = longest * (stop + 1 - start)
            true += lengths[stop]
            if padded > max_tokens or padded > MAX_PADDING * true:
                break
            stop += 1

        numbered = [(number, row) for number in range(start, stop) for row in texts[number]]
        rows = torch.tensor([row for _, row in numbered], device=device)
        part = {name: c[rows] for name, c in columns.items() if isinstance(c, Tensor)}
        part |= {name: part[name][:, :longest] for name in PADDED if name in part}
        yield {**part, "text": torch.tensor([number for number, _ in numbered], device=device)}
        start = stop


def one_of_each(part: Columns) -> tuple[Columns, Tensor | None]:
    """Columns that a model has to read of a micro-batch, or of some of its rows: equal ones once.

    Also the place of each of the policy's tokens (of all rows, row by row) among those of the rows
    that are read: int64 (tokens,); ``None`` where all rows are read, as all are of columns that are
    not from :func:`microbatches`.
    """
    if "text" not in part:
        return part, None

    numbers, text = torch.unique_consecutive(part["text"], return_inverse=True)
    if len(numbers) == len(text):
        return part, None

    # The first row of each text; ``text`` rises, so that a binary search finds it.
    first = torch.searchsorted(part["text"], numbers)  # (texts,)
    read = {name: column[first] for name, column in part.items()}
    own = read["loss_mask"][:, 1:] > 0  # (texts, length - 1)
    # Place of each own token among those that are read: a running count, from 0.
    places = own.flatten().cumsum(0).view_as(own) - 1
    return read, places[text][own[text]]  # (rows, length - 1) -> (tokens,)


def idle(part: Columns) -> Columns:
    """A pass that adds nothing: the last row of a micro-batch, its shortest, with weight 0."""
    last = {name: column[-1:] for name, column in part.items()}
    longest = int(last["lengths"])

    last |= {name: last[name][:, :longest] for name in PADDED}
    return {**last, "weights": torch.zeros_like(last["weights"])}

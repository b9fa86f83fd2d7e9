"""How a step is dealt: as rounds of a fixed size, and their rows to the optimizer updates.

A round is numbered within its step, and its seed names seed, step and number, never a runner. So it
does not matter who plays it, how many runners there are, or in which order they finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agents.config import LearningConfig
from agents.rows import Row
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.record import GameRecord


@dataclass(frozen=True)
class RoundTask:
    """A round that is to be played; with the weights and the config, it decides every game."""

    step: int
    """The training step, from 0."""
    number: int
    """Its place in the step, from 0."""
    slots: int
    """How many questions it is to have."""


@dataclass(frozen=True)
class Sample:
    """What came of a round; plain data, cheap to ship."""

    rows: list[Row]
    records: list[GameRecord]
    verified: list[PooledQuestion]
    """What the round adds to the pool of questions."""
    seconds: dict[str, float]
    """Wall-clock seconds: ``game`` (everything but the engine) and ``engine``."""
    runner: int = 0
    """Who played it; 0 is the main process."""
    logged: dict[str, Any] = field(default_factory=dict)
    """What callbacks logged in the runner, as RLlib's loggers exchange it."""


def rounds_of(step: int, learning: LearningConfig) -> list[RoundTask]:
    """The rounds of a step; all but the last have ``round_size`` slots."""
    batch, size = learning.batch_size, learning.round_size
    return [
        RoundTask(step, number, min(size, batch - first))
        for number, first in enumerate(range(0, batch, size))
    ]


def renumber(samples: Sequence[Sample]) -> list[Sample]:
    """Gives each game of a step its own number; samples are in the order of their rounds."""
    numbered, base = [], 0
    for sample in samples:
        rows = [replace(row, game=row.game + base) for row in sample.rows]
        records = [replace(record, first_slot=base) for record in sample.records]
        numbered.append(replace(sample, rows=rows, records=records))
        base += len(sample.records)
    return numbered


def busiest(samples: Sequence[Sample]) -> dict[str, float]:
    """Wall-clock seconds of a step's games, by part, of the runner that took longest for it."""
    totals: dict[str, dict[int, float]] = {}
    for sample in samples:
        for part, seconds in sample.seconds.items():
            runners = totals.setdefault(part, {})
            runners[sample.runner] = runners.get(sample.runner, 0.0) + seconds
    return {part: max(runners.values()) for part, runners in totals.items()}


def deal(rows: Sequence[Row], learning: LearningConfig) -> list[tuple[list[Row], int]]:
    """Rows of each optimizer update, and how many slots it stands for.

    Games are dealt whole, and in turn, so that every update gets its share of those that give rows
    at all."""
    parts = learning.minibatches
    sizes = [len(range(i, learning.batch_size, parts)) for i in range(parts)]
    turn = {game: i % parts for i, game in enumerate(sorted({row.game for row in rows}))}
    return [([row for row in rows if turn[row.game] == i], size) for i, size in enumerate(sizes)]

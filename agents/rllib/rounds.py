"""How a step is dealt: its games to the env runners, and their rows to the optimizer updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agents.config import LearningConfig
from agents.rllib.env_runner import Sample
from agents.rows import Row


def deal(rows: Sequence[Row], learning: LearningConfig) -> list[tuple[list[Row], int]]:
    """Rows of each optimizer update, and how many slots it stands for.

    Games are dealt whole, and in turn, so that every update gets its share of those that give rows
    at all."""
    parts = learning.minibatches
    sizes = [len(range(i, learning.batch_size, parts)) for i in range(parts)]
    turn = {game: i % parts for i, game in enumerate(sorted({row.game for row in rows}))}
    return [([row for row in rows if turn[row.game] == i], size) for i, size in enumerate(sizes)]


def renumber(samples: Sequence[Sample]) -> list[Sample]:
    """Gives each game of all runners its own number."""
    numbered, base = [], 0
    for sample in samples:
        rows = [replace(row, game=row.game + base) for row in sample.rows]
        records = [replace(r, first_slot=base) for r in sample.records]
        numbered.append(replace(sample, rows=rows, records=records))
        base += len(sample.records)
    return numbered

"""Training rows as padded columns, and how they are cut into micro-batches. No Ray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.rows import ROLE_IDS, Row

Columns = dict[str, Any]
"""One array or tensor per column, all with the same first dimension (rows)."""

PADDED = ("ids", "loss_mask", "behaviour_logprobs")
"""Columns with a second dimension: the length of the longest row."""

MAX_PADDING = 1.15
"""A micro-batch holds at most this many padded tokens per true token. Padding costs as much
arithmetic as text; at the tiny preset, unbounded, it was more than half of the learner's time."""


def columns_of(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """The columns of an update; ids, mask and log-probabilities are padded on the right.

    Returns:
        ``ids`` int64, ``loss_mask`` and ``behaviour_logprobs`` float32, all (rows, longest);
        ``lengths`` and ``role`` int64, ``advantages`` and ``weights`` float32, all (rows,).
    """
    longest = max(len(row.ids) for row in rows)
    columns: dict[str, np.ndarray] = {
        "ids": np.zeros((len(rows), longest), dtype=np.int64),
        "loss_mask": np.zeros((len(rows), longest), dtype=np.float32),
        "behaviour_logprobs": np.zeros((len(rows), longest), dtype=np.float32),
        "lengths": np.array([len(row.ids) for row in rows], dtype=np.int64),
        "role": np.array([ROLE_IDS[row.role] for row in rows], dtype=np.int64),
        "advantages": np.array([row.advantage for row in rows], dtype=np.float32),
        "weights": np.array([row.weight for row in rows], dtype=np.float32),
    }

    for i, row in enumerate(rows):
        columns["ids"][i, : len(row.ids)] = row.ids
        columns["loss_mask"][i, : len(row.mask)] = row.mask
        columns["behaviour_logprobs"][i, : len(row.logprobs)] = row.logprobs

    return columns


def of_role(columns: Columns, role: int) -> Columns:
    """The rows of one role.

    Where there are none, the shortest row with weight 0: learners exchange gradients, so that each
    has to have some.
    """
    chosen = torch.nonzero(columns["role"] == role).flatten()
    some = len(chosen) > 0
    if not some:
        chosen = columns["lengths"].argmin()[None]

    part = {name: column[chosen] for name, column in columns.items() if isinstance(column, Tensor)}
    return part if some else {**part, "weights": torch.zeros_like(part["weights"])}


def microbatches(columns: Columns, max_tokens: int) -> Iterator[Columns]:
    """Cuts the rows of an update into groups of similar length, longest first.

    A group is closed before it would exceed ``max_tokens`` padded tokens, or ``MAX_PADDING`` times
    its true tokens. A single row always fits.

    Args:
        columns: tensors, as :func:`columns_of` names them.
        max_tokens: padded tokens of one forward pass.
    """
    order = torch.argsort(columns["lengths"], descending=True, stable=True)
    lengths: list[int] = columns["lengths"][order].tolist()
    start = 0

    while start < len(order):
        stop = _end_of_group(lengths, start, max_tokens)
        yield _cut(columns, order[start:stop], lengths[start])
        start = stop


def idle(part: Columns) -> Columns:
    """A pass that adds nothing: the last row of a micro-batch, its shortest, with weight 0."""
    last = {name: column[-1:] for name, column in part.items()}
    longest = int(last["lengths"])

    return {
        name: column[:, :longest] if name in PADDED else column for name, column in last.items()
    } | {"weights": torch.zeros_like(last["weights"])}


def _end_of_group(lengths: Sequence[int], start: int, max_tokens: int) -> int:
    longest, true, stop = lengths[start], lengths[start], start + 1

    while stop < len(lengths):
        padded = longest * (stop + 1 - start)
        true += lengths[stop]
        if padded > max_tokens or padded > MAX_PADDING * true:
            break
        stop += 1

    return stop


def _cut(columns: Columns, chosen: Tensor, longest: int) -> Columns:
    part = {name: column[chosen] for name, column in columns.items() if isinstance(column, Tensor)}
    return {
        name: column[:, :longest] if name in PADDED else column for name, column in part.items()
    }

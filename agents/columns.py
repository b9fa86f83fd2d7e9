"""Training rows as padded columns: shards for learners, micro-batches for passes. No Ray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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


def deal_to_learners(rows: Sequence[Row], shards: int) -> list[list[Row]]:
    """Shards of rows: longest first, each to the shard with the fewest tokens.

    Rows of one text go to one learner, which reads it once. A shard that would stay empty gets a
    row of weight 0, because a learner without rows hangs its peers."""
    dealt: list[list[Row]] = [[] for _ in range(shards)]
    loads = [0] * shards
    texts: dict[tuple[bytes, bytes], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (-len(row.ids), row.game, row.role)):
        texts.setdefault((row.ids.tobytes(), row.mask.tobytes()), []).append(row)

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
    """Cuts the rows of an update into groups of similar length, longest first.

    Attempts at one question are often equal to the last token. Such rows stay together, and count
    once, because the model passes through each text only once; see :func:`one_of_each`.

    A group is closed before it would exceed ``max_tokens`` padded tokens, or ``MAX_PADDING`` times
    its true tokens. A single text always fits.

    Args:
        columns: tensors, as :func:`columns_of` names them.
        max_tokens: padded tokens of one forward pass.

    Returns:
        Columns of some rows each, with one more: ``text`` int64 (rows,), which rises, and is the
        same for rows that are equal.
    """
    ids, mask = (columns[name].cpu().numpy() for name in ("ids", "loss_mask"))
    length_of = columns["lengths"].tolist()
    rows_of_text: dict[tuple[bytes, bytes], list[int]] = {}
    for row in sorted(range(len(length_of)), key=lambda row: -length_of[row]):
        read = slice(length_of[row])
        text = ids[row, read].tobytes(), mask[row, read].tobytes()
        rows_of_text.setdefault(text, []).append(row)

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

    Columns without ``text`` are not from :func:`microbatches`: all of their rows are read.

    Returns:
        Columns of one row of each text, and the place of each of the policy's tokens (of all rows,
        row by row) among those of these rows: int64 (tokens,); ``None`` where all rows are read,
        and so nothing has to be moved.
    """
    if "text" not in part:
        return part, None

    numbers, text = torch.unique_consecutive(part["text"], return_inverse=True)
    if len(numbers) == len(text):
        return part, None

    first = torch.searchsorted(part["text"], numbers)
    read = {name: column[first] for name, column in part.items()}
    own = read["loss_mask"][:, 1:] > 0
    places = own.flatten().cumsum(0).view_as(own) - 1
    return read, places[text][own[text]]


def idle(part: Columns) -> Columns:
    """A pass that adds nothing: the last row of a micro-batch, its shortest, with weight 0."""
    last = {name: column[-1:] for name, column in part.items()}
    longest = int(last["lengths"])

    return {
        name: column[:, :longest] if name in PADDED else column for name, column in last.items()
    } | {"weights": torch.zeros_like(last["weights"])}

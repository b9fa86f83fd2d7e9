"""Batches: the rows of an update as padded arrays (columns), and what a model reads of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp_agents.rows import ROLE_IDS, Row

Columns = dict[str, Any]
"""One array or tensor per column, all with the same first dimension (rows)."""
PADDED = ("ids", "loss_mask", "behaviour_logprobs", "credit")
"""Columns with a second dimension, the longest row's length; micro-batches cut it to their own."""
MAX_PADDING = 1.15
"""A micro-batch holds at most this many padded tokens per true token. Padding costs as much
arithmetic as text; at the tiny preset, unbounded, it was more than half of the learner's time."""


def columns_of(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """The columns of an update; ids, mask and log-probabilities are padded on the right.

    Returns:
        ``ids`` int64, ``loss_mask`` and ``behaviour_logprobs`` float32, all (rows, longest);
        ``lengths`` and ``role`` int64, ``advantages`` and ``weights`` float32, all (rows,); where a
        row has one, also ``credit`` float32 (rows, longest).
    """
    columns = {
        # Any id pads: the loss mask is 0 there, and layers are causal.
        "ids": _padded([row.ids for row in rows], np.int64),
        "loss_mask": _padded([row.mask for row in rows], np.float32),
        "behaviour_logprobs": _padded([row.logprobs for row in rows], np.float32),
        "lengths": np.array([len(row.ids) for row in rows], dtype=np.int64),
        "role": np.array([ROLE_IDS[row.role] for row in rows], dtype=np.int64),
        "advantages": np.array([row.advantage for row in rows], dtype=np.float32),
        "weights": np.array([row.weight for row in rows], dtype=np.float32),
    }
    if any(row.credit is not None for row in rows):
        # A row without credit has a factor of 1 on each token.
        full = [np.ones(len(row.ids)) if row.credit is None else row.credit for row in rows]
        columns["credit"] = _padded(full, np.float32)
    return columns


def _padded(texts: Sequence[Sequence[float] | np.ndarray], dtype: type) -> np.ndarray:
    """An array (texts, longest), filled up with 0 on the right."""
    whole: np.ndarray = np.zeros((len(texts), max(map(len, texts))), dtype=dtype)
    for row, text in zip(whole, texts, strict=True):
        row[: len(text)] = text
    return whole


def of_role(columns: Columns, role: int) -> Columns:
    """The rows of one role; where there are none, the shortest row with weight 0, as each learner
    has to have gradients to exchange."""
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
    :func:`deduplicated`. Groups have one more column, ``text`` int64 (rows,), which rises, and is
    the same for rows that are equal.
    """
    ids, mask = (columns[name].cpu().numpy() for name in ("ids", "loss_mask"))
    length_of = columns["lengths"].tolist()
    rows_of_text: dict[tuple[bytes, bytes], list[int]] = {}
    for row in sorted(range(len(length_of)), key=lambda row: -length_of[row]):
        read = slice(length_of[row])
        # The model reads ids, and the mask says which of them are scored: rows that have both in
        # common have their scores in common. Their advantages and weights may differ.
        text = ids[row, read].tobytes(), mask[row, read].tobytes()
        rows_of_text.setdefault(text, []).append(row)

    # Different texts, longest first; a micro-batch is a run of them, padded to its first.
    texts = list(rows_of_text.values())
    lengths = [length_of[rows[0]] for rows in texts]
    device, start = columns["ids"].device, 0
    while start < len(texts):
        longest, true, stop = lengths[start], lengths[start], start + 1
        while stop < len(texts):
            # With one more text: rows x the first one's length, against the sum of all lengths.
            padded = longest * (stop + 1 - start)
            true += lengths[stop]
            if padded > max_tokens or padded > MAX_PADDING * true:
                break
            stop += 1

        # All rows of a text go along, so the limits are of texts, not of rows.
        numbered = [(number, row) for number in range(start, stop) for row in texts[number]]
        rows = torch.tensor([row for _, row in numbered], device=device)
        part = {name: c[rows] for name, c in columns.items() if isinstance(c, Tensor)}
        part |= {name: part[name][:, :longest] for name in PADDED if name in part}
        yield {**part, "text": torch.tensor([number for number, _ in numbered], device=device)}
        start = stop


def deduplicated(part: Columns) -> tuple[Columns, Tensor | None]:
    """Columns that a model has to read of a micro-batch, or of some of its rows: equal ones once.

    Also the place of each of the policy's tokens (of all rows, row by row) among those of the rows
    that are read: int64 (tokens,); ``None`` where all rows are read.
    """
    if "text" not in part:
        return part, None  # not from microbatches
    numbers, text = torch.unique_consecutive(part["text"], return_inverse=True)
    if len(numbers) == len(text):
        return part, None

    # The first row of each text; ``text`` rises, so that a binary search finds it.
    first = torch.searchsorted(part["text"], numbers)  # (texts,)
    read = {name: column[first] for name, column in part.items()}
    by_policy = read["loss_mask"][:, 1:] > 0  # (texts, length - 1)
    # Place of each of these tokens among those that are read: a running count, from 0.
    places = by_policy.flatten().cumsum(0).view_as(by_policy) - 1
    return read, places[text][by_policy[text]]  # (rows, length - 1) -> (tokens,)


def zero_weight_pass(part: Columns) -> Columns:
    """A pass that adds nothing: the last row of a micro-batch, its shortest, with weight 0."""
    last = {name: column[-1:] for name, column in part.items()}
    longest = int(last["lengths"])

    last |= {name: last[name][:, :longest] for name in PADDED if name in last}
    return {**last, "weights": torch.zeros_like(last["weights"])}

"""Columns: the rows of an update as padded arrays, and what a model reads of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp_agents.rows import ROLE_IDS, Row

Columns = dict[str, Any]
"""One array or tensor per column, all with the same first dimension (rows)."""
PADDED = ("ids", "loss_mask", "behaviour_logprobs")
"""Columns with a second dimension, the longest row's length; micro-batches cut it to their own."""
MAX_PADDING = 1.15
"""A micro-batch holds at most this many padded tokens per true token. Padding costs as much
arithmetic as text; at the tiny preset, unbounded, it was more than half of the learner's time."""


def columns_of(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """The columns of an update; ids, mask and log-probabilities are padded on the right.

    Returns:
        ``ids`` int64, ``loss_mask`` and ``behaviour_logprobs`` float32, all (rows, longest);
        ``lengths`` and ``role`` int64, ``advantages`` and ``weights`` float32, all (rows,). Where
        rows have a path: ``paths`` int64 (rows, longest path), ``path_lengths`` int64 (rows,);
        where they have an answer: ``answers`` int64 and ``answer_mask``, 1 on the answer itself,
        both (rows, longest).
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

    if any(row.path for row in rows):
        columns["path_lengths"] = np.array([len(row.path) for row in rows], dtype=np.int64)
        columns["paths"] = _padded([row.path for row in rows], np.int64)
    answers = [row.answer for row in rows]
    if any(opening or answer for opening, answer in answers):
        columns["answers"] = _padded([[*opening, *answer] for opening, answer in answers], np.int64)
        of_answer = [[0] * len(opening) + [1] * len(answer) for opening, answer in answers]
        columns["answer_mask"] = _padded(of_answer, np.float32)
    return columns


def _padded(texts: Sequence[Sequence[float] | np.ndarray], dtype: type) -> np.ndarray:
    """An array (texts, longest), filled up with 0 on the right."""
    whole: np.ndarray = np.zeros((len(texts), max(map(len, texts))), dtype=dtype)
    for row, text in zip(whole, texts, strict=True):
        row[: len(text)] = text
    return whole


def informed(part: Columns) -> Columns:
    """Rows as a teacher reads them: each with its path, if it has one, between its prompt and its
    first own token. The policy's tokens are the same, in the same order."""
    if "paths" not in part:
        return part
    ids, mask, paths = part["ids"], part["loss_mask"], part["paths"]
    length, longest = ids.shape[1], paths.shape[1]
    lengths = part["lengths"] + part["path_lengths"]
    place = torch.arange(int(lengths.max()), device=ids.device).expand(len(ids), -1)
    start, size = (mask > 0).int().argmax(dim=1)[:, None], part["path_lengths"][:, None]

    # Place t holds ids[t] of the prompt, then the path from `start` on, then ids[t - size].
    of_path = (place >= start) & (place < start + size)  # (rows, place)
    of_row = torch.where(place < start, place, place - size)
    last = of_row.clamp(0, length - 1)
    read = paths.gather(1, (place - start).clamp(0, longest - 1))
    own = mask.gather(1, last) * (~of_path & (of_row < length))
    ids = torch.where(of_path, read, ids.gather(1, last))
    return {**part, "ids": ids, "loss_mask": own, "lengths": lengths}


def answered(part: Columns, start: Tensor) -> Columns:
    """Rows as they were before a place, ``start`` int64 (rows,), with the right answer there, whose
    tokens alone are scored."""
    ids, answers = part["ids"], part["answers"]
    length, longest = ids.shape[1], answers.shape[1]
    place = torch.arange(int(start.max()) + longest, device=ids.device).expand(len(ids), -1)

    # Place t holds ids[t] before `start`, then the answer; nothing behind that is scored.
    after = place - start[:, None]  # (rows, place)
    is_answer, at = (after >= 0) & (after < longest), after.clamp(0, longest - 1)
    read = torch.where(is_answer, answers.gather(1, at), ids.gather(1, place.clamp(max=length - 1)))
    own = part["answer_mask"].gather(1, at) * is_answer
    return {**part, "ids": read, "loss_mask": own, "lengths": start + longest}


def of_role(columns: Columns, role: int) -> Columns:
    """The rows of one role; where there are none, the shortest row with weight 0, as each learner
    has to have gradients to exchange."""
    mine = columns["role"] == role
    chosen = torch.nonzero(mine).flatten() if mine.any() else columns["lengths"].argmin()[None]
    part = {name: column[chosen] for name, column in columns.items() if isinstance(column, Tensor)}
    return {**part, "weights": part["weights"] * mine[chosen]}


def microbatches(columns: Columns, max_tokens: int) -> Iterator[Columns]:
    """Cuts the rows of an update, tensors as :func:`columns_of` names them, into groups of similar
    length, longest first; paths count.

    A group is closed before it would exceed ``max_tokens`` padded tokens, or ``MAX_PADDING`` times
    its true tokens. A single text always fits. Attempts at one question are often equal to the last
    token: such rows stay together and count once, because the model reads each text once, see
    :func:`one_of_each`. Groups have one more column, ``text`` int64 (rows,), which rises, and is
    the same for rows that are equal.
    """
    ids, mask = (columns[name].cpu().numpy() for name in ("ids", "loss_mask"))
    beside = [columns[name].cpu().numpy() for name in ("paths", "answers") if name in columns]
    length_of = columns["lengths"].tolist()
    # A teacher reads a path as well, so a row counts with it.
    read_of = (columns["lengths"] + columns.get("path_lengths", 0)).tolist()
    rows_of_text: dict[tuple[bytes, ...], list[int]] = {}
    for row in sorted(range(len(read_of)), key=lambda row: -read_of[row]):
        read = slice(length_of[row])
        text = (
            ids[row, read].tobytes(),
            mask[row, read].tobytes(),
            *(b[row].tobytes() for b in beside),
        )
        rows_of_text.setdefault(text, []).append(row)

    # Different texts, longest first; a micro-batch is a run of them, padded to its first.
    texts = list(rows_of_text.values())
    lengths = [read_of[rows[0]] for rows in texts]
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
        own = max(length_of[row] for _, row in numbered)
        part |= {name: part[name][:, :own] for name in PADDED if name in part}
        if "paths" in part:
            part["paths"] = part["paths"][:, : max(1, int(part["path_lengths"].max()))]
        yield {**part, "text": torch.tensor([number for number, _ in numbered], device=device)}
        start = stop


def one_of_each(part: Columns) -> tuple[Columns, Tensor | None]:
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

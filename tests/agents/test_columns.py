"""Micro-batches: every row once, in groups of similar length."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.columns import MAX_PADDING, columns_of, microbatches
from agents.rows import Row


def tensors(lengths: list[int]) -> dict[str, torch.Tensor]:
    rows = []
    for game, length in enumerate(lengths):
        mask = np.ones(length, dtype=np.uint8)
        ids = np.full(length, game, dtype=np.int32)
        rows.append(Row(ids, mask, -mask.astype(np.float32), "solver", game, 0.5, game + 1.0))
    return {name: torch.as_tensor(column) for name, column in columns_of(rows).items()}


@settings(deadline=None)  # another test may hold the processor
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=60),
    st.sampled_from([1, 50, 1000, 10**9]),
)
def test_every_row_is_in_one_group_that_is_within_its_bounds(
    lengths: list[int], max_tokens: int
) -> None:
    parts = list(microbatches(tensors(lengths), max_tokens))
    assert sorted(w for part in parts for w in part["weights"].tolist()) == [
        game + 1.0 for game in range(len(lengths))
    ]

    for part in parts:
        rows, width = part["ids"].shape
        true = int(part["lengths"].sum())
        assert width == int(part["lengths"].max())
        assert rows == 1 or rows * width <= min(max_tokens, MAX_PADDING * true)
        for i in range(rows):
            # What belongs to a row stays beside it.
            game, length = int(part["weights"][i]) - 1, int(part["lengths"][i])
            assert length == lengths[game]
            assert part["ids"][i, :length].tolist() == [game] * length


def test_rows_of_one_length_share_a_pass() -> None:
    assert [len(part["ids"]) for part in microbatches(tensors([30] * 10), 150)] == [5, 5]
    assert [len(part["ids"]) for part in microbatches(tensors([30] * 10), 10**6)] == [10]

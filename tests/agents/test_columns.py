"""Micro-batches: every row once, in groups of similar length."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.columns import MAX_PADDING, columns_of, microbatches, one_of_each
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


def test_equal_rows_stay_together_and_are_read_once() -> None:
    columns = tensors([30, 28, 30, 28, 30])
    columns["ids"][2, :30] = columns["ids"][0, :30]
    columns["ids"][4, :30] = columns["ids"][0, :30]
    columns["loss_mask"][4, 3] = 0.0  # the same tokens, of which the policy wrote others
    columns["loss_mask"][:, 0] = 0.0

    (part,) = microbatches(columns, 30 * 4)
    assert part["weights"].tolist() == [1.0, 3.0, 5.0, 2.0, 4.0]
    assert part["text"].tolist() == [0, 0, 1, 2, 3]

    read, places = one_of_each(part)
    assert read["weights"].tolist() == [1.0, 5.0, 2.0, 4.0]
    assert places is not None
    assert places.tolist() == [*range(29), *range(29 + 28 + 2 * 27)]

    # Of some of its rows: those that are left.
    some = {name: column[[1, 4]] for name, column in part.items()}
    read, places = one_of_each(some)
    assert (read["weights"].tolist(), places) == ([3.0, 4.0], None)

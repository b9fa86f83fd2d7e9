"""Rows as columns: micro-batches, shards for several learners, numbers over all rounds."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.config import LearningConfig
from agents.rllib.env_runner import Sample, renumber
from agents.rllib.module import MODULE_ID, to_batch
from agents.rows import (
    MAX_PADDING,
    ROLE_IDS,
    Row,
    columns_of,
    deal_to_learners,
    microbatches,
    one_of_each,
    rows_of,
)
from ssp_env.game.record import record_game
from ssp_env.game.round import Round


def row(length: int, game: int, role: str = "solver") -> Row:
    """A prompt of one token; the rest is the policy's, with weight ``game`` + 1."""
    mask = np.ones(length, dtype=np.uint8)
    mask[0] = 0
    ids = np.full(length, game + 10, dtype=np.int32)
    return Row(ids, mask, mask * np.float32(-game), role, game, 0.5, game + 1.0)


def tensors(lengths: list[int]) -> dict[str, torch.Tensor]:
    columns = columns_of([row(length, game) for game, length in enumerate(lengths)])
    return {name: torch.as_tensor(column) for name, column in columns.items()}


@settings(deadline=None)  # another test may hold the processor
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=60),
    st.sampled_from([1, 50, 1000, 10**9]),
)
def test_every_row_is_in_one_group_that_is_within_its_bounds(
    lengths: list[int], max_tokens: int
) -> None:
    parts = list(microbatches(tensors(lengths), max_tokens))
    games = [int(weight) - 1 for part in parts for weight in part["weights"]]
    assert sorted(games) == list(range(len(lengths)))

    for part in parts:
        rows, width = part["ids"].shape
        true = int(part["lengths"].sum())
        assert width == int(part["lengths"].max())
        assert rows == 1 or rows * width <= min(max_tokens, MAX_PADDING * true)
        for i in range(rows):
            # What belongs to a row stays beside it.
            game, length = int(part["weights"][i]) - 1, int(part["lengths"][i])
            assert length == lengths[game]
            assert part["ids"][i, :length].tolist() == [game + 10] * length


def test_equal_rows_stay_together_and_are_read_once() -> None:
    columns = tensors([30, 28, 30, 28, 30])
    columns["ids"][2, :30] = columns["ids"][0, :30]
    columns["ids"][4, :30] = columns["ids"][0, :30]
    columns["loss_mask"][4, 3] = 0.0  # the same tokens, of which the policy wrote others

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


def test_columns_are_padded_on_the_right() -> None:
    batch = to_batch([row(4, 1), row(7, 2, "proposer")])
    assert batch.env_steps() == 2
    columns = batch.policy_batches[MODULE_ID]
    assert columns["ids"].tolist() == [[11] * 4 + [0] * 3, [12] * 7]
    assert columns["loss_mask"].tolist() == [[0, 1, 1, 1, 0, 0, 0], [0, *[1] * 6]]
    assert columns["behaviour_logprobs"][1].tolist() == [0, *[-2] * 6]
    assert columns["lengths"].tolist() == [4, 7]
    assert columns["role"].tolist() == [ROLE_IDS["solver"], ROLE_IDS["proposer"]]
    assert columns["advantages"].tolist() == [0.5, 0.5]
    assert columns["weights"].tolist() == [2.0, 3.0]


@settings(deadline=None)
@given(st.lists(st.integers(2, 200), min_size=1, max_size=40), st.integers(1, 5))
def test_shards_hold_every_row_once_are_balanced_and_never_empty(
    lengths: list[int], shards: int
) -> None:
    rows = [row(length, game) for game, length in enumerate(lengths)]
    parts = deal_to_learners(rows, shards)
    assert all(parts)
    assert sorted(r.game for part in parts for r in part if r.weight) == list(range(len(rows)))
    fillers = {len(r.ids) for part in parts for r in part if not r.weight}
    assert fillers <= {min(lengths)}, "the shortest row costs least"
    loads = [sum(len(r.ids) for r in part if r.weight) for part in parts]
    assert max(loads) - min(loads) <= max(lengths)


def test_games_are_numbered_over_all_rounds(played: Round) -> None:
    rows = rows_of(played.games, LearningConfig())
    records = [record_game(game, played.rules) for game in played.games]
    first, second = renumber([Sample(rows, records, [], {})] * 2)
    count = len(records)
    assert [record.slot for record in (*first.records, *second.records)] == list(range(2 * count))
    assert [row.game for row in first.rows] == [row.game for row in rows]
    assert [row.game for row in second.rows] == [row.game + count for row in rows]

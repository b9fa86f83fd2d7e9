"""Rows as columns: micro-batches, shards for several learners, numbers over all rounds."""

from __future__ import annotations

import numpy as np
import pytest
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


def long_row(length: int, game: int = 0, role: str = "solver", weight: float = 0.1) -> Row:
    mask = np.zeros(length, dtype=np.uint8)
    mask[2:] = 1
    ids = np.arange(10, 10 + length, dtype=np.int32)
    return Row(ids, mask, -mask.astype(np.float32) * game, role, game, 0.5, weight)


def test_columns_are_padded_on_the_right() -> None:
    rows = [long_row(4, 1), long_row(7, 2, "proposer", 0.2)]
    batch = to_batch(rows)
    assert batch.env_steps() == 2
    columns = batch.policy_batches[MODULE_ID]
    assert (
        columns["ids"].shape
        == columns["loss_mask"].shape
        == columns["behaviour_logprobs"].shape
        == (2, 7)
    )
    assert columns["ids"][0].tolist() == [10, 11, 12, 13, 0, 0, 0]
    assert columns["loss_mask"][0].tolist() == [0, 0, 1, 1, 0, 0, 0]
    assert columns["behaviour_logprobs"][1].tolist() == [0, 0, -2, -2, -2, -2, -2]
    assert columns["lengths"].tolist() == [4, 7]
    assert columns["role"].tolist() == [ROLE_IDS["solver"], ROLE_IDS["proposer"]]
    assert columns["advantages"].tolist() == [0.5, 0.5]
    np.testing.assert_allclose(columns["weights"], [0.1, 0.2], rtol=1e-6)


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_shards_hold_every_row_once_and_are_balanced_by_tokens(shards: int) -> None:
    rng = np.random.default_rng(0)
    rows = [
        long_row(int(length), game)
        for game, length in enumerate(rng.permutation(range(5, 200))[:40])
    ]
    parts = deal_to_learners(rows, shards)
    assert sorted(r.game for part in parts for r in part) == list(range(40))
    loads = [sum(len(r.ids) for r in part) for part in parts]
    assert max(loads) - min(loads) <= max(len(r.ids) for r in rows)
    assert max(loads) <= 1.1 * sum(loads) / shards


def test_a_shard_is_never_empty() -> None:
    rows = [long_row(9, 0), long_row(5, 1)]
    parts = deal_to_learners(rows, 4)
    assert all(parts)
    fillers = [r for part in parts for r in part if r.weight == 0.0]
    assert len(fillers) == 2
    assert {len(r.ids) for r in fillers} == {5}, "the shortest row costs least"
    real = [r for part in parts for r in part if r.weight]
    assert sorted(map(id, real)) == sorted(map(id, rows))


def test_games_are_numbered_over_all_rounds(played: Round) -> None:
    rows = rows_of(played.games, LearningConfig())
    records = [record_game(game, played.rules) for game in played.games]
    sample = Sample(rows, records, [], {})
    first, second = renumber([sample, sample])
    count = len(records)
    assert [record.slot for record in (*first.records, *second.records)] == list(range(2 * count))
    assert {record.group for record in first.records}.isdisjoint(
        record.group for record in second.records
    )
    assert [row.game for row in first.rows] == [row.game for row in rows]
    assert [row.game for row in second.rows] == [row.game + count for row in rows]

"""Padding, and shards for several learners."""

from __future__ import annotations

import numpy as np
import pytest

from agents.columns import deal_to_learners
from agents.rllib.module import MODULE_ID, to_batch
from agents.rows import ROLE_IDS, Row


def row(length: int, game: int = 0, role: str = "solver", weight: float = 0.1) -> Row:
    mask = np.zeros(length, dtype=np.uint8)
    mask[2:] = 1
    ids = np.arange(10, 10 + length, dtype=np.int32)
    return Row(ids, mask, -mask.astype(np.float32) * game, role, game, 0.5, weight)


def test_columns_are_padded_on_the_right() -> None:
    rows = [row(4, 1), row(7, 2, "proposer", 0.2)]
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
        row(int(length), game) for game, length in enumerate(rng.permutation(range(5, 200))[:40])
    ]
    parts = deal_to_learners(rows, shards)
    assert sorted(r.game for part in parts for r in part) == list(range(40))
    loads = [sum(len(r.ids) for r in part) for part in parts]
    assert max(loads) - min(loads) <= max(len(r.ids) for r in rows)
    assert max(loads) <= 1.1 * sum(loads) / shards


def test_a_shard_is_never_empty() -> None:
    rows = [row(9, 0), row(5, 1)]
    parts = deal_to_learners(rows, 4)
    assert all(parts)
    fillers = [r for part in parts for r in part if r.weight == 0.0]
    assert len(fillers) == 2
    assert {len(r.ids) for r in fillers} == {5}, "the shortest row costs least"
    real = [r for part in parts for r in part if r.weight]
    assert sorted(map(id, real)) == sorted(map(id, rows))

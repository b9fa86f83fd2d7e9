"""How a step is dealt as rounds, and put together again."""

from __future__ import annotations

import pytest

from agents.config import LearningConfig
from agents.rllib.env_runner import RoundTask, Sample, renumber, rounds_of
from agents.rows import rows_of
from ssp_env.game.record import record_game
from ssp_env.game.round import Round


@pytest.mark.parametrize(
    ("batch", "size", "slots"),
    [(32, 32, [32]), (8, 32, [8]), (10, 4, [4, 4, 2]), (256, 32, [32] * 8), (3, 1, [1, 1, 1])],
)
def test_a_step_is_rounds_of_one_size(batch: int, size: int, slots: list[int]) -> None:
    learning = LearningConfig(batch_size=batch, minibatches=1, round_size=size)
    assert rounds_of(7, learning) == [RoundTask(7, i, count) for i, count in enumerate(slots)]


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

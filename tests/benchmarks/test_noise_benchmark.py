"""Noise matters in the default game: fewer ambiguous questions pass the more of it there is, and a
step's metrics show it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from agents.metrics import step_figures
from benchmarks.noise import measure, play_round
from ssp_env.game.config import NoiseKind
from ssp_env.game.record import record_game
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.worlds.mini import MiniWorld


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return measure(seed=7, rounds=1, counts=(0, 4, 12))


def test_more_noise_lets_fewer_ambiguous_questions_pass(measured: dict[str, Any]) -> None:
    assert 0.3 < measured["ambiguous_proposals"] / measured["proposals"] < 0.8
    for kind in get_args(NoiseKind):
        kept = [measured["shares"][kind][count]["kept"] for count in ("0", "4", "12")]
        assert kept[0] > 0.6
        assert kept[0] > kept[1] >= kept[2]
        assert kept[2] < 0.5


def test_questions_with_one_answer_always_pass(measured: dict[str, Any]) -> None:
    cells = [cell for row in measured["shares"].values() for cell in row.values()]
    assert {cell["unique"] for cell in cells} == {1.0}


def test_a_steps_metrics_depend_on_the_noise() -> None:
    """The same proposals to the same answers, once without noise and once with the default's."""
    world = MiniWorld()
    retriever, figures = BM25Retriever(world.corpus), {}
    for count in (0, 4):
        played = play_round(world, retriever, "batch", count, [0, 0])
        games = [record_game(game, played.rules) for game in played.games]
        figures[count] = step_figures(games, len(games), [])

    without, with_noise = figures[0], figures[4]
    for name in ("ambiguous_share", "verified_rate", "valid_rate", "proposer_reward"):
        assert without[name] > with_noise[name], name
    assert without["true_share"] == with_noise["true_share"] == 1.0

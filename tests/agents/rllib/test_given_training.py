"""The algorithm on given questions beside proposals: whoever plays, resumed, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssp_agents.rllib import SSP, SSPConfig
from ssp_env.errors import ConfigError
from ssp_env.game.record import GameRecord
from ssp_env.types import Question

pytestmark = pytest.mark.usefixtures("cluster")


@contextmanager
def running(config: SSPConfig) -> Iterator[SSP]:
    algorithm = config.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()


def weights_of(algorithm: SSP) -> dict[str, np.ndarray]:
    return {n: w.numpy().copy() for n, w in algorithm.get_module().lm.state_dict().items()}


@pytest.fixture
def config(algorithm_config: SSPConfig) -> SSPConfig:
    """Two game batches a step: each has two given questions, of ten, and two proposals."""
    questions = algorithm_config.make_world().questions(0, per_group=3)[:10]
    algorithm_config.training(questions=questions, given_share=0.5, round_size=4)
    return algorithm_config


def given(games: list[GameRecord]) -> list[tuple[str | None, str | None]]:
    return [(g.question, g.question_group) for g in games if g.origin == "given"]


@pytest.mark.slow
def test_one_process_or_two_runners_play_the_same_and_go_on_with_the_same(
    config: SSPConfig, tmp_path: Path
) -> None:
    expected = config.given()
    games: list[list[GameRecord]] = []
    with running(config.copy(copy_frozen=False)) as algorithm:
        for step in range(3):
            figures = algorithm.train()["ssp"]["figures"]
            games.append([*algorithm.last_games])
            asked = [(q.text, q.group) for q in expected.of_step(step)]
            assert given(games[step]) == asked
            assert figures["given_games"] == 4
            assert figures["given_epoch"] == pytest.approx(4 * (step + 1) / 10)
            assert sum(game.origin == "proposed" for game in games[step]) == 4
            if step == 0:
                algorithm.save_to_path(tmp_path)
        weights = weights_of(algorithm)

    spread = config.copy(copy_frozen=False).env_runners(num_env_runners=2)
    with running(spread) as algorithm:
        algorithm.restore_from_path(tmp_path)
        for step in (1, 2):
            algorithm.train()
            assert algorithm.last_games == games[step]
        for name, weight in weights_of(algorithm).items():
            np.testing.assert_array_equal(weight, weights[name])


def test_with_overlap_each_step_still_has_its_own(config: SSPConfig, tmp_path: Path) -> None:
    config.training(overlap=True, given_share=None)
    expected = config.given()
    with running(config.copy(copy_frozen=False)) as algorithm:
        for step in range(2):
            algorithm.train()
            assert given([*algorithm.last_games]) == [
                (q.text, q.group) for q in expected.of_step(step)
            ]
        assert {game.origin for game in algorithm.last_games} == {"given"}
        assert algorithm.last_figures["staleness"] == 1.0
        algorithm.save_to_path(tmp_path)

    other = config.copy(copy_frozen=False).training(questions=config.questions[:9])
    with running(other) as algorithm, pytest.raises(ConfigError, match="give it those, unchanged"):
        algorithm.restore_from_path(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"questions": [Question("x", "who wrote Emma ?", ("Jane",))]}, "no tokens for 1 of 1"),
        ({"questions": "nowhere.jsonl"}, r"nowhere.jsonl: no such file"),
        ({"evaluation_interval": 1}, "4 of 10 are evaluation questions"),
    ],
)
def test_bad_questions_are_refused_before_the_first_step(
    change: dict[str, Any], says: str, config: SSPConfig
) -> None:
    if "evaluation_interval" in change:
        config.evaluation(evaluation_duration=4, **change)
    else:
        config.training(**change)
    with pytest.raises(ValueError, match=says):
        config.build_algo()

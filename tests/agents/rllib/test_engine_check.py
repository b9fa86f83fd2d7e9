"""The algorithm ends with the cause when its engine samples from another policy than it trains."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.rllib.utils.actor_manager import ResultOrError

from agents.config import LearningConfig
from agents.rllib.algorithm import SSPConfig
from agents.rllib.comparison import compare
from ssp_env.errors import ServiceError
from ssp_env.game.record import record_game
from ssp_env.game.round import Round

pytestmark = pytest.mark.usefixtures("cluster")


class Deaf:
    """Two remote learners of which the first fails."""

    def __len__(self) -> int:
        return 2

    def foreach_learner(self, ask: Any) -> list[Any]:
        failed = ResultOrError(error=RuntimeError("CUDA error: out of memory"))
        return [failed, ResultOrError(result=[])]


def test_a_learner_that_cannot_score_says_why(played: Round, model_dir: Path) -> None:
    games = [record_game(game, played.rules) for game in played.games]
    config = SimpleNamespace(model_dir=str(model_dir), learning=LearningConfig)
    with pytest.raises(RuntimeError, match="CUDA error: out of memory"):
        compare(SimpleNamespace(learner_group=Deaf(), config=config), games)


def test_weights_that_do_not_arrive_are_noticed(algorithm_config: SSPConfig) -> None:
    every, caught = 2, 3
    config = algorithm_config.copy(copy_frozen=False)
    config.training(engine={"check_every": every, "max_gap": 0.02}, lr=0.03, strategy="dummy")
    algorithm = config.build_algo()
    engine = algorithm.env_runner.engine

    def lost(state: Any, version: int) -> None:
        engine.weights_version = version

    engine.update_weights = lost
    try:
        for _ in range(1, caught):
            algorithm.train()
        assert algorithm.last_gap.mean < 1e-4, "the first step is compared as well"
        with pytest.raises(ServiceError, match="samples from another policy"):
            algorithm.train()
    finally:
        algorithm.stop()

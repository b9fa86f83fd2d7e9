"""The algorithm ends with the cause when its engine samples from another policy than it trains."""

from __future__ import annotations

from typing import Any

import pytest

from agents.rllib.algorithm import SSPConfig
from ssp_env.errors import ServiceError

pytestmark = pytest.mark.usefixtures("cluster")


def test_weights_that_do_not_arrive_are_noticed(
    algorithm_config: SSPConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    every, caught = 2, 3
    monkeypatch.setattr("agents.rllib.algorithm.CHECK_EVERY", every)
    config = algorithm_config.copy(copy_frozen=False)
    config.training(engine={"max_gap": 0.02}, lr=0.03, strategy="dummy")
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

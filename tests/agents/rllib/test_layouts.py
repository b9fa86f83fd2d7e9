"""Env runners and learners on GPUs that Ray believes in: what Tune reserves, what is refused.

Who meets on which GPU is in `test_algorithm.py`.
"""

from __future__ import annotations

import pytest

from ssp_agents.config import SHARED
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.rllib import SSP, SSPConfig
from ssp_env.errors import ConfigError

pytestmark = pytest.mark.usefixtures("cluster")


def gpus(config: SSPConfig, runner: float, learner: float) -> SSPConfig:
    config = config.copy(copy_frozen=False).env_runners(num_gpus_per_env_runner=runner)
    return config.learners(num_gpus_per_learner=learner)


def test_tune_reserves_whole_gpus_for_pairs(algorithm_config: SSPConfig) -> None:
    def bundles(runners: int, learners: int, *of_each: float) -> list[dict[str, float]]:
        config = gpus(algorithm_config, *of_each).training(round_size=4)
        config.env_runners(num_env_runners=runners).learners(num_learners=learners)
        return list(SSP.default_resource_request(config).bundles)

    pair = {"CPU": 1, "GPU": 1}
    assert bundles(2, 2, *SHARED)[1:] == [pair, pair]
    assert bundles(0, 0, *SHARED) == [{"CPU": 1, "GPU": 1}]
    assert bundles(1, 2, 1, 1)[1:] == [{"CPU": 1, "GPU": 1}, {"GPU": 1}, {"GPU": 1}]


@pytest.mark.parametrize(
    ("runners", "learners", "of_each", "says"),
    [
        (2, 2, (0.5, 0.5), "give 1 and 1 for GPUs of their own, or 0.6 and 0.4"),
        (2, 2, (1, 0.5), "two of a kind may meet on a GPU"),
        (2, 1, SHARED, "give 2 of each, or GPUs of their own"),
        (0, 2, (1, 1), "give at least one env runner and one learner"),
        (2, 2, (2, 1), "only vLLM on GPUs of its own"),
        (0, 0, SHARED, "sees no GPU"),
        (2, 15, (1, 1), "need 17 GPUs, and Ray has 16"),
        (0, 999, (0, 0), "compute.learners = 999: there are .* CPUs.*give at most"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(
    algorithm_config: SSPConfig,
    runners: int,
    learners: int,
    of_each: tuple[float, float],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = gpus(algorithm_config, *of_each).training(round_size=4)
    config.env_runners(num_env_runners=runners).learners(num_learners=learners)
    monkeypatch.setattr(TransformersEngine, "__init__", lambda *_: pytest.fail("it was started"))
    with pytest.raises(ConfigError, match=says):
        config.build_algo()

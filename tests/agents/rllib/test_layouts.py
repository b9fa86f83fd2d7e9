"""Env runners and learners on GPUs that Ray believes in: who meets on which, and who is asleep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray.rllib.core.learner import learner_group
from ray.rllib.core.learner.torch import torch_learner
from ray.train.torch import TorchConfig
from safetensors.torch import load_file

from agents.config import SHARED
from agents.engines.transformers_engine import TransformersEngine
from agents.rllib import SSP, SSPConfig, SSPLearner, env_runner
from agents.rllib.env_runner import SSPEnvRunner
from ssp_env.errors import ConfigError

pytestmark = pytest.mark.usefixtures("cluster")


def on_cpu(*_: Any) -> torch.device:
    """In place of RLlib's `get_device`, which takes Ray's word for a GPU."""
    return torch.device("cpu")


class LearnerOnCPU(SSPLearner):
    def build(self) -> None:
        torch_learner.get_device = on_cpu
        super().build()


class RunnerOnCPU(SSPEnvRunner):
    """Counts how often its engine was put to sleep."""

    slept = 0

    def make_module(self) -> None:
        env_runner.get_device = on_cpu
        super().make_module()

    def sleep(self) -> None:
        super().sleep()
        self.slept += 1


def gpus(config: SSPConfig, runner: float, learner: float) -> SSPConfig:
    config = config.copy(copy_frozen=False).env_runners(num_gpus_per_env_runner=runner)
    return config.learners(num_gpus_per_learner=learner)


def of(actor: Any) -> tuple[int, ...]:
    return tuple(ray.get_gpu_ids())


def test_a_runner_and_a_learner_take_turns_on_each_gpu(
    algorithm_config: SSPConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 GPUs, which have no CUDA: tensors are on the CPU, and learners talk by gloo."""
    monkeypatch.setattr(learner_group, "_get_backend_config", lambda _: TorchConfig("gloo"))
    config = gpus(algorithm_config, *SHARED).env_runners(
        num_env_runners=2, env_runner_cls=RunnerOnCPU
    )
    config.training(round_size=4, lr=1e-4, learner_class=LearnerOnCPU)
    config.learners(num_learners=2, sharding="fsdp2")
    algorithm = config.build_algo()
    try:
        runners = algorithm.env_runner_group.foreach_env_runner(of)
        learners = [result.get() for result in algorithm.learner_group.foreach_learner(of)]
        assert len(set(runners)) == len(set(learners)) == 2, "no two of a kind on one"
        assert set(runners) == set(learners), "one of each on both, and 14 left alone"

        result = algorithm.train()
        assert result["ssp"]["figures"]["learner_trained_tokens"] > 0
        slept = algorithm.env_runner_group.foreach_env_runner(lambda runner: runner.slept)
        assert slept == [2, 2], "until the first weights came, and while the learners worked"

        algorithm.save_policy(tmp_path / "policy")
        saved = load_file(tmp_path / "policy" / "model.safetensors")
        for name, weight in algorithm.policy_weights().items():
            assert np.array_equal(saved[name].numpy(), weight)
    finally:
        algorithm.stop()


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

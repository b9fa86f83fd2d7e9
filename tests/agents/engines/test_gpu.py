"""On a GPU, the engine keeps its promises, the learner makes a CPU's updates, and both share it."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_tests import EngineTests
from learning import distance, share_apart, some_rows
from two_ranks import LEARNING, columns, scorer

from ssp_agents.config import SHARED, EngineConfig
from ssp_agents.engines.base import Engine, StopRule
from ssp_agents.engines.opening import open_engine
from ssp_agents.rllib.config import SSPConfig
from ssp_agents.update import Update, adam
from ssp_env.tokenizers.base import Tokenizer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class TestTransformersEngineOnAGPU(EngineTests):
    def engine(
        self, lm: Any, tokenizer: Tokenizer, stop: StopRule, dtype: str = "float32"
    ) -> Engine:
        config = EngineConfig(dtype=dtype)
        return open_engine(config, "", tokenizer, stop, device="cuda", model=deepcopy(lm))


def test_an_update_is_the_cpus(model_dir: Path) -> None:
    rows, weights, norms = some_rows(model_dir, 6, noise=0.3), [], []
    for device in ("cpu", "cuda"):
        policy = scorer(model_dir).to(device)
        reference = scorer(model_dir).requires_grad_(False).to(device)
        optimizer = adam(policy.parameters(), LEARNING)
        update = Update(policy, optimizer, LEARNING, reference=reference)
        on_device = {name: column.to(device) for name, column in columns(rows).items()}
        norms.append(update(on_device, 0)["grad_norm"])
        weights.append({name: tensor.cpu() for name, tensor in policy.state_dict().items()})
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
    assert share_apart(*weights) < 1e-2
    assert distance(*weights) <= 2 * LEARNING.lr


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("pairs", [0, 1])
def test_engine_and_learner_share_a_gpu(algorithm_config: SSPConfig, pairs: int) -> None:
    """In one process or in two; the engine is in bfloat16 then, the learner's weights are not."""
    runner, learner = SHARED
    config = algorithm_config.training(round_size=4)
    config.env_runners(num_env_runners=pairs, num_gpus_per_env_runner=runner)
    config.learners(num_learners=pairs, num_gpus_per_learner=learner)
    algo = config.build_algo()
    try:
        found = [algo.train()["ssp"]["figures"] for _ in range(2)]
    finally:
        algo.stop()
    for figures in found:
        assert figures["learner_logprob_gap"] < 0.05, figures

"""A learner without Ray, and rows for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from playful import LEARNING

from ssp_agents.losses import Algorithm, reinforce_advantages, reinforce_loss
from ssp_agents.metrics import merge_figures
from ssp_agents.models import load_model
from ssp_agents.rllib.config import SSPConfig
from ssp_agents.rllib.learner import SSPLearner
from ssp_agents.rllib.module import MODULE_ID
from ssp_agents.rows import Row

Weights = dict[str, Any]
"""Tensors or arrays, named as the model names them."""


def learner_for(model_dir: Path, cls: type[SSPLearner] = SSPLearner, **changes: Any) -> SSPLearner:
    """A learner in this process."""
    config = SSPConfig().training(model_dir=model_dir, **{**LEARNING, **changes})
    learner = cls(config=config, module_spec=config.get_multi_rl_module_spec())
    learner.build()
    return learner


def update(learner: SSPLearner, rows: Sequence[Row], step: int = 0) -> dict[str, float]:
    """One update; its figures."""
    result = learner.update(
        batch=learner.policies.batches(rows)[0], timesteps={"training_step": step}
    )
    return merge_figures([result[MODULE_ID]])


def weights_of(learner: SSPLearner) -> Weights:
    """A copy of the weights, named as the model names them."""
    return {
        name: tensor.clone() for name, tensor in learner.module[MODULE_ID].lm.state_dict().items()
    }


def distance(one: Weights, other: Weights) -> float:
    """The largest difference of two sets of weights."""
    return max(float(abs(one[name] - other[name]).max()) for name in one)


def share_apart(one: Weights, other: Weights) -> float:
    """The share of weights that differ by more than rounding."""
    apart = [abs(np.asarray(one[name] - other[name])).ravel() for name in other]
    return float((np.concatenate(apart) > 1e-5).mean())


def exact_logprobs(
    lm: Any, ids: Sequence[int] | np.ndarray, tokens: int | None = None
) -> torch.Tensor:
    """Those of all tokens but the first (length - 1,), by one plain pass over a lone row; among as
    many tokens as are given."""
    read = torch.as_tensor(ids, dtype=torch.int64)
    every = torch.log_softmax(lm(input_ids=read[None]).logits[0, :-1, :tokens].float(), dim=-1)
    return every[range(len(read) - 1), read[1:]]


def some_rows(model_dir: Path, count: int = 6, noise: float = 0.0, seed: int = 0) -> list[Row]:
    """Rows of both roles in two turns each, with the model's own behaviour log-probabilities (and
    noise on them)."""
    rng = np.random.default_rng(seed)
    model = load_model(model_dir)
    rows = []
    for game in range(count):
        length = int(rng.integers(12, 40))
        ids = rng.integers(3, model.config.vocab_size, size=length)
        mask = np.zeros(length, dtype=np.uint8)
        mask[4:7] = mask[9 : length - int(rng.integers(0, 3))] = 1
        behaviour = np.zeros(length, dtype=np.float32)
        behaviour[1:] = (
            exact_logprobs(model, ids).detach().numpy() + rng.normal(0, 1, length - 1) * noise
        )
        role = ("proposer", "solver", "solver")[game % 3]
        advantage = float(rng.uniform(0.2, 1.0)) if role == "proposer" else float(rng.normal())
        weight = 1 / (count * mask.sum())
        rows.append(
            Row(ids.astype(np.int32), mask, behaviour * mask, role, game, advantage, weight)
        )
    return rows


GROUPED = Algorithm(reinforce_advantages, reinforce_loss, grouped=True, kl=True)

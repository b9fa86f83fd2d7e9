"""Losses of TRL, verl and SkyRL on a batch of our rows, by the functions of their packages.

Each takes a :class:`Batch` and its own settings, and returns what it makes of it. Where a partner
puts advantages, loss and KL together inside a worker that needs GPUs (verl, SkyRL), its functions
are called here in the same order.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ssp_agents.precision import autocasting
from ssp_agents.rows import Row


class Measured(NamedTuple):
    """What a trainer makes of a batch."""

    advantages: Tensor
    """(rows,)."""
    tokens: int
    """Tokens in the loss."""
    loss: float
    gradient: Tensor
    """Of the loss to all weights, (weights,)."""
    gap: float = 0.0
    """Largest distance of its own log-probabilities from the given ones, in nats, where it has a
    pass of its own."""


@dataclass(frozen=True)
class Batch:
    """Rows of one role, and the policy that learns.

    A response begins where the shortest prompt ends, so that no trainer pads on the left, which
    would move positions and change last digits; what is left of a longer prompt is masked.
    """

    rows: Sequence[Row]
    """Rows of a group follow each other."""
    model: Any
    """Not the policy that played any more. What of it needs gradients learns."""
    directory: Path
    """Of the policy that played."""
    logprobs: Tensor
    """Of the policy's tokens under ``model``, with a gradient: (tokens,)."""
    reference: Tensor
    """The same under the policy that played: (tokens,)."""

    @cached_property
    def start(self) -> int:
        """Tokens before the responses."""
        return min(int(row.mask.argmax()) for row in self.rows)

    @cached_property
    def mask(self) -> Tensor:
        """1 on tokens that the policy wrote: int64 (rows, longest response)."""
        masks = [torch.as_tensor(row.mask[self.start :].astype(np.int64)) for row in self.rows]
        return pad_sequence(masks, batch_first=True)

    @cached_property
    def behaviour(self) -> Tensor:
        """Log-probabilities that the tokens were sampled with: (rows, longest response)."""
        own = [row.logprobs[row.mask > 0] for row in self.rows]
        return self.spread(torch.as_tensor(np.concatenate(own)))

    @cached_property
    def rewards(self) -> Tensor:
        """Rewards, each at its row's last own token: (rows, longest response)."""
        last = self.mask.cumsum(1).argmax(1, keepdim=True)
        paid = torch.tensor([[row.reward] for row in self.rows])
        return torch.zeros(self.mask.shape).scatter(1, last, paid)

    @property
    def groups(self) -> np.ndarray:
        return np.array([row.group for row in self.rows])

    def spread(self, values: Tensor) -> Tensor:
        """Values of own tokens at their places: (tokens,) -> (rows, longest response)."""
        places = torch.zeros(self.mask.shape, dtype=values.dtype)
        return places.masked_scatter(self.mask > 0, values)

    def measured(self, advantages: Tensor, loss: Tensor) -> Measured:
        """What a loss over :attr:`mask` comes to; ``advantages`` are (rows, longest response)."""
        own = advantages.gather(1, self.mask.argmax(1, keepdim=True)).squeeze(1)
        found = gradient(loss, self.model)
        return Measured(own, int(self.mask.sum()), float(loss.detach()), found)


def gradient(loss: Tensor, model: Any) -> Tensor:
    """Gradient of a loss to the weights of a model that learn: float64 (weights,)."""
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    found = torch.autograd.grad(loss, learning, retain_graph=True)
    return torch.cat([part.flatten().double() for part in found])


def multiplying_as_rounded(model: Any) -> torch.autocast:
    """Context of a model's passes: in bfloat16 where its frozen weights are rounded to that."""
    rounded = any(weight.dtype == torch.bfloat16 for weight in model.parameters())
    return autocasting(torch.device("cpu"), torch.bfloat16 if rounded else None)


def in_trl(batch: Batch, **settings: Any) -> Measured:
    """By ``GRPOTrainer``, whose rollout is the recorded games, with ``GRPOConfig(**settings)``."""
    from datasets import Dataset
    from transformers import AutoTokenizer

    trl: Any = importlib.import_module("trl")

    def replayed(prompts: list[str], trainer: Any) -> dict[str, Any]:
        """A ``rollout_func`` that gives every row as it was played."""
        start, rows = batch.start, batch.rows
        return {
            "prompt_ids": [row.ids[:start].tolist() for row in rows],
            "completion_ids": [row.ids[start:].tolist() for row in rows],
            "logprobs": [row.logprobs[start:].tolist() for row in rows],
            "env_mask": [row.mask[start:].tolist() for row in rows],
        }

    def earned(completions: Any, reward: list[float], **row: Any) -> list[float]:
        return reward

    rows = [{"prompt": "", "reward": row.reward} for row in batch.rows]
    with tempfile.TemporaryDirectory() as folder:
        arguments = trl.GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            per_device_train_batch_size=len(rows),
            num_generations=len(rows) // len(set(batch.groups)),
            report_to=[],
            **settings,
        )
        trainer = trl.GRPOTrainer(
            model=deepcopy(batch.model).train(),
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(batch.directory),
            reward_funcs=[earned],
            rollout_func=replayed,
        )
    trainer.current_gradient_accumulation_steps = 1
    inputs = trainer._generate_and_score_completions(rows)

    # By itself, TRL computes these anew, with the weights of before the step's first update.
    inputs["old_per_token_logps"] = batch.behaviour
    inputs["ref_per_token_logps"] = batch.spread(batch.reference)

    # Its pass sums in float32, so the loss gets our log-probabilities, as the others' do.
    given = batch.spread(batch.logprobs)
    ids, mask = (
        torch.cat([inputs[f"prompt_{name}"], inputs[f"completion_{name}"]], dim=1)
        for name in ("ids", "mask")
    )
    dtype = (
        torch.bfloat16 if any(w.dtype == torch.bfloat16 for w in batch.model.parameters()) else None
    )
    with torch.no_grad(), autocasting(given.device, dtype):
        passed = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, given.shape[1]
        )
    gap = ((passed[0] - given.detach()) * batch.mask).abs().max()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (given, given.detach(), None)
    loss = trainer._compute_loss(trainer.model, inputs)

    tokens = int((inputs["completion_mask"] * inputs["tool_mask"]).sum())
    found = gradient(loss, batch.model)
    return Measured(inputs["advantages"], tokens, float(loss.detach()), found, float(gap))


def in_verl(
    batch: Batch, *, std: bool = True, loss: str = "vanilla", cap: float = 2.0, **settings: Any
) -> Measured:
    """By ``verl.trainer.ppo.core_algos``, with ``ActorConfig(**settings)``; ``std`` is
    ``algorithm.norm_adv_by_std_in_grpo``, ``loss`` is ``policy_loss.loss_mode``, and ``cap``
    bounds the ratios of REINFORCE, which is its mode ``bypass_mode``."""
    from verl.trainer.config import RolloutCorrectionConfig
    from verl.trainer.ppo import core_algos
    from verl.workers.config import ActorConfig, PolicyLossConfig

    corrected = RolloutCorrectionConfig(
        rollout_is="token", rollout_is_threshold=cap, loss_type="reinforce"
    )
    policy_loss = PolicyLossConfig(loss_mode=loss, rollout_correction=corrected)
    settings |= {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1}
    config = ActorConfig(policy_loss=policy_loss, **settings)
    config.global_batch_info["loss_scale_factor"] = config.loss_scale_factor

    advantages, _ = core_algos.compute_grpo_outcome_advantage(
        batch.rewards, batch.mask, batch.groups, norm_adv_by_std_in_grpo=std
    )
    logprobs, mask, mode = batch.spread(batch.logprobs), batch.mask, config.loss_agg_mode
    by = core_algos.get_policy_loss_fn(loss)
    total, _ = by(batch.behaviour, logprobs, advantages, mask, mode, config)
    if config.use_kl_loss:
        reference = batch.spread(batch.reference)
        kl = core_algos.kl_penalty(logprobs, reference, config.kl_loss_type)
        kl = core_algos.agg_loss(kl, mask, mode, **config.global_batch_info)
        total = total + config.kl_loss_coef * kl
    return batch.measured(advantages, total)


def in_skyrl(batch: Batch, **settings: Any) -> Measured:
    """By SkyRL's ``ppo_utils``, with ``AlgorithmConfig(**settings)``."""
    # The package imports a server for Tinker, whose types pydantic reads from Python 3.12 on only.
    package = ModuleType("skyrl.backends")
    package.__path__ = [f"{importlib.import_module('skyrl').__path__[0]}/backends"]
    sys.modules.setdefault("skyrl.backends", package)
    utils = importlib.import_module("skyrl.backends.skyrl_train.utils.ppo_utils")
    build = importlib.import_module("skyrl.train.config.config").build_nested_dataclass
    config = build(utils.AlgorithmConfig, settings)

    mask = batch.mask.float()
    estimator, std = config.advantage_estimator, config.grpo_norm_by_std
    advantages, _ = utils.compute_advantages_and_returns(
        batch.rewards, mask, batch.groups, estimator, config, grpo_norm_by_std=std
    )
    scaled = utils.apply_loss_reduction_to_advantages_minibatch(
        advantages, mask, config.loss_reduction, len(mask), config.max_seq_len
    )
    logprobs = batch.spread(batch.logprobs)
    by = utils.PolicyLossRegistry.get(config.policy_loss_type)
    total, _ = by(logprobs, batch.behaviour, scaled, config, mask)
    if config.use_kl_loss:
        reference = batch.spread(batch.reference)
        kl = utils.compute_approx_kl(logprobs, reference, mask, config.kl_estimator_type)
        # A mean of means of rows, whatever the reduction is: as in its worker.
        total = total + config.kl_loss_coef * utils.masked_mean(kl, mask, dim=-1).mean()
    return batch.measured(advantages, total)


PARTNERS: dict[str, Callable[..., Measured]] = {"trl": in_trl, "verl": in_verl, "skyrl": in_skyrl}

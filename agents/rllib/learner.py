"""The Learner: GRPO and REINFORCE rows of one batch in one optimizer step, in micro-batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor

from agents.config import LearningConfig
from agents.losses import grpo_loss, kl_k3, reinforce_loss
from agents.models import autocast_dtype, load_model
from agents.rllib.batch import MODULE_ID
from agents.rllib.module import token_logprobs
from agents.rows import ROLE_IDS

Columns = dict[str, Any]

SUMMED = ("loss", "policy_loss", "kl", "logprob_gap_sum", "trained_tokens")
"""Figures that add up over micro-batches and learners."""


class SSPLearner(TorchLearner):
    """One update over a batch whose rows carry role, advantage and weight.

    The weights hold the denominators of the whole update, so the losses of shards and micro-batches
    simply add up. The frozen reference lives here; it is neither synchronised nor checkpointed."""

    def build(self) -> None:
        """Also loads the reference and checks the arithmetic."""
        super().build()
        self.learning: LearningConfig = self.config.learning()
        self._autocast = autocast_dtype(self.learning.precision, torch.device(self._device))
        self._reference: Any = None
        algorithms = {self.learning.algorithm(role) for role in self.learning.learning_roles}
        if self.learning.kl_coeff > 0 and "grpo" in algorithms:
            self._reference = load_model(self.config.model_dir, self._device).requires_grad_(False)

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam, with the linear warm-up of the config."""
        learning: LearningConfig = config.learning()
        params = self.get_parameters(self._module[module_id])
        optimizer = torch.optim.Adam(params, lr=learning.lr, betas=(0.9, learning.beta2))
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=params, lr_or_lr_schedule=learning.lr
        )

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Sets the learning rate of this step: linear warm-up, then constant."""
        step = timesteps.get("training_step", self.learning.warmup_steps)
        share = min(1.0, (step + 1) / max(1, self.learning.warmup_steps))
        self._set_optimizer_lr(self.get_optimizer(MODULE_ID), self.learning.lr * share)

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Leaves the learning rate alone: RLlib's schedules know nothing of steps."""

    def _uncompiled_update(
        self, batch: dict[str, Columns], **kwargs: Any
    ) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
        """Accumulates gradients over micro-batches, then steps once if the gradient is finite."""
        rows = batch[MODULE_ID]
        module = self.module[MODULE_ID]
        optimizer = self.get_optimizer(MODULE_ID)
        optimizer.zero_grad(set_to_none=True)
        parts = list(self._microbatches(rows))
        sums = dict.fromkeys(SUMMED, 0.0)

        for i, part in enumerate(parts):
            # DDP averages over learners; the weights already hold the global denominators.
            scale = max(1, self.config.num_learners)
            last = i == len(parts) - 1
            quiet = (
                module.no_sync()
                if hasattr(module, "no_sync") and not last
                else contextlib.nullcontext()
            )

            with quiet:
                with self._arithmetic():
                    out = module.forward_train({**part, "temperature": self.learning.temperature})

                loss, stats = self._objective(part, out["action_logp"])
                (loss * scale).backward()

            for name, value in stats.items():
                sums[name] += value

        self._step(optimizer, sums)
        total = torch.tensor(sums["loss"])
        self.metrics.log_dict(sums, key=MODULE_ID, window=1)

        return {}, {MODULE_ID: total}, {}

    def _step(self, optimizer: torch.optim.Optimizer, sums: dict[str, float]) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.learning.max_grad_norm)
        sums["grad_norm"] = float(norm)
        sums["skipped_updates"] = 0.0 if torch.isfinite(norm) else 1.0
        if torch.isfinite(norm):
            optimizer.step()

    @staticmethod
    def merge(results: Sequence[dict[str, Any]]) -> dict[str, float]:
        """Merges the figures of all learners of one update: sums, or the value that they share."""
        totals = {name: sum(float(result[name]) for result in results) for name in SUMMED}
        tokens = max(1.0, totals["trained_tokens"])

        return {
            "loss": totals["loss"],
            "policy_loss": totals["policy_loss"],
            "kl": totals["kl"],
            "logprob_gap": totals["logprob_gap_sum"] / tokens,
            "trained_tokens": totals["trained_tokens"],
            "grad_norm": float(results[0]["grad_norm"]),
            "skipped_updates": float(results[0]["skipped_updates"]),
        }

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Columns, fwd_out: dict[str, Any]
    ) -> Tensor:
        """RLlib's hook: the loss of one (micro-)batch from the module's log-probabilities."""
        return self._objective(batch, fwd_out["action_logp"])[0]

    def _objective(self, part: Columns, logprobs: Tensor) -> tuple[Tensor, dict[str, float]]:
        """The weighted sum of token losses, and its figures."""
        own = part["loss_mask"][:, 1:] > 0
        counts = own.sum(dim=1)
        role, advantages, weights = (
            part[name].repeat_interleave(counts) for name in ("role", "advantages", "weights")
        )
        behaviour = part["behaviour_logprobs"][:, 1:][own]
        by_grpo = self._uses_grpo(role)
        losses = torch.where(
            by_grpo,
            grpo_loss(
                logprobs, behaviour, advantages, self.learning.clip_low, self.learning.clip_high
            ),
            reinforce_loss(logprobs, advantages),
        )
        loss = (weights * losses).sum()
        stats = dict.fromkeys(SUMMED, 0.0)
        stats["policy_loss"] = float(loss.detach())

        if self._reference is not None:
            kl = (weights * self._kl(part, logprobs, by_grpo)).sum()
            stats["kl"] = float(kl.detach())
            loss = loss + self.learning.kl_coeff * kl

        stats["loss"] = float(loss.detach())
        gap = (logprobs.detach() - behaviour).abs() * (weights > 0)
        stats["logprob_gap_sum"], stats["trained_tokens"] = (
            float(gap.sum()),
            float((weights > 0).sum()),
        )

        return loss, stats

    def _kl(self, part: Columns, logprobs: Tensor, by_grpo: Tensor) -> Tensor:
        """KL of each token; 0 for roles without GRPO, whose rows the reference does not see."""
        kl = torch.zeros_like(logprobs)
        if not bool(by_grpo.any()):
            return kl

        rows = self._uses_grpo(part["role"])
        ids, mask, vocab_size = (
            part["ids"][rows],
            part["loss_mask"][rows],
            int(self.module[MODULE_ID].action_space.n),
        )

        with torch.no_grad(), self._arithmetic():
            reference = token_logprobs(
                self._reference, ids, mask, self.learning.temperature, vocab_size
            )

        return kl.masked_scatter(by_grpo, kl_k3(logprobs[by_grpo], reference))

    def _uses_grpo(self, role: Tensor) -> Tensor:
        table = [
            self.learning.algorithm(name) == "grpo"
            for name in sorted(ROLE_IDS, key=ROLE_IDS.__getitem__)
        ]
        return torch.tensor(table, device=role.device)[role]

    def _arithmetic(self) -> contextlib.AbstractContextManager[Any]:
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self._device).type, self._autocast)

    def _microbatches(self, rows: Columns) -> Iterator[Columns]:
        """Groups rows of similar length, up to ``microbatch_tokens`` padded tokens (or one row)."""
        lengths = rows["lengths"]
        order = torch.argsort(lengths, descending=True, stable=True)
        start = 0

        while start < len(order):
            longest = int(lengths[order[start]])
            stop = start + max(1, self.learning.microbatch_tokens // longest)
            chosen = order[start:stop]
            part = {
                name: column[chosen] for name, column in rows.items() if isinstance(column, Tensor)
            }
            for name in ("ids", "loss_mask", "behaviour_logprobs"):
                part[name] = part[name][:, :longest]

            yield part
            start = stop

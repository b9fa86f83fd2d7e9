"""One optimizer step of self-play in plain PyTorch: rows in, new weights out. No Ray.

RLlib's learner calls it with its module, and so can any loop of your own. What a trajectory adds to
the loss is written once, here; ``agents/losses.py`` holds the formulas for one token.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from agents.columns import Columns, idle, microbatches
from agents.config import LearningConfig
from agents.losses import grpo_loss, kl_k3, reinforce_loss
from agents.rows import ROLE_IDS
from agents.sharding import whole

Scorer = Callable[[Columns], Tensor]
"""From columns of rows to the log-probabilities (tokens,) of the tokens that the policy wrote,
row by row, float32."""

SUMMED = ("loss", "policy_loss", "kl", "logprob_gap_sum", "trained_tokens")
"""Figures that add up over micro-batches and learners."""


class Update:
    """The update of a policy: a call is one optimizer step.

    Rows carry role, advantage and weight; the weights hold the denominators of the whole update
    (see :func:`agents.rows.with_loss_weights`), so the losses of micro-batches and of several
    learners simply add up.
    """

    def __init__(
        self,
        policy: Scorer,
        optimizer: torch.optim.Optimizer,
        learning: LearningConfig,
        *,
        reference: Scorer | None = None,
        autocast: torch.dtype | None = None,
        learners: int = 1,
        no_sync: Callable[[], contextlib.AbstractContextManager[Any]] | None = None,
        agree: Callable[[int], int] | None = None,
    ) -> None:
        """An update of a policy's weights, which stay float32.

        Args:
            policy: scores with gradients; its parameters are the optimizer's.
            optimizer: its learning rate is set in every step.
            learning: algorithms, clipping, KL, warm-up, sizes.
            reference: the frozen reference of the KL; without one there is no KL.
            autocast: what passes are computed in; ``None`` for float32.
            learners: how many learners' gradients are *averaged* behind this one's back (DDP).
            no_sync: a context in which gradients are not yet exchanged between learners.
            agree: from this learner's number of passes to the largest of all learners'. Learners
                that share the weights of a policy among them have to pass through it in step.
        """
        self.policy = policy
        self.optimizer = optimizer
        self.learning = learning
        self.reference = reference
        self._autocast = autocast
        self._learners = learners
        self._no_sync = no_sync or contextlib.nullcontext
        self._agree = agree

    def __call__(self, columns: Columns, step: int) -> dict[str, float]:
        """Learns from one batch.

        Args:
            columns: tensors on the policy's device, named as by :func:`agents.columns.columns_of`.
            step: number of the training step, for the warm-up.

        Returns:
            The sums named in ``SUMMED``, ``grad_norm`` before clipping, and ``skipped_updates``: 1
            if the gradient was not finite, so that weights and moments were left alone.
        """
        self._warm_up(step)
        self.optimizer.zero_grad(set_to_none=True)
        figures: dict[str, Tensor] = {}
        parts = self._in_step(list(microbatches(columns, self.learning.microbatch_tokens)))

        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            with contextlib.nullcontext() if last else self._no_sync():
                with self._arithmetic(part["ids"].device):
                    logprobs = self.policy(part)

                loss, sums = self.objective(part, logprobs)
                # What is averaged over learners has to come out as the sum of their losses.
                (loss * self._learners).backward()  # type: ignore[no-untyped-call]

            for name, value in sums.items():
                figures[name] = figures.get(name, torch.zeros_like(value)) + value

        # Read once at the end: on a GPU, reading a figure waits for everything before it.
        return {name: float(value) for name, value in figures.items()} | self._step()

    def objective(self, part: Columns, logprobs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum of the token losses of one micro-batch, and its figures.

        Args:
            part: columns of some rows.
            logprobs: float32 (tokens,), the policy's for these rows.
        """
        own = part["loss_mask"][:, 1:] > 0
        counts = own.sum(dim=1)
        role, advantages, weights = (
            part[name].repeat_interleave(counts) for name in ("role", "advantages", "weights")
        )
        behaviour = part["behaviour_logprobs"][:, 1:][own]
        by_grpo = self._uses_grpo(role)
        clip_low, clip_high = self.learning.clip_low, self.learning.clip_high

        losses = torch.where(
            by_grpo,
            grpo_loss(logprobs, behaviour, advantages, clip_low, clip_high),
            reinforce_loss(logprobs, advantages),
        )
        loss = (weights * losses).sum()
        kl = (weights * self._kl(part, logprobs, by_grpo)).sum()
        trained = weights > 0

        sums = {
            "loss": loss + self.learning.kl_coeff * kl,
            "policy_loss": loss,
            "kl": kl,
            "logprob_gap_sum": ((logprobs - behaviour).abs() * trained).sum(),
            "trained_tokens": trained.sum(),
        }
        return sums["loss"], {name: value.detach().double() for name, value in sums.items()}

    def _kl(self, part: Columns, logprobs: Tensor, by_grpo: Tensor) -> Tensor:
        """KL of each token; 0 for roles without GRPO, whose rows the reference does not see."""
        kl = torch.zeros_like(logprobs)
        rows = self._uses_grpo(part["role"])
        if self.reference is None or (self._agree is None and not bool(rows.any())):
            return kl

        # Where the reference is shared among learners, all of them read, if only an idle row.
        seen = {name: column[rows] for name, column in part.items()} if rows.any() else idle(part)
        with torch.no_grad(), self._arithmetic(part["ids"].device):
            reference = self.reference(seen)

        if not bool(rows.any()):
            return kl
        return kl.masked_scatter(by_grpo, kl_k3(logprobs[by_grpo], reference))

    def _in_step(self, parts: list[Columns]) -> list[Columns]:
        """Micro-batches, with idle ones until there are as many as on every other learner."""
        if self._agree is None:
            return parts
        return parts + [idle(parts[-1])] * (self._agree(len(parts)) - len(parts))

    def _uses_grpo(self, role: Tensor) -> Tensor:
        names = sorted(ROLE_IDS, key=ROLE_IDS.__getitem__)
        table = [self.learning.algorithm(name) == "grpo" for name in names]
        return torch.tensor(table, device=role.device)[role]

    def _warm_up(self, step: int) -> None:
        """Linear, then constant."""
        share = min(1.0, (step + 1) / max(1, self.learning.warmup_steps))
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning.lr * share

    def _step(self) -> dict[str, float]:
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = whole(torch.nn.utils.clip_grad_norm_(parameters, self.learning.max_grad_norm))

        finite = bool(torch.isfinite(norm))
        if finite:
            self.optimizer.step()

        return {"grad_norm": float(norm), "skipped_updates": 0.0 if finite else 1.0}

    def _arithmetic(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device.type, self._autocast)

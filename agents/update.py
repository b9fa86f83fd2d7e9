"""One optimizer step of self-play in plain PyTorch: rows in, new weights out. No Ray.

RLlib's learner calls it with its module, and so can any loop of your own. What a trajectory adds to
the loss is written once, here; ``agents/losses.py`` holds the formulas for one token.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from agents.columns import Columns, idle, microbatches, of_role, one_of_each
from agents.config import LearningConfig
from agents.losses import grpo_loss, is_clipped, is_vetoed, kl_k3, reinforce_loss
from agents.rows import ROLE_IDS
from agents.scoring import Scores
from agents.sharding import whole

Scorer = Callable[[Columns], Scores]
"""From columns of rows to what a model says of the tokens that the policy wrote, row by row."""

SUMMED = (
    *("loss", "policy_loss", "kl", "trained_tokens", "logprob_gap_sum", "ratio_sum"),
    *("grpo_tokens", "clipped_tokens", "truncated_tokens", "vetoed_rows"),
    *("proposer_tokens", "proposer_entropy_sum", "solver_tokens", "solver_entropy_sum"),
)
"""Figures that add up over micro-batches and learners."""

MEANS = {
    "logprob_gap": ("logprob_gap_sum", "trained_tokens"),
    "ratio": ("ratio_sum", "trained_tokens"),
    "truncated_share": ("truncated_tokens", "trained_tokens"),
    "clipped_share": ("clipped_tokens", "grpo_tokens"),
    "proposer_entropy": ("proposer_entropy_sum", "proposer_tokens"),
    "solver_entropy": ("solver_entropy_sum", "solver_tokens"),
}
"""Figures of a whole update: a sum over all learners, divided by another."""

FIGURES = (
    *("loss", "policy_loss", "kl", "trained_tokens", "vetoed_rows", *MEANS),
    *("grad_norm", "skipped_updates", "proposer_grad_norm", "solver_grad_norm"),
)
"""What :func:`merge_figures` may say of an update."""

ROLE_NORMS = ("proposer_grad_norm", "solver_grad_norm")
"""Norms of the gradient of each role alone."""


def adam(parameters: Iterable[torch.nn.Parameter], learning: LearningConfig) -> torch.optim.Adam:
    """The optimizer of a policy; :class:`Update` sets its learning rate at each step."""
    # Fused: one pass over each weight, a third of the time of the loop over operations.
    betas = 0.9, learning.beta2
    return torch.optim.Adam(parameters, lr=learning.lr, betas=betas, fused=True)


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
            step: number of the training step, from 0, for the learning rate.

        Returns:
            The sums named in ``SUMMED``, ``grad_norm`` before clipping, and ``skipped_updates``: 1
            if the gradient was not finite, so that weights and moments were left alone; and those
            named in ``ROLE_NORMS``, which are NaN but every ``role_norms_every`` steps.
        """
        self._set_learning_rate(step)
        aside = self._proposers_gradient(columns) if self._measures_roles(step) else None
        sums = self._accumulate(columns)
        norms = (math.nan, math.nan) if aside is None else self._role_norms(aside)

        return sums | dict(zip(ROLE_NORMS, norms, strict=True)) | self._step()

    def _accumulate(self, columns: Columns) -> dict[str, float]:
        """Puts the gradient of the whole batch into the parameters; returns the summed figures."""
        self.optimizer.zero_grad(set_to_none=True)
        figures: dict[str, Tensor] = {}
        parts = self._in_step(list(microbatches(columns, self.learning.microbatch_tokens)))

        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            with contextlib.nullcontext() if last else self._no_sync():
                with self._arithmetic(part["ids"].device):
                    scores = _scored(self.policy, part)

                loss, sums = self.objective(part, *scores)
                # What is averaged over learners has to come out as the sum of their losses.
                (loss * self._learners).backward()  # type: ignore[no-untyped-call]

            for name, value in sums.items():
                figures[name] = figures.get(name, torch.zeros_like(value)) + value

        # Read once at the end: on a GPU, reading a figure waits for everything before it.
        return {name: float(value) for name, value in figures.items()}

    def objective(
        self, part: Columns, logprobs: Tensor, entropies: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum of the token losses of one micro-batch, and its figures.

        Args:
            part: columns of some rows.
            logprobs: float32 (tokens,), the policy's for these rows.
            entropies: float32 (tokens,), of the distributions that these tokens are from, without
                gradients; only for the figures.
        """
        own = part["loss_mask"][:, 1:] > 0
        counts = own.sum(dim=1)
        role, advantages, weights = (
            part[name].repeat_interleave(counts) for name in ("role", "advantages", "weights")
        )
        behaviour = part["behaviour_logprobs"][:, 1:][own]
        # What nobody sampled is learnt from as if the policy had, with a ratio of 1.
        behaviour = torch.where(behaviour.isnan(), logprobs.detach(), behaviour)
        by_grpo = self._uses_grpo(role)
        clips = self.learning.clip_low, self.learning.clip_high
        cap = self.learning.importance_cap

        vetoed = self._vetoed(logprobs - behaviour, counts)
        counted = weights * ~vetoed.repeat_interleave(counts)
        losses = torch.where(
            by_grpo,
            grpo_loss(logprobs, behaviour, advantages, *clips, cap),
            reinforce_loss(logprobs, behaviour, advantages, cap),
        )
        loss = (counted * losses).sum()
        kl = (counted * self._kl(part, logprobs, by_grpo)).sum()

        sums = {"loss": loss + self.learning.kl_coeff * kl, "policy_loss": loss, "kl": kl}
        with torch.no_grad():
            trained = weights > 0
            sums |= self._ratio_figures(logprobs - behaviour, advantages, trained, by_grpo)
            sums["vetoed_rows"] = (vetoed & (part["weights"] > 0)).sum()
            if entropies is not None:
                sums |= _entropy_figures(entropies, role, trained)

        return sums["loss"], {name: value.detach().double() for name, value in sums.items()}

    def _ratio_figures(
        self, log_ratios: Tensor, advantages: Tensor, trained: Tensor, by_grpo: Tensor
    ) -> dict[str, Tensor]:
        """How far the policy is from the one that sampled, over the tokens that are trained on."""
        clips, cap = (self.learning.clip_low, self.learning.clip_high), self.learning.importance_cap
        ratios = log_ratios.exp() * trained
        clipped = is_clipped(log_ratios, advantages, *clips)

        return {
            "trained_tokens": trained.sum(),
            "logprob_gap_sum": (log_ratios.abs() * trained).sum(),
            "ratio_sum": ratios.sum(),
            "grpo_tokens": (by_grpo & trained).sum(),
            "clipped_tokens": (clipped & by_grpo & trained).sum(),
            "truncated_tokens": (ratios > (math.inf if cap is None else cap)).sum(),
        }

    def _vetoed(self, log_ratios: Tensor, counts: Tensor) -> Tensor:
        """Which rows are left out because engine and learner disagree too much: bool (rows,)."""
        if self.learning.importance_cap is None:
            return torch.zeros(len(counts), dtype=torch.bool, device=counts.device)

        rows = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
        return is_vetoed(log_ratios, rows, len(counts))

    def _kl(self, part: Columns, logprobs: Tensor, by_grpo: Tensor) -> Tensor:
        """KL of each token; 0 for roles without GRPO, whose rows the reference does not see."""
        kl = torch.zeros_like(logprobs)
        rows = self._uses_grpo(part["role"])
        if self.reference is None or (self._agree is None and not bool(rows.any())):
            return kl

        # Where the reference is shared among learners, all of them read, if only an idle row.
        seen = {name: column[rows] for name, column in part.items()} if rows.any() else idle(part)
        with torch.no_grad(), self._arithmetic(part["ids"].device):
            reference = _scored(self.reference, seen).logprobs

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

    def _set_learning_rate(self, step: int) -> None:
        """It rises linearly, then stays, or falls linearly all the way."""
        learning = self.learning
        share = min(1.0, (step + 1) / max(1, learning.warmup_steps))
        if learning.decay_steps is not None:
            share *= max(0.0, 1.0 - step / learning.decay_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning.lr * share

    # -- the gradient of each role alone -------------------------------------------------------

    def _measures_roles(self, step: int) -> bool:
        both = len(self.learning.learning_roles) > 1
        return both and step % self.learning.role_norms_every == 0

    def _proposers_gradient(self, columns: Columns) -> list[Tensor | None]:
        """The gradient of the proposals alone, in passes of their own.

        The update that follows is not touched by it, to the last bit.
        """
        self._accumulate(of_role(columns, ROLE_IDS["proposer"]))
        return [parameter.grad for parameter in self._parameters()]

    def _role_norms(self, proposers: Sequence[Tensor | None]) -> tuple[float, float]:
        """Norms of both roles' gradients, from the proposer's and from that of both.

        The rest is put in the proposer's place: a third set of gradients may not fit.
        """
        alone = _norm(proposers)
        rest = [
            whole.grad if part is None or whole.grad is None else part.neg_().add_(whole.grad)
            for whole, part in zip(self._parameters(), proposers, strict=True)
        ]
        return alone, _norm(rest)

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    # -- the step ------------------------------------------------------------------------------

    def _step(self) -> dict[str, float]:
        parameters = self._parameters()
        norm = whole(torch.nn.utils.clip_grad_norm_(parameters, self.learning.max_grad_norm))

        finite = bool(torch.isfinite(norm))
        if finite:
            self.optimizer.step()

        return {"grad_norm": float(norm), "skipped_updates": 0.0 if finite else 1.0}

    def _arithmetic(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device.type, self._autocast)


def merge_figures(learners: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The figures of one update from those of all its learners.

    Sums add up, and means are made of them; norms are the same everywhere. A mean over nothing is
    left out, and a norm that was not measured.
    """
    totals = {
        name: sum(float(learner[name]) for learner in learners)
        for name in SUMMED
        if name in learners[0]
    }
    means = {
        name: totals[above] / totals[below]
        for name, (above, below) in MEANS.items()
        if totals.get(below)
    }
    kept = ("loss", "policy_loss", "kl", "trained_tokens", "vetoed_rows")
    same = {name: float(learners[0][name]) for name in ("grad_norm", "skipped_updates")}
    norms = {name: float(learners[0].get(name, math.nan)) for name in ROLE_NORMS}
    measured = {name: norm for name, norm in norms.items() if not math.isnan(norm)}

    return {name: totals[name] for name in kept} | means | same | measured


def _scored(scorer: Scorer, part: Columns) -> Scores:
    """What a model says of each row of a micro-batch, having read equal ones once."""
    read, places = one_of_each(part)
    scores = scorer(read)
    if places is None:
        return scores

    entropies = None if scores.entropies is None else scores.entropies[places]
    return Scores(scores.logprobs[places], entropies)


def _entropy_figures(entropies: Tensor, role: Tensor, trained: Tensor) -> dict[str, Tensor]:
    figures = {}
    for name, number in ROLE_IDS.items():
        of_this = trained & (role == number)
        figures[f"{name}_tokens"] = of_this.sum()
        figures[f"{name}_entropy_sum"] = (entropies * of_this).sum()

    return figures


def _norm(gradients: Sequence[Tensor | None]) -> float:
    return float(whole(torch.nn.utils.get_total_norm([g for g in gradients if g is not None])))

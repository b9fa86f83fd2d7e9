"""One optimizer step of self-play in plain PyTorch: rows in, new weights out. No Ray.

RLlib's learner calls it with its module, and so can any loop of your own.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp_agents.batches import Columns, deduplicated, microbatches, of_role, zero_weight_pass
from ssp_agents.config import LearningConfig
from ssp_agents.losses import Tokens, find_algorithm, is_clipped, is_vetoed, kl_k3
from ssp_agents.metrics import ROLE_NORMS
from ssp_agents.precision import autocasting
from ssp_agents.rows import ROLE_IDS
from ssp_agents.scoring import Scores
from ssp_agents.sharding import full_tensor
from ssp_env.errors import ConfigError

Scorer = Callable[[Columns], Scores]
"""From columns of rows to the scores of the tokens that the policy wrote, row by row."""

MAX_GRAD_NORM = 1.0
"""Gradients are scaled down to this global norm, as in veRL."""
ROLE_NORMS_EVERY = 10
"""Steps between two measurements of the gradient norm of each role alone."""


def adam(parameters: Iterable[torch.nn.Parameter], learning: LearningConfig) -> torch.optim.Adam:
    """The optimizer of a policy; :class:`Update` sets its learning rate at each step."""
    # Fused: one pass over each weight, a third of the time of the loop over operations.
    betas = 0.9, learning.beta2
    return torch.optim.Adam(parameters, lr=learning.lr, betas=betas, fused=True)


class Update:
    """Update of a policy: a call is one optimizer step.

    Rows carry role, advantage and weight; the weights hold the denominators of the whole update
    (see :func:`ssp_agents.rows.with_loss_weights`), so the losses of micro-batches and of several
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
        max_over_learners: Callable[[int], int] | None = None,
        loss: Callable[[Columns, Scores, Tensor], Tensor] | None = None,
        after_pass: Callable[[], object] | None = None,
    ) -> None:
        """The policy's parameters are the optimizer's, and stay float32.

        Args:
            reference: the policy that the KL is to; without it there is none.
            autocast: dtype that passes are computed in, see
                :func:`ssp_agents.precision.passes_dtype`; float32 when not given.
            learners: number of those whose gradients DDP *averages*.
            no_sync: context in which DDP does not average yet.
            max_over_learners: the largest of a number over all learners. Those that share the
                weights of a policy have to make equally many passes.
            loss: minimised, and reported, in place of that of :meth:`objective`, which it gets.
            after_pass: called when a micro-batch is done, such as :func:`give_back_memory`.
        """
        self.policy = policy
        self.optimizer = optimizer
        self.learning = learning
        self.reference = reference
        self._autocast = autocast
        self._learners = learners
        self._no_sync = no_sync or contextlib.nullcontext
        self._max_over_learners, self._loss, self._after_pass = max_over_learners, loss, after_pass
        # By role id; found here, so that a wrong name fails before the first pass.
        self._algorithms = [find_algorithm(learning, role) for role in ROLE_IDS]

    def __call__(self, columns: Columns, step: int) -> dict[str, float]:
        """Learns from one batch: the columns of :func:`ssp_agents.batches.columns_of` as tensors on
        the policy's device, and the number of the training step, from 0.

        Returns:
            Figures that :func:`ssp_agents.metrics.merge_figures` puts together with those of other
            learners. Where the gradient is not finite, weights and moments are left alone
            (``skipped_updates``).
        """
        learning = self.learning
        # lr(k) = lr min(1, (k + 1) / warm-up) max(0, 1 - k / decay): a rise, then a plateau, or
        # from the first step on a linear fall.
        share = min(1.0, (step + 1) / max(1, learning.warmup_steps))
        if learning.decay_steps is not None:
            share *= max(0.0, 1.0 - step / learning.decay_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = learning.lr * share

        proposer_gradients: list[Tensor | None] | None = None
        if len(learning.learning_roles) > 1 and step % ROLE_NORMS_EVERY == 0:
            # Passes of their own; they do not touch the update that follows, to the last bit.
            self._accumulate(of_role(columns, ROLE_IDS["proposer"]))
            # zero_grad(set_to_none) only drops references, so these tensors survive.
            proposer_gradients = [parameter.grad for parameter in self._parameters()]
        figures = self._accumulate(columns)
        figures |= dict.fromkeys(ROLE_NORMS, math.nan)
        # Before clipping, which scales the gradients in place.
        if proposer_gradients is not None:
            figures |= dict(zip(ROLE_NORMS, self._role_norms(proposer_gradients), strict=True))

        # g <- g min(1, MAX_GRAD_NORM / |g|), over all parameters together.
        # ``norm`` is |g| before clipping. It is the same on all learners, so all of them take the
        # step, or none does.
        norm = full_tensor(torch.nn.utils.clip_grad_norm_(self._parameters(), MAX_GRAD_NORM))
        finite = bool(torch.isfinite(norm))
        if finite:
            self.optimizer.step()
        # Frees the gradients' memory for an engine on the same GPU.
        self.optimizer.zero_grad(set_to_none=True)
        figures |= {"grad_norm": float(norm), "skipped_updates": 0.0 if finite else 1.0}
        return figures | {"bfloat16": 0.0 if self._autocast is None else 1.0}

    def _accumulate(self, columns: Columns) -> dict[str, float]:
        """Puts the gradient of the whole batch into the parameters; returns the summed figures."""
        self.optimizer.zero_grad(set_to_none=True)
        figures: dict[str, Tensor] = {}
        parts = list(microbatches(columns, self.learning.microbatch_tokens))
        if self._max_over_learners is not None:
            # Passes of weight 0, until there are as many as on every other learner.
            passes = self._max_over_learners(len(parts))
            parts += [zero_weight_pass(parts[-1])] * (passes - len(parts))

        for i, part in enumerate(parts, 1):
            # DDP adds up the gradients of all learners once, in the last pass.
            with contextlib.nullcontext() if i == len(parts) else self._no_sync():
                with self._arithmetic(part["ids"].device):
                    scores = _scored(self.policy, part)

                # Outside autocast: sums of many small terms, in float32.
                loss, sums = self.objective(part, *scores)
                if self._loss is not None:
                    loss = self._loss(part, scores, loss)
                    sums["loss"] = loss.detach().double()
                # What is averaged over learners has to come out as the sum of their losses.
                (loss * self._learners).backward()  # type: ignore[no-untyped-call]
                del loss, scores
            if self._after_pass is not None:
                self._after_pass()

            for name, value in sums.items():
                figures[name] = figures.get(name, torch.zeros_like(value)) + value

        # Read once at the end: on a GPU, reading a figure waits for everything before it.
        return {name: float(value) for name, value in figures.items()}

    def objective(
        self, part: Columns, logprobs: Tensor, entropies: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Equations 4 and 5 over one micro-batch: the weighted sum of its token losses, and the
        figures that add up.

        L = sum over rows i of w_i sum over their tokens t of (loss_it + beta KL_it). The weight w_i
        holds the denominators B, n and |rho|; the KL is that of equation 4, for the roles whose
        algorithm has one. ``logprobs`` and ``entropies`` are those of :class:`Scores`; the latter
        are for the figures alone.
        """
        learning = self.learning
        # Column t of (rows, length) is scored by the logits at t - 1, so position 0 never counts.
        by_policy = part["loss_mask"][:, 1:] > 0  # (rows, length - 1)
        counts = by_policy.sum(dim=1)  # (rows,)
        # From one value per row to one per token that the policy wrote: (rows,) -> (tokens,).
        role, advantages, weights = (
            part[name].repeat_interleave(counts) for name in ("role", "advantages", "weights")
        )
        if "credit" in part:  # of the token's turn
            advantages = advantages * part["credit"][:, 1:][by_policy]
        rows = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
        behaviour = part["behaviour_logprobs"][:, 1:][by_policy]  # (tokens,)
        # What nobody sampled is learnt from as if the policy had, with a ratio of 1.
        behaviour = torch.where(behaviour.isnan(), logprobs.detach(), behaviour)
        # log(pi / mu) of each token: (tokens,).
        log_ratios = logprobs - behaviour

        # Where engine and learner disagree too much, the whole trajectory is left out: (rows,).
        vetoed = torch.zeros(len(counts), dtype=torch.bool, device=counts.device)
        if learning.importance_cap is not None:
            vetoed = is_vetoed(log_ratios, rows, len(counts))
        # w_i, or 0 for a row that is left out: (tokens,). Denominators stay as they are.
        counted = weights * ~vetoed.repeat_interleave(counts)

        # Each loss gets the tokens of its own role alone; rows are whole, groups may not be.
        losses = torch.zeros_like(logprobs)  # (tokens,)
        # Tokens whose gradient is stopped by clipping, and those of roles with clipping at all.
        clipped, clippable = (torch.zeros_like(losses, dtype=torch.bool) for _ in range(2))
        for (name, number), algorithm in zip(ROLE_IDS.items(), self._algorithms, strict=True):
            chosen = role == number  # bool (tokens,)
            # A micro-batch may hold no token of a role: the tensors are of length 0 then.
            tokens = Tokens(*(x[chosen] for x in (logprobs, behaviour, advantages, rows)))
            of_tokens = algorithm.loss(tokens, learning)
            if np.shape(of_tokens) != tokens.logprobs.shape:
                fix = f"its loss has to return {(*tokens.logprobs.shape,)}, one a token, "
                fix += f"not {(*np.shape(of_tokens),)}"
                raise ConfigError(f"learning.{name}_algorithm", learning.algorithm(name), fix)
            # From the tokens of the role back to all tokens, gradients included.
            losses = losses.masked_scatter(chosen, of_tokens)
            if algorithm.clips is not None:
                stopped = is_clipped(algorithm.clips(tokens).detach(), tokens.advantages, learning)
                clipped, clippable = clipped.masked_scatter(chosen, stopped), clippable | chosen
        # sum_i w_i sum_t loss_it, and the same of the KL: scalars.
        loss = (counted * losses).sum()
        kl = (counted * self._kl(part, logprobs, counts)).sum()

        sums = {"loss": loss + learning.kl_coeff * kl, "policy_loss": loss, "kl": kl}
        with torch.no_grad():
            # Rows of weight 0 keep learners in step, and count in no figure; examples in no ratio.
            trained = weights > 0  # (tokens,)
            sampled = trained & ~part["behaviour_logprobs"][:, 1:][by_policy].isnan()
            sums |= _token_sums(trained, sampled, log_ratios, learning.importance_cap)
            if entropies is not None:
                sums |= _entropy_sums(trained, role, entropies)
            sums |= {
                "clipped_tokens": (clipped & sampled).sum(),
                "clippable_tokens": (clippable & sampled).sum(),
                "vetoed_rows": (vetoed & (part["weights"] > 0)).sum(),
            }

        return sums["loss"], {name: value.detach().double() for name, value in sums.items()}

    def _kl(self, part: Columns, logprobs: Tensor, counts: Tensor) -> Tensor:
        """KL of each token (tokens,); 0 for roles without it, whose rows the reference does not
        read. ``counts`` are the policy's tokens in each row."""
        kl, device = torch.zeros_like(logprobs), part["ids"].device
        # Whether the algorithm of each row's role has a KL: bool (rows,).
        rows = torch.tensor([a.kl for a in self._algorithms], device=device)[part["role"]]
        some = bool(rows.any())
        if self.reference is None or not (some or self._max_over_learners):
            return kl

        # Where the reference is shared among learners, all of them read, if only a row of weight 0.
        seen = (
            {name: column[rows] for name, column in part.items()}
            if some
            else zero_weight_pass(part)
        )
        with torch.no_grad(), self._arithmetic(device):
            reference = _scored(self.reference, seen).logprobs
        if not some:
            return kl

        has_kl = rows.repeat_interleave(counts)  # bool (tokens,)
        of_tokens = kl_k3(logprobs[has_kl], reference, self.learning.kl_cap)
        return kl.masked_scatter(has_kl, of_tokens)

    def _role_norms(self, proposer_gradients: Sequence[Tensor | None]) -> tuple[float, float]:
        """Norms of both roles' gradients, from the proposer's and from that of both."""
        # |g_solver| = |g_both - g_proposer|. The rest is put in the proposer's place, because a
        # third set of gradients may not fit.
        alone = _norm(proposer_gradients)
        # A parameter that the proposer's rows give no gradient has that of the solver alone.
        rest = [
            both.grad if part is None or both.grad is None else part.neg_().add_(both.grad)
            for both, part in zip(self._parameters(), proposer_gradients, strict=True)
        ]
        return alone, _norm(rest)

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _arithmetic(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        return autocasting(device, self._autocast)


# Sums in place of means: micro-batches and learners add them up, merge_figures divides.


def _token_sums(
    trained: Tensor, sampled: Tensor, log_ratios: Tensor, cap: float | None
) -> dict[str, Tensor]:
    """Sums over a micro-batch's tokens: those that are learnt from, those of them that the policy
    sampled, and how far it has moved from the one that sampled; all arguments are (tokens,)."""
    ratios = log_ratios.exp() * sampled
    return {
        "trained_tokens": trained.sum(),
        "example_tokens": (trained & ~sampled).sum(),
        "sampled_tokens": sampled.sum(),
        "logprob_gap_sum": (log_ratios.abs() * sampled).sum(),
        "ratio_sum": ratios.sum(),
        "truncated_tokens": (ratios > (cap or math.inf)).sum(),
    }


def _entropy_sums(trained: Tensor, roles: Tensor, entropies: Tensor) -> dict[str, Tensor]:
    """Tokens of each role and the sum of their entropies; all arguments are (tokens,)."""
    sums = {}
    for name, number in ROLE_IDS.items():
        trained_of_role = trained & (roles == number)
        sums[f"{name}_tokens"] = trained_of_role.sum()
        sums[f"{name}_entropy_sum"] = (entropies * trained_of_role).sum()
    return sums


def give_back_memory() -> None:
    """Gives the system what passes on a CPU have freed.

    The C library keeps it, in pieces between longer-lived tensors, so that each pass of unlike
    shapes would take more. That is glibc's; others have no such call.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _scored(scorer: Scorer, part: Columns) -> Scores:
    """Scores of each row of a micro-batch, of which equal ones are read once."""
    read, places = deduplicated(part)
    scores = scorer(read)
    if places is None:
        return scores

    # From tokens of the rows that were read to tokens of all rows.
    entropies = None if scores.entropies is None else scores.entropies[places]
    return Scores(scores.logprobs[places], entropies)


def _norm(gradients: Sequence[Tensor | None]) -> float:
    norm = torch.nn.utils.get_total_norm([g for g in gradients if g is not None])
    return float(full_tensor(norm))

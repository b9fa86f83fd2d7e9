"""Advantages of trajectories and losses of tokens, as pure functions; the table of algorithms.

Equation numbers are those of the paper, section "Search Self-play Implementation": 4 is the
solver's GRPO, 5 the proposer's REINFORCE.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.config import LearningConfig
from ssp_env.errors import ConfigError

VETO = 1e-4
"""A trajectory with a token whose importance ratio is below this is not learnt from: the learner
all but rules out what the engine sampled, so one of the two is wrong there, or the trajectory
belongs to another policy. The same value as in veRL and SkyRL."""


class Tokens(NamedTuple):
    """Tokens that the policy wrote in some rows, row by row; all tensors are (tokens,)."""

    logprobs: Tensor
    """Under the policy that learns; carries the gradient."""
    behaviour: Tensor
    """Log-probabilities under the policy that sampled."""
    advantages: Tensor
    """Of the trajectory that each token belongs to."""
    rows: Tensor
    """int64: that trajectory's place in the micro-batch, from 0."""


Advantage = Callable[[np.ndarray, np.ndarray, LearningConfig], np.ndarray]
"""From rewards (trajectories,) and their groups' numbers (trajectories,) to advantages
(trajectories,), over a whole step of one role."""
Loss = Callable[[Tokens, LearningConfig], Tensor]
"""From tokens to their losses (tokens,), which are weighted and summed by the update."""


@dataclass(frozen=True)
class Algorithm:
    """Way to train a role."""

    advantage: Advantage
    loss: Loss
    grouped: bool
    """Rewards are compared within groups, which need two trajectories or more."""
    kl: bool
    """The KL to the frozen reference is added, so a row teaches something without advantage."""


# -- advantages --------------------------------------------------------------------------------


def grpo_advantages(
    rewards: np.ndarray, groups: np.ndarray, learning: LearningConfig
) -> np.ndarray:
    """Equation 4: A_j = r_j - mean(r) over the group; with ``std_normalise``, divided by the
    group's deviation, as in the original GRPO."""
    advantages = np.zeros(len(rewards), dtype=np.float64)
    for group in np.unique(groups):
        members = groups == group
        if np.ptp(rewards[members]) == 0:
            continue  # exactly 0, whatever rounding makes of a mean of equal numbers

        centred = rewards[members] - rewards[members].mean()
        if learning.std_normalise:
            centred = centred / (rewards[members].std() + 1e-6)
        advantages[members] = centred

    return advantages


def reinforce_advantages(
    rewards: np.ndarray, groups: np.ndarray, learning: LearningConfig
) -> np.ndarray:
    """Equation 5: A = R, without a baseline."""
    return rewards


# -- losses ------------------------------------------------------------------------------------


def importance_ratio(logprobs: Tensor, behaviour: Tensor, cap: float | None) -> Tensor:
    """pi(token) / mu(token), of the policy that learns to the one that sampled: (tokens,).

    It makes up both for earlier updates on the same batch and for an engine that computes a little
    differently. Above ``cap``, ratio and gradient are scaled down to it (truncated importance
    sampling, Ionides 2008): bounded variance at the price of a small bias.
    """
    log_ratio = logprobs - behaviour
    if cap is None:
        return torch.exp(log_ratio)

    # min(ratio, cap), and its gradient min(ratio, cap) grad log pi rather than 0.
    excess = (log_ratio.detach() - math.log(cap)).clamp(min=0.0)
    return torch.exp(log_ratio - excess)


def grpo_loss(tokens: Tokens, learning: LearningConfig) -> Tensor:
    """-min(ratio A, clip(ratio, 1 - low, 1 + high) A): (tokens,).

    At ratio 1 its gradient is that of equation 4, -A grad log pi. Clipping bounds how far an update
    moves from the policy that sampled; there is more room upwards (DAPO's clip-higher).
    """
    # Equation 4 per token: grad(-ratio A) = -ratio A grad log pi.
    ratio = importance_ratio(tokens.logprobs, tokens.behaviour, learning.importance_cap)
    clipped = ratio.clamp(1.0 - learning.clip_low, 1.0 + learning.clip_high)
    return -torch.minimum(ratio * tokens.advantages, clipped * tokens.advantages)


def is_clipped(log_ratios: Tensor, advantages: Tensor, learning: LearningConfig) -> Tensor:
    """Tokens whose gradient clipping stops: bool (tokens,)."""
    ratio = torch.exp(log_ratios)
    risen = (ratio > 1.0 + learning.clip_high) & (advantages > 0)
    fallen = (ratio < 1.0 - learning.clip_low) & (advantages < 0)
    return risen | fallen


def reinforce_loss(tokens: Tokens, learning: LearningConfig) -> Tensor:
    """-R log pi (equation 5): (tokens,).

    Equation 5 is on-policy. With a cap, each token is weighted by its truncated importance ratio as
    a constant, which then is 1: the gradient is -ratio R grad log pi.
    """
    if learning.importance_cap is None:
        return -tokens.advantages * tokens.logprobs

    # grad(-R ratio log pi) = -R ratio grad log pi, with the ratio held fixed.
    fixed = tokens.logprobs.detach()
    ratio = importance_ratio(fixed, tokens.behaviour, learning.importance_cap)
    return -tokens.advantages * ratio * tokens.logprobs


def is_vetoed(log_ratios: Tensor, rows: Tensor, count: int) -> Tensor:
    """Trajectories with a token whose importance ratio is below ``VETO``: bool (count,).

    ``log_ratios`` are float (tokens,), ``rows`` int64 (tokens,): the trajectory of each token.
    """
    # min over each row's tokens of log(pi / mu), or 0 if all are above: (count,).
    lowest = torch.zeros(count, dtype=log_ratios.dtype, device=log_ratios.device)
    lowest = lowest.scatter_reduce(0, rows, log_ratios.detach(), "amin")
    return lowest < math.log(VETO)


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """KL[pi || pi_ref] of equation 4 by Schulman's k3, exp(d) - d - 1 with d = log pi_ref - log pi:
    (tokens,) nats, unbiased and never negative."""
    # E_pi[exp(d) - 1] = 0, so that E_pi[k3] = -E_pi[d] = KL.
    difference = reference_logprobs - logprobs
    return torch.expm1(difference) - difference


# -- the table ---------------------------------------------------------------------------------

ALGORITHMS = {
    "grpo": Algorithm(grpo_advantages, grpo_loss, grouped=True, kl=True),
    "reinforce": Algorithm(reinforce_advantages, reinforce_loss, grouped=False, kl=False),
}
"""Values of ``learning.solver_algorithm`` and ``learning.proposer_algorithm``."""


def find_algorithm(name: str) -> Algorithm:
    """An algorithm of the table, or your own as ``module:NAME``, which every process imports."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]

    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError("learning.algorithm", name, f"cannot be imported: {error}") from error
    if not isinstance(found, Algorithm):
        fix = f"is a {type(found).__name__}, not an agents.losses.Algorithm"
        raise ConfigError("learning.algorithm", name, fix)
    return found

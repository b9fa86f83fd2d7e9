"""Losses as pure functions of tensors: GRPO and REINFORCE (equations 4 and 5), importance ratios,
and KL."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

VETO = 1e-4
"""A trajectory with a token whose importance ratio is below this is not learnt from: the learner
all but rules out what the engine sampled, so one of the two is wrong there, or the trajectory
belongs to another policy. The same value as in veRL and SkyRL."""


def grpo_advantages(
    rewards: np.ndarray, groups: np.ndarray, *, std_normalise: bool = False
) -> np.ndarray:
    """Reward minus the mean of its group: the advantage of each trajectory.

    Args:
        rewards: float (trajectories,).
        groups: int (trajectories,); equal numbers are one group.
        std_normalise: also divide by the group's standard deviation (as the original GRPO does; the
            paper does not).

    Returns:
        float64 (trajectories,); zeros in a group whose rewards are all equal.
    """
    advantages = np.zeros(len(rewards), dtype=np.float64)
    for group in np.unique(groups):
        members = groups == group
        if np.ptp(rewards[members]) == 0:
            # Exactly 0, whatever rounding makes of a mean of equal numbers.
            continue

        centred = rewards[members] - rewards[members].mean()
        if std_normalise:
            centred = centred / (rewards[members].std() + 1e-6)

        advantages[members] = centred

    return advantages


def importance_ratio(logprobs: Tensor, behaviour_logprobs: Tensor, cap: float | None) -> Tensor:
    """How much likelier each token has become than it was when it was sampled.

    The ratio is between the policy that learns and the one that sampled. It therefore makes up
    both for earlier updates on the same batch and for an engine that computes a little differently
    (other kernels, other precision). Truncated (Ionides 2008; "truncated importance sampling"), it
    has a bounded variance at the price of a small bias.

    Args:
        logprobs: float (tokens,), under the current policy; carries the gradient.
        behaviour_logprobs: float (tokens,), under the policy that sampled.
        cap: above it, the ratio is scaled down to it, and its gradient with it; ``None`` leaves
            all ratios as they are.

    Returns:
        float (tokens,), above 0.
    """
    log_ratio = logprobs - behaviour_logprobs
    if cap is None:
        return torch.exp(log_ratio)

    excess = (log_ratio.detach() - math.log(cap)).clamp(min=0.0)
    return torch.exp(log_ratio - excess)


def grpo_loss(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
    cap: float | None = None,
) -> Tensor:
    """Clipped importance-weighted policy loss of each token.

    With one update a batch the ratio is 1 and this is the paper's gradient. With several, the ratio
    is kept within [1 - clip_low, 1 + clip_high]; a wider upper bound leaves unlikely tokens room to
    grow (DAPO). Clipping bounds no ratio of a token with a negative advantage; the cap does.

    Args:
        logprobs: float (tokens,), under the current policy; carries the gradient.
        behaviour_logprobs: float (tokens,), under the policy that sampled.
        advantages: float (tokens,).
        clip_low: how far the ratio may fall below 1.
        clip_high: how far it may rise above 1.
        cap: as for :func:`importance_ratio`.

    Returns:
        float (tokens,): the loss, to be weighted and summed.
    """
    ratio = importance_ratio(logprobs, behaviour_logprobs, cap)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def is_clipped(log_ratios: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """Whether clipping stops the gradient of each token: bool (tokens,); arguments as above."""
    ratio = torch.exp(log_ratios)
    risen = (ratio > 1.0 + clip_high) & (advantages > 0)
    fallen = (ratio < 1.0 - clip_low) & (advantages < 0)
    return risen | fallen


def reinforce_loss(
    logprobs: Tensor, behaviour_logprobs: Tensor, returns: Tensor, cap: float | None = None
) -> Tensor:
    """Policy loss of each token.

    Unlike GRPO with one trajectory a group, whose advantage is always 0, the bare return is the
    weight. With a cap, each token is also weighted by its truncated importance ratio (equation 5 is
    on-policy, where that is 1), as a constant: the gradient is ratio x return x grad log pi.

    Args:
        logprobs: float (tokens,), under the current policy; carries the gradient.
        behaviour_logprobs: float (tokens,), under the policy that sampled.
        returns: float (tokens,), the trajectory's return (less a baseline) at each of its tokens.
        cap: as for :func:`importance_ratio`; ``None`` leaves the ratio out.

    Returns:
        float (tokens,): the loss, to be weighted and summed.
    """
    if cap is None:
        return -returns * logprobs

    ratio = importance_ratio(logprobs.detach(), behaviour_logprobs, cap)
    return -returns * ratio * logprobs


def is_vetoed(log_ratios: Tensor, rows: Tensor, count: int) -> Tensor:
    """Which trajectories have a token whose importance ratio is below ``VETO``.

    Args:
        log_ratios: float (tokens,), log of the ratio.
        rows: int64 (tokens,), which trajectory each token belongs to.
        count: how many trajectories there are.

    Returns:
        bool (count,).
    """
    lowest = torch.zeros(count, dtype=log_ratios.dtype, device=log_ratios.device)
    lowest = lowest.scatter_reduce(0, rows, log_ratios.detach(), "amin")
    return lowest < math.log(VETO)


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy || reference) per token: unbiased, never negative.

    Args:
        logprobs: float (tokens,), under the current policy; carries the gradient.
        reference_logprobs: float (tokens,), under the reference.

    Returns:
        float (tokens,), nats.
    """
    difference = reference_logprobs - logprobs
    return torch.expm1(difference) - difference

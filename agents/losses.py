"""Losses as pure functions of tensors: GRPO and REINFORCE (equations 4 and 5), and KL."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


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


def grpo_loss(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Clipped importance-weighted policy loss of each token.

    With one update a batch the ratio is 1 and this is the paper's gradient. With several, the ratio
    is kept within [1 - clip_low, 1 + clip_high]; a wider upper bound leaves unlikely tokens room to
    grow (DAPO).

    Args:
        logprobs: float (tokens,), under the current policy; carries the gradient.
        behaviour_logprobs: float (tokens,), under the policy that sampled.
        advantages: float (tokens,).
        clip_low: how far the ratio may fall below 1.
        clip_high: how far it may rise above 1.

    Returns:
        float (tokens,): the loss, to be weighted and summed.
    """
    ratio = torch.exp(logprobs - behaviour_logprobs)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def reinforce_loss(logprobs: Tensor, returns: Tensor) -> Tensor:
    """Policy loss of each token.

    Unlike GRPO with one trajectory a group, whose advantage is always 0, the bare return is the
    weight.

    Args:
        logprobs: float (tokens,), under the current policy; carries the gradient.
        returns: float (tokens,), the trajectory's return at each of its tokens.

    Returns:
        float (tokens,): the loss, to be weighted and summed.
    """
    return -returns * logprobs


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

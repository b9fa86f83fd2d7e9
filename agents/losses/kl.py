"""Divergence from the frozen reference policy."""

from __future__ import annotations

import torch
from torch import Tensor


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy || reference) at sampled tokens: unbiased and never negative.

    Args:
        logprobs: float (tokens,), under the current policy; carries the gradient.
        reference_logprobs: float (tokens,), under the reference.

    Returns:
        float (tokens,), nats.
    """
    difference = reference_logprobs - logprobs
    return torch.expm1(difference) - difference

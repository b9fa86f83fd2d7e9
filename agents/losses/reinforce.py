"""REINFORCE: the return times the log-probability, no baseline and no clipping (equation 5 of the paper)."""

from __future__ import annotations

from torch import Tensor


def reinforce_loss(logprobs: Tensor, returns: Tensor) -> Tensor:
    """Policy loss of each token.

    Unlike GRPO with one trajectory a group, whose advantage is always 0, the bare return is the weight.

    Args:
        logprobs: float (tokens,), under the current policy; carries the gradient.
        returns: float (tokens,), the trajectory's return at each of its tokens.

    Returns:
        float (tokens,): the loss, to be weighted and summed.
    """
    return -returns * logprobs

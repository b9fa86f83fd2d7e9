"""The losses against formulas written out in numpy, and their gradients against equations 4 and 5
of the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agents.config import LearningConfig
from agents.losses import (
    VETO,
    Tokens,
    grpo_advantages,
    grpo_loss,
    importance_ratio,
    is_vetoed,
    kl_k3,
)

RNG = np.random.default_rng(7)
UNCAPPED = LearningConfig(importance_cap=None, clip_low=0.2, clip_high=0.28)


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def tokens(logprobs: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor) -> Tokens:
    return Tokens(logprobs, behaviour, advantages, torch.zeros(len(logprobs), dtype=torch.int64))


@given(st.floats(0, 1), st.integers(1, 9), st.booleans())
def test_a_uniform_group_has_advantages_of_exactly_zero(
    reward: float, size: int, std_normalise: bool
) -> None:
    rewards = np.full(size, reward)
    learning = LearningConfig(std_normalise=std_normalise)
    advantages = grpo_advantages(rewards, np.zeros(size, dtype=int), learning)
    assert advantages.tolist() == [0.0] * size, "a mean of equal numbers may be off by a rounding"


def test_grpo_loss_is_the_clipped_surrogate() -> None:
    new, old = RNG.normal(-2, 0.5, 200), RNG.normal(-2, 0.5, 200)
    advantages = RNG.normal(size=200)
    expected = []
    for logp, behaviour, advantage in zip(new, old, advantages, strict=True):
        ratio = np.exp(logp - behaviour)
        bounded = min(max(ratio, 1 - 0.2), 1 + 0.28)
        expected.append(-min(ratio * advantage, bounded * advantage))
    result = grpo_loss(tokens(tensor(new), tensor(old), tensor(advantages)), UNCAPPED)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)


# -- importance ratios -------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [None, 1.0, 1.5, 2.0])
def test_ratios_are_cut_off_with_their_gradients(cap: float | None) -> None:
    new, old = RNG.normal(-2, 0.7, 100), RNG.normal(-2, 0.7, 100)
    expected = np.minimum(np.exp(new - old), np.inf if cap is None else cap)
    logprobs = tensor(new).requires_grad_()
    ratio = importance_ratio(logprobs, tensor(old), cap)
    ratio.sum().backward()
    np.testing.assert_allclose(ratio.detach().numpy(), expected, rtol=1e-12)
    assert logprobs.grad is not None
    np.testing.assert_allclose(logprobs.grad.numpy(), expected, rtol=1e-12)


def test_one_impossible_token_vetoes_its_trajectory_alone() -> None:
    just, below = np.log(VETO) + 1e-6, np.log(VETO) - 1e-6
    log_ratios = tensor([0.1, just, -0.2, below, 0.0, 3.0])
    rows = torch.tensor([0, 0, 1, 1, 3, 3])
    assert is_vetoed(log_ratios, rows, 4).tolist() == [False, True, False, False]


def test_kl_k3_is_unbiased_and_never_negative() -> None:
    policy, reference = (np.exp(x) / np.exp(x).sum() for x in RNG.normal(size=(2, 12)))
    k3 = kl_k3(tensor(np.log(policy)), tensor(np.log(reference))).numpy()
    ratio = reference / policy
    np.testing.assert_allclose(k3, ratio - 1 - np.log(ratio), rtol=1e-9)
    assert (k3 >= 0).all()
    exact = float((policy * np.log(policy / reference)).sum())
    assert float((policy * k3).sum()) == pytest.approx(exact), (
        "its mean over the policy's own tokens is the KL"
    )

"""The losses against formulas written out in numpy, and their gradients against equations 4 and 5
of the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.config import LearningConfig
from agents.losses import (
    VETO,
    Tokens,
    grpo_advantages,
    grpo_loss,
    importance_ratio,
    is_clipped,
    is_vetoed,
    kl_k3,
    reinforce_loss,
)

RNG = np.random.default_rng(7)
UNCAPPED = LearningConfig(importance_cap=None, clip_low=0.2, clip_high=0.28)


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def tokens(logprobs: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor) -> Tokens:
    return Tokens(logprobs, behaviour, advantages, torch.zeros(len(logprobs), dtype=torch.int64))


def test_advantages_are_rewards_minus_the_mean_of_their_own_group() -> None:
    rewards = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 0.5])
    groups = np.array([4, 9, 4, 4, 9, 2])
    expected = [1 / 3, 0.0, 1 / 3, -2 / 3, 0.0, 0.0]
    np.testing.assert_allclose(
        grpo_advantages(rewards, groups, 0.0, UNCAPPED), expected, atol=1e-15
    )


@pytest.mark.parametrize("std_normalise", [False, True])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 0.6, 1 / 3])
@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_a_uniform_group_has_advantages_of_exactly_zero(
    reward: float, size: int, std_normalise: bool
) -> None:
    rewards = np.full(size, reward)
    learning = LearningConfig(std_normalise=std_normalise)
    advantages = grpo_advantages(rewards, np.zeros(size, dtype=int), 0.0, learning)
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


def test_a_token_is_clipped_where_its_gradient_stops() -> None:
    new, old = RNG.normal(-2, 0.5, (2, 200))
    advantages = tensor(RNG.normal(size=200))
    logprobs = tensor(new).requires_grad_()
    grpo_loss(tokens(logprobs, tensor(old), advantages), UNCAPPED).sum().backward()
    assert logprobs.grad is not None
    clipped = is_clipped(logprobs - tensor(old), advantages, UNCAPPED)
    assert clipped.tolist() == (logprobs.grad == 0).tolist()
    assert 0 < int(clipped.sum()) < 200


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


# -- gradients ---------------------------------------------------------------------------------


class Softmax:
    """A policy of one softmax a position, whose gradient of log pi is written down by hand."""

    def __init__(self, lengths: list[int], vocabulary: int = 5) -> None:
        self.logits = tensor(RNG.normal(size=(max(lengths), vocabulary))).requires_grad_()
        self.actions = [RNG.integers(vocabulary, size=length) for length in lengths]

    def logprobs(self, trajectory: int) -> torch.Tensor:
        actions = self.actions[trajectory]
        return torch.log_softmax(self.logits, dim=-1)[
            torch.arange(len(actions)), torch.from_numpy(actions)
        ]

    def score(self, trajectory: int) -> np.ndarray:
        """Sum over t of the gradient of log pi(action_t)."""
        logits = self.logits.detach().numpy()
        gradient = np.zeros_like(logits)
        for t, action in enumerate(self.actions[trajectory]):
            probabilities = np.exp(logits[t]) / np.exp(logits[t]).sum()
            gradient[t] -= probabilities
            gradient[t, action] += 1.0
        return gradient


def test_the_gradient_of_grpo_is_equation_4() -> None:
    questions, n = 2, 3
    lengths = [4, 2, 5, 3, 1, 4]
    policy = Softmax(lengths)
    rewards = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    advantages = grpo_advantages(rewards, np.arange(6) // n, 0.0, UNCAPPED)
    loss = torch.zeros((), dtype=torch.float64)
    for i, length in enumerate(lengths):
        logprobs = policy.logprobs(i)
        weights = tensor(np.full(length, advantages[i]))
        losses = grpo_loss(tokens(logprobs, logprobs.detach(), weights), UNCAPPED)
        loss = loss + losses.mean() / (questions * n)
    loss.backward()
    ascent = np.zeros(tuple(policy.logits.shape))
    for i, length in enumerate(lengths):
        advantage = rewards[i] - rewards[i // n * n : i // n * n + n].mean()
        ascent += policy.score(i) * advantage / (questions * n * length)
    assert policy.logits.grad is not None
    np.testing.assert_allclose(-policy.logits.grad.numpy(), ascent, atol=1e-12)


def test_the_gradient_of_reinforce_is_equation_5() -> None:
    lengths = [4, 2, 5]
    policy = Softmax(lengths)
    returns = np.array([0.8, 0.0, 0.4])
    loss = torch.zeros((), dtype=torch.float64)
    for i, length in enumerate(lengths):
        logprobs = policy.logprobs(i)
        weights = tensor(np.full(length, returns[i]))
        losses = reinforce_loss(tokens(logprobs, logprobs.detach(), weights), UNCAPPED)
        loss = loss + losses.sum() / len(lengths)
    loss.backward()
    ascent = sum(policy.score(i) * returns[i] for i in range(3)) / 3
    assert policy.logits.grad is not None
    np.testing.assert_allclose(-policy.logits.grad.numpy(), ascent, atol=1e-12)

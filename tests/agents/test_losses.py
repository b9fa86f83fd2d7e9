"""Each algorithm of the table against its paper's equation, written out in plain loops in float64;
importance ratios and the KL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ssp_agents.config import ALGORITHMS, LearningConfig, compares
from ssp_agents.losses import (
    VETO,
    Tokens,
    find_algorithm,
    grpo_advantages,
    grpo_loss,
    importance_ratio,
    is_vetoed,
    kl_k3,
)
from ssp_agents.rows import Row, with_advantages, with_loss_weights
from ssp_env.game.config import GameConfig

RNG = np.random.default_rng(7)


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


@given(st.floats(0, 1), st.integers(1, 9), st.booleans())
def test_a_uniform_group_has_advantages_of_exactly_zero(
    reward: float, size: int, std_normalise: bool
) -> None:
    rewards = np.full(size, reward)
    learning = LearningConfig(std_normalise=std_normalise)
    advantages = grpo_advantages(rewards, np.zeros(size, dtype=int), learning)
    assert advantages.tolist() == [0.0] * size, "a mean of equal numbers may be off by a rounding"


# -- the table against plain loops ---------------------------------------------------------------

SLOTS, LONGEST, LOW, HIGH = 4, 50, 0.1, 0.15
Response = tuple[float, list[torch.Tensor], list[float]]
"""Reward, and for each token log pi and log mu."""
Question = list[Response]


def surrogate(ratio: torch.Tensor, advantage: float) -> torch.Tensor:
    """min(ratio A, clip(ratio) A)."""
    bounded = torch.clamp(ratio, 1 - LOW, 1 + HIGH)
    return torch.minimum(ratio * advantage, bounded * advantage)


def deviations(question: Question, std: bool = False) -> list[float]:
    """r - mean(r), divided by std(r) on demand."""
    rewards = [reward for reward, _, _ in question]
    mean = sum(rewards) / len(rewards)
    spread = (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5
    if spread == 0:
        return [0.0] * len(rewards)
    return [(r - mean) / (spread + 1e-6 if std else 1.0) for r in rewards]


def grpo(questions: list[Question], length: int | None = None) -> Any:
    loss = 0.0
    for question in questions:
        for (_, new, old), advantage in zip(question, deviations(question), strict=True):
            terms = [surrogate((a - b).exp(), advantage) for a, b in zip(new, old, strict=True)]
            loss -= sum(terms) / (length or len(terms)) / len(question) / SLOTS
    return loss


def dr_grpo(questions: list[Question]) -> Any:
    return grpo(questions, LONGEST)


def reinforce(questions: list[Question]) -> Any:
    loss = 0.0
    for question in questions:
        for reward, new, _ in question:
            loss -= reward * sum(new) / len(question) / SLOTS
    return loss


def rae(questions: list[Question]) -> Any:
    loss, baseline = 0.0, 0.0
    for question in questions:
        for reward, new, _ in question:
            loss -= (reward - baseline) * sum(new) / len(question) / SLOTS
            baseline = 0.95 * baseline + 0.05 * reward
    return loss


def gspo(questions: list[Question]) -> Any:
    loss = 0.0
    for question in questions:
        for (_, new, old), advantage in zip(question, deviations(question, True), strict=True):
            whole = ((sum(new) - sum(old)) / len(new)).exp()  # (pi(y) / mu(y))^(1 / |y|)
            loss -= surrogate(whole, advantage) / len(question) / SLOTS
    return loss


def cispo(questions: list[Question]) -> Any:
    loss, count = 0.0, 0
    for question in questions:
        for (_, new, old), advantage in zip(question, deviations(question, True), strict=True):
            for a, b in zip(new, old, strict=True):
                weight = torch.clamp((a - b).exp(), 1 - LOW, 1 + HIGH).detach()
                loss -= weight * advantage * a
                count += 1
    return loss / count


def rloo(questions: list[Question]) -> Any:
    loss = 0.0
    for question in questions:
        for i, (reward, new, _) in enumerate(question):
            others = [r for j, (r, _, _) in enumerate(question) if j != i]
            baseline = sum(others) / len(others)
            loss -= (reward - baseline) * sum(new) / len(question) / SLOTS
    return loss


ORACLES = {o.__name__: o for o in (grpo, reinforce, rae, dr_grpo, gspo, cispo, rloo)}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_its_papers_equation(name: str) -> None:
    """Loss and gradient, from rewards to the sum over a batch where two games are missing."""
    learning = LearningConfig(
        solver_algorithm=name,
        importance_cap=None,
        clip=(LOW, HIGH),
        std_normalise=name in ("gspo", "cispo"),
    )
    assert compares(learning, "solver") == find_algorithm(learning, "solver").grouped
    rewards = [[1.0, 0.0, 0.0], [0.5, 1.0, 0.25]]
    rows, leaves, questions = [], [], []
    for place, own in enumerate(rewards):
        questions.append([])
        for reward in own:
            old = RNG.normal(-2, 0.3, int(RNG.integers(2, 8)))
            new = tensor(old + RNG.normal(0, 0.2, len(old))).requires_grad_()
            ids, mask = np.full(len(old), len(leaves)), np.ones(len(old), dtype=np.uint8)
            rows.append(Row(ids, mask, old, "solver", place, 0.0, reward=reward, group=f"{place}"))
            leaves.append(new)
            questions[-1].append((reward, list(new), old.tolist()))

    game = GameConfig(attempts=3, max_response_tokens=LONGEST)
    weighted = with_loss_weights(with_advantages(rows, learning), learning, SLOTS, game)
    found = find_algorithm(learning, "solver").loss(
        Tokens(
            torch.cat([leaves[row.ids[0]] for row in weighted]),
            tensor(np.concatenate([row.logprobs for row in weighted])),
            tensor(np.concatenate([np.full(row.tokens, row.advantage) for row in weighted])),
            torch.tensor(np.repeat(np.arange(len(weighted)), [row.tokens for row in weighted])),
        ),
        learning,
    )
    weights = tensor(np.concatenate([np.full(row.tokens, row.weight) for row in weighted]))
    loss, expected = (weights * found).sum(), ORACLES[name](questions)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)

    gradients, theirs = (
        torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
        for value in (loss, expected)
    )
    assert any(bool((gradient != 0).any()) for gradient in theirs)
    for gradient, their in zip(gradients, theirs, strict=True):
        torch.testing.assert_close(gradient, their, rtol=1e-10, atol=1e-15)


# -- importance ratios -------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [None, 1.0, 1.5, 2.0])
def test_ratios_are_cut_off_with_their_gradients(cap: float | None) -> None:
    new, old = RNG.normal(-2, 0.7, 100), RNG.normal(-2, 0.7, 100)
    expected = np.minimum(np.exp(new - old), np.inf if cap is None else cap)
    logprobs = tensor(new).requires_grad_()
    ratio = importance_ratio(logprobs - tensor(old), cap)
    ratio.sum().backward()
    np.testing.assert_allclose(ratio.detach().numpy(), expected, rtol=1e-12)
    assert logprobs.grad is not None
    np.testing.assert_allclose(logprobs.grad.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("rise", [20.5, 89.0, 1000.0])
def test_a_clipped_token_that_was_all_but_impossible_has_no_gradient(rise: float) -> None:
    """The ratio overflows from a rise of 89 nats on; infinity times 0 would be NaN."""
    logprobs = torch.tensor([rise], requires_grad=True)
    zeros = torch.zeros(1)
    tokens = Tokens(logprobs, zeros, zeros + 1, zeros.long())
    loss = grpo_loss(tokens, LearningConfig(importance_cap=None))
    loss.sum().backward()
    assert (loss.item(), logprobs.grad) == (pytest.approx(-1.28), torch.zeros(1))


def test_one_impossible_token_vetoes_its_trajectory_alone() -> None:
    just, below = np.log(VETO) + 1e-6, np.log(VETO) - 1e-6
    log_ratios = tensor([0.1, just, -0.2, below, 0.0, 3.0])
    rows = torch.tensor([0, 0, 1, 1, 3, 3])
    assert is_vetoed(log_ratios, rows, 4).tolist() == [False, True, False, False]


def test_kl_k3_stops_where_the_policy_is_far_below_the_reference_alone() -> None:
    logprobs = tensor([-900.0, -2.0, -1.0]).requires_grad_()
    k3 = kl_k3(logprobs, tensor([-2.0, -2.0, -13.0]), cap=10.0)
    assert k3.tolist() == pytest.approx([10.0, 0.0, 11.0], abs=1e-4)
    k3.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, 0.0, 1.0], abs=1e-4)

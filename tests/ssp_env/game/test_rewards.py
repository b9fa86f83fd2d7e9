"""Rewards of both roles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.game.rewards import PROPOSER_REWARDS, solver_reward


@pytest.mark.parametrize(
    ("name", "at"),
    [("1-p", {0.0: 1.0, 0.25: 0.75, 0.5: 0.5, 1.0: 0.0}), ("4p(1-p)", {0.0: 0.0, 0.25: 0.75, 0.5: 1.0, 1.0: 0.0})],
)
def test_values(name: str, at: dict[float, float]) -> None:
    assert {p: PROPOSER_REWARDS[name](p) for p in at} == at


@given(p=st.floats(0, 1))
@pytest.mark.parametrize("name", sorted(PROPOSER_REWARDS))
def test_range(name: str, p: float) -> None:
    assert 0 <= PROPOSER_REWARDS[name](p) <= 1


@given(p=st.floats(0, 1), q=st.floats(0, 1))
def test_harder_never_pays_less(p: float, q: float) -> None:
    reward = PROPOSER_REWARDS["1-p"]
    assert (reward(p) >= reward(q)) if p <= q else (reward(p) <= reward(q))


def test_the_impossible_pays_only_where_nothing_limits_hardness() -> None:
    assert {name for name, reward in PROPOSER_REWARDS.items() if reward(0.0) > 0} == {"1-p"}


def test_solver() -> None:
    assert (solver_reward(True), solver_reward(False)) == (1.0, 0.0)

"""Rewards of both roles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import MINI, begin, by_role, play, propose, rules_of, word_tokenizer

from ssp_env.game.game import Attempt, Game, Origin
from ssp_env.game.rewards import PROPOSER_REWARDS, right_answer
from ssp_env.game.trajectory import Limits, Trajectory
from ssp_env.judge.base import Verdict
from ssp_env.types import GroundTruth, Role, World


def judged(right: int, attempts: int) -> Game:
    """A game whose first ``right`` attempts were right."""
    limits = Limits.of(Role.SOLVER, MINI, word_tokenizer())
    game = Game((0,), 0, 0, GroundTruth("a", "a"), Origin.PROPOSED)
    game.attempts = [Attempt(Trajectory(limits, [3]), Verdict(i < right)) for i in range(attempts)]
    return game


@pytest.mark.parametrize(
    ("name", "at"),
    [("1-p", {0: 1.0, 1: 0.75, 2: 0.5, 4: 0.0}), ("4p(1-p)", {0: 0.0, 1: 0.75, 2: 1.0, 4: 0.0})],
)
def test_values(name: str, at: dict[int, float]) -> None:
    assert {right: PROPOSER_REWARDS[name](judged(right, 4)) for right in at} == at


@given(counts=st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
@pytest.mark.parametrize("name", sorted(PROPOSER_REWARDS))
def test_range(name: str, counts: tuple[int, int]) -> None:
    assert 0 <= PROPOSER_REWARDS[name](judged(*counts)) <= 1


def test_harder_never_pays_less() -> None:
    paid = [PROPOSER_REWARDS["1-p"](judged(right, 5)) for right in range(6)]
    assert paid == sorted(paid, reverse=True)


def test_solver() -> None:
    game = judged(1, 2)
    assert [right_answer(game, attempt) for attempt in game.attempts] == [1.0, 0.0]


def test_own_rewards_pay(mini: World) -> None:
    """They see the whole game: here, every search costs, and a long question pays."""

    def frugal(game: Game, attempt: Attempt) -> float:
        return float(attempt.right) - 0.1 * len(attempt.trajectory.searches)

    def wordy(game: Game) -> float:
        return float(len((game.question or "").split()))

    rules = rules_of(
        mini, word_tokenizer(), attempts=2, solver_reward=frugal, own_proposer_reward=wordy
    )
    game = play(begin(rules, 1), by_role(propose(1))).games[0]
    assert [attempt.reward for attempt in game.attempts] == [0.9, 0.9]
    assert game.proposer_reward == 7.0
    assert (game.solve_rate, game.solver_reward) == (1.0, 0.9)

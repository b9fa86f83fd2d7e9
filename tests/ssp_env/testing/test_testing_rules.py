"""The test mixins of rewards, filters, noise and strategies: what ships passes them, a broken part
does not."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from broken import fails_as

from ssp_env.game.filters import FILTERS, Filter, Proposal
from ssp_env.game.game import Game
from ssp_env.game.noise import NoiseDocument, NoiseSource, draw_noise
from ssp_env.game.rewards import PROPOSER_REWARDS, ProposerReward, SolverReward, right_answer
from ssp_env.game.strategies import (
    STRATEGIES,
    BatchStrategy,
    DummyPadding,
    ReplayBuffer,
    make_strategy,
)
from ssp_env.testing import (
    BatchStrategyTests,
    FilterTests,
    NoiseSourceTests,
    ProposerRewardTests,
    SolverRewardTests,
)
from ssp_env.types import Document

# -- rewards -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROPOSER_REWARDS)
class TestProposerRewards(ProposerRewardTests):
    @pytest.fixture(autouse=True)
    def _name(self, name: str) -> None:
        self.name = name

    def make_reward(self) -> ProposerReward:
        return PROPOSER_REWARDS[self.name]


class TestRightAnswer(SolverRewardTests):
    def make_reward(self) -> SolverReward:
        return right_answer


def log_rate(game: Game) -> float:
    return math.log(game.share_right) if game.share_right else -math.inf


def test_a_broken_proposer_reward() -> None:
    class Broken(ProposerRewardTests):
        def make_reward(self) -> ProposerReward:
            return log_rate

    fails_as(Broken(), "finite_at_every_solve_rate", "is -inf at the solve rate 0.0")


def test_a_broken_solver_reward() -> None:
    class Broken(SolverRewardTests):
        def make_reward(self) -> SolverReward:
            return lambda game, attempt: time.perf_counter()

    fails_as(Broken(), "same_attempt_same_reward", "leave out clocks")


# -- filters -----------------------------------------------------------------------------------

FINE = "Which city is the capital of Austria?"


class _Shipped(FilterTests):
    passes = (FINE,)

    def make_filter(self) -> Filter:
        return FILTERS[self.reason]


class TestEmptyQuestion(_Shipped):
    reason = "empty_question"
    fails = ("", " ?!", "\u200b")


class TestShortQuestion(_Shipped):
    reason = "short_question"
    fails = ("Who?", "a    b    c    d")


class TestLongQuestion(_Shipped):
    reason = "long_question"
    fails = (FINE * 50,)


class TestSpoiler(_Shipped):
    reason = "spoiler"
    fails = ("Is Vienna the capital of Austria?", "Which city is called W i e n at home?")


class TestNoSearch(_Shipped):
    reason = "no_search"
    fails = ("Where?",)

    def make_proposal(self, question: str) -> Proposal:
        """A proposal about "Where?" came without a search."""
        proposal = super().make_proposal(question)
        if question == "Where?":
            proposal.trajectory.searches.clear()
        return proposal


class TestRepeatedQuery(_Shipped):
    reason = "repeated_query"
    fails = ("Where?",)

    def make_proposal(self, question: str) -> Proposal:
        """A proposal about "Where?" searched for the same thing twice."""
        proposal = super().make_proposal(question)
        if question == "Where?":
            proposal.trajectory.searches.append(
                replace(proposal.trajectory.searches[0], query="VIENNA")
            )
        return proposal


def test_a_broken_filter() -> None:
    class Broken(FilterTests):
        reason = "my_rule"
        passes = (FINE,)
        fails = ("Who?",)

        def make_filter(self) -> Filter:
            return lambda proposal: len(proposal.question) > 10

    fails_as(Broken(), "it_tells_good_from_bad", "True for a question that .fails.*, but gave True")

    tests = Broken()
    tests.reason = "unverified"
    fails_as(tests, "its_reason_code_is_free", "'unverified' is the game's own")


# -- noise -------------------------------------------------------------------------------------


class TestDrawNoise(NoiseSourceTests):
    def make_noise(self) -> NoiseSource:
        return draw_noise


@pytest.mark.parametrize(
    ("twist", "test", "message"),
    [
        ("own", "none_of_its_own", "leave out own"),
        ("global", "all_randomness_comes_from_rng", "use no other source of randomness"),
    ],
)
def test_broken_noise(twist: str, test: str, message: str) -> None:
    def noise(
        rng: np.random.Generator,
        count: int,
        own: Sequence[Document],
        others: Sequence[tuple[int, Document]],
        corpus: Sequence[Document],
    ) -> tuple[NoiseDocument, ...]:
        if twist == "global":
            rng = np.random.default_rng(random.getrandbits(32))
        drawn = draw_noise(rng, count, own, others, corpus)
        return (NoiseDocument(own[0], "own"), *drawn[1:]) if twist == "own" else drawn

    class Broken(NoiseSourceTests):
        def make_noise(self) -> NoiseSource:
            return noise

    fails_as(Broken(), test, message)


# -- strategies --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRATEGIES)
class TestStrategies(BatchStrategyTests):
    @pytest.fixture(autouse=True)
    def _name(self, name: str) -> None:
        self.name = name

    def make_strategy(self) -> BatchStrategy:
        return make_strategy(self.name, reset_every=4)


class Endless(DummyPadding):
    def wants_more(self, valid: int, slots: int, waves: int) -> bool:
        return valid < slots


class Always(DummyPadding):
    def wants_more(self, valid: int, slots: int, waves: int) -> bool:
        return True


class NotPlain(ReplayBuffer):
    def get_state(self) -> dict[str, Any]:
        return {"steps": 0, "pool": set(self.pool)}


class Forgets(ReplayBuffer):
    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"pool": []}


@pytest.mark.parametrize(
    ("kind", "test", "message"),
    [
        (Endless, "waves_come_to_an_end", "bound the waves"),
        (Always, "rounds_end", "a round refuses this strategy: .* asks for another wave"),
        (NotPlain, "a_state_goes_through_json", "plain data for JSON"),
        (Forgets, "a_state_goes_through_json", "put everything that decides into get_state"),
    ],
)
def test_broken_strategies(kind: type[BatchStrategy], test: str, message: str) -> None:
    class Broken(BatchStrategyTests):
        def make_strategy(self) -> BatchStrategy:
            return kind()

    fails_as(Broken(), test, message)

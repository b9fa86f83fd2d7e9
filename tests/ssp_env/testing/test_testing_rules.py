"""The test mixins of rewards, filters, noise and strategies: what ships passes, what breaks a
promise is told so."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from broken import fails_as

from ssp_env.game.config import GameConfig
from ssp_env.game.filters import FILTERS, Filter, Proposal
from ssp_env.game.game import Attempt, Game
from ssp_env.game.noise import NoiseDocument, NoiseSource, draw_noise
from ssp_env.game.rewards import PROPOSER_REWARDS, ProposerReward, SolverReward, right_answer
from ssp_env.game.strategies import (
    STRATEGIES,
    BatchStrategy,
    DummyPadding,
    PooledQuestion,
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


def proposer_tests(reward: Any) -> ProposerRewardTests:
    class Broken(ProposerRewardTests):
        def make_reward(self) -> ProposerReward:
            return reward  # type: ignore[no-any-return]

    return Broken()


def solver_tests(reward: Any) -> SolverRewardTests:
    class Broken(SolverRewardTests):
        def make_reward(self) -> SolverReward:
            return reward  # type: ignore[no-any-return]

    return Broken()


def takes_notes(game: Game) -> float:
    game.group += 1
    return 0.0


def depends_on_what_is_paid(game: Game) -> float:
    return 0.5 if game.proposer_reward is None else game.proposer_reward + 1


def for_the_right_alone(game: Game, attempt: Attempt) -> float | None:
    return 1.0 if attempt.right else None


def spoils(game: Game, attempt: Attempt) -> float:
    attempt.verdict = None
    return 0.0


@pytest.mark.parametrize(
    ("reward", "test", "message"),
    [
        (log_rate, "finite_at_every_solve_rate", "is -inf at the solve rate 0.0: guard logarithms"),
        (lambda game: "high", "finite_at_every_solve_rate", "is a number, not 'high'"),
        (lambda game: random.random(), "same_game_same_reward", "leave out clocks"),
        (takes_notes, "looking_changes_nothing", "let it only read"),
        (depends_on_what_is_paid, "a_game_pays_it", "a game paid 0.5, but the function says 1.5"),
    ],
)
def test_broken_proposer_rewards(reward: Callable[[Game], Any], test: str, message: str) -> None:
    fails_as(proposer_tests(reward), test, message)


@pytest.mark.parametrize(
    ("reward", "test", "message"),
    [
        (
            for_the_right_alone,
            "finite_for_every_attempt",
            "is a number, not None .*: return one on every path",
        ),
        (lambda game, attempt: time.perf_counter(), "same_attempt_same_reward", "leave out clocks"),
        (spoils, "looking_changes_nothing", "let it only read"),
        (
            lambda game, attempt: float(attempt.reward is None),
            "a_game_pays_it",
            r"paid \[1.0, 1.0, 1.0, 1.0\]",
        ),
    ],
)
def test_broken_solver_rewards(
    reward: Callable[[Game, Attempt], Any], test: str, message: str
) -> None:
    fails_as(solver_tests(reward), test, message)


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
    fails = ("Who?", "a  b  c  d  e  f  g  h")


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


class TestAnOwnConfig(FilterTests):
    reason = "long_question"
    config = GameConfig(max_question_chars=30)
    passes = ("Which is the capital of it?",)
    fails = (FINE,)

    def make_filter(self) -> Filter:
        return FILTERS["long_question"]


def filter_tests(check: Any, reason: str = "my_rule") -> FilterTests:
    class Broken(FilterTests):
        passes = (FINE,)
        fails = ("Who?",)

        def make_filter(self) -> Filter:
            return check  # type: ignore[no-any-return]

    tests = Broken()
    tests.reason = reason
    return tests


counter = itertools.count()


@pytest.mark.parametrize(
    ("check", "test", "message"),
    [
        (
            lambda p: len(p.question) > 10,
            "it_tells_good_from_bad",
            "True for a question that .fails.*, but gave True",
        ),
        (lambda p: len(p.question) < 10 and 1, "it_tells_good_from_bad", "returns a bool, not 1"),
        (lambda p: next(counter) % 3 == 0, "same_proposal_same_word", "leave out clocks"),
        (lambda p: p.question.strip() or None, "awkward_questions", "'' got None"),
    ],
)
def test_broken_filters(check: Callable[[Proposal], Any], test: str, message: str) -> None:
    fails_as(filter_tests(check), test, message)


def test_a_reason_code_that_is_taken() -> None:
    fails_as(
        filter_tests(lambda p: False, "unverified"),
        "its_reason_code_is_free",
        "'unverified' is the game's own",
    )


# -- noise -------------------------------------------------------------------------------------


class TestDrawNoise(NoiseSourceTests):
    def make_noise(self) -> NoiseSource:
        return draw_noise


def twisted_noise(twist: str) -> NoiseSource:
    def noise(
        rng: np.random.Generator,
        count: int,
        own: Sequence[Document],
        others: Sequence[tuple[int, Document]],
        corpus: Sequence[Document],
    ) -> Any:
        drawn = draw_noise(rng, count, own, others, corpus)
        match twist:
            case "own":
                return (NoiseDocument(own[0], "own"), *drawn[1:])
            case "one more":
                return draw_noise(rng, count + 1, own, others, corpus)
            case "twice":
                return (drawn * 2)[:count]
            case "global":
                return draw_noise(
                    np.random.default_rng(random.getrandbits(32)), count, own, others, corpus
                )
            case "plain":
                return tuple(item.document for item in drawn)
            case "pops" if isinstance(others, list) and others:
                others.pop()
            case "whatever":
                return tuple(NoiseDocument(document, "corpus") for document in corpus[-count:])
        return drawn

    return noise


@pytest.mark.parametrize(
    ("twist", "test", "message"),
    [
        ("own", "none_of_its_own", "leave out own"),
        ("whatever", "poor_surroundings", "every document is the game's own"),
        ("one more", "at_most_count_and_none_twice", "at most count = 0 documents"),
        ("twice", "at_most_count_and_none_twice", "draw without replacement"),
        ("global", "all_randomness_comes_from_rng", "use no other source of randomness"),
        (
            "plain",
            "noise_documents_say_where_they_come_from",
            "made of NoiseDocuments, not Document",
        ),
        ("pops", "arguments_stay_as_they_are", "copy them first"),
    ],
)
def test_broken_noise(twist: str, test: str, message: str) -> None:
    class Broken(NoiseSourceTests):
        def make_noise(self) -> NoiseSource:
            return twisted_noise(twist)

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


class Greedy(DummyPadding):
    def wants_more(self, valid: int, slots: int, waves: int) -> bool:
        return waves < 3


class Generous(ReplayBuffer):
    def fill(
        self, rng: np.random.Generator, fresh: Sequence[PooledQuestion], empty: int
    ) -> list[PooledQuestion]:
        return super().fill(rng, fresh, empty + 1)


class OwnDice(ReplayBuffer):
    def fill(
        self, rng: np.random.Generator, fresh: Sequence[PooledQuestion], empty: int
    ) -> list[PooledQuestion]:
        return super().fill(np.random.default_rng(random.getrandbits(32)), fresh, empty)


class NotPlain(ReplayBuffer):
    def get_state(self) -> dict[str, Any]:
        return {"steps": 0, "pool": set(self.pool)}


class Forgets(ReplayBuffer):
    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"pool": []}


class KeepsAlias(ReplayBuffer):
    """Hands its own list out as its state."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []

    def begin_step(self) -> None:
        super().begin_step()
        self.log.append(len(self.log))

    def get_state(self) -> dict[str, Any]:
        return super().get_state() | {"log": self.log}


@pytest.mark.parametrize(
    ("kind", "test", "message"),
    [
        (Endless, "waves_come_to_an_end", "bound the waves"),
        (Always, "waves_come_to_an_end", "bound the waves"),
        (
            Always,
            "rounds_end",
            "a round refuses this strategy: wants_more of the strategy Always asks for another",
        ),
        (
            Generous,
            "rounds_end",
            "fill of the strategy Generous gave 4 questions for 3 empty slots",
        ),
        (Greedy, "a_full_batch_wants_no_more", "though all slots hold a valid question"),
        (Generous, "at_most_as_many_as_are_empty", "fill gave 4 questions for 3 empty slots"),
        (OwnDice, "all_randomness_comes_from_rng", "use no other source of randomness"),
        (NotPlain, "a_state_goes_through_json", "plain data for JSON"),
        (Forgets, "a_state_goes_through_json", "put everything that decides into get_state"),
        (KeepsAlias, "a_state_goes_through_json", "hand out a copy"),
    ],
)
def test_broken_strategies(kind: type[BatchStrategy], test: str, message: str) -> None:
    class Broken(BatchStrategyTests):
        def make_strategy(self) -> BatchStrategy:
            return kind()

    fails_as(Broken(), test, message)

"""Mixins for rewards, filters and noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from ssp_env.game.config import GameConfig
from ssp_env.game.filters import Filter, Proposal
from ssp_env.game.game import Game
from ssp_env.game.noise import NoiseDocument, NoiseSource
from ssp_env.game.outcome import RESERVED
from ssp_env.game.record import record_game
from ssp_env.game.rewards import ProposerReward, SolverReward
from ssp_env.game.trajectory import Limits, Trajectory
from ssp_env.testing.material import (
    AWKWARD,
    PASSAGES,
    missing,
    play_small_game,
    same_twice,
    shown,
    small_rules,
)
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.types import Document, GroundTruth, Role


class ProposerRewardTests:
    """Tests a :data:`~ssp_env.game.rewards.ProposerReward` on games of the small world."""

    def make_reward(self) -> ProposerReward:
        """The function to be tested."""
        missing("make_reward(self)")

    def test_finite_at_every_solve_rate(self) -> None:
        for game in _games():
            _check_finite("the proposer's reward", self.make_reward()(game), game)

    def test_same_game_same_reward(self) -> None:
        reward, game = self.make_reward(), play_small_game(2)
        same_twice("the proposer's reward", lambda: reward(game))

    def test_looking_changes_nothing(self) -> None:
        _check_unchanged(play_small_game(2), self.make_reward())

    def test_a_game_pays_it(self) -> None:
        reward = self.make_reward()
        game = play_small_game(1, proposer_reward=reward)
        assert game.proposer_reward == float(reward(game)), (
            f"a game paid {game.proposer_reward}, but the function says {reward(game)} of it "
            f"afterwards: let it depend "
            "on questions, attempts and verdicts alone, not on rewards that are yet to be paid"
        )


class SolverRewardTests:
    """Tests a :data:`~ssp_env.game.rewards.SolverReward` on games of the small world."""

    def make_reward(self) -> SolverReward:
        """The function to be tested."""
        missing("make_reward(self)")

    def test_finite_for_every_attempt(self) -> None:
        for game in _games():
            for attempt in game.attempts:
                _check_finite("the solver's reward", self.make_reward()(game, attempt), game)

    def test_same_attempt_same_reward(self) -> None:
        reward, game = self.make_reward(), play_small_game(2)
        same_twice(
            "the solver's reward", lambda: [reward(game, attempt) for attempt in game.attempts]
        )

    def test_looking_changes_nothing(self) -> None:
        reward = self.make_reward()
        _check_unchanged(
            play_small_game(2), lambda game: [reward(game, attempt) for attempt in game.attempts]
        )

    def test_a_game_pays_it(self) -> None:
        reward = self.make_reward()

        game = play_small_game(1, solver_reward=reward)

        paid, said = (
            [a.reward for a in game.attempts],
            [float(reward(game, a)) for a in game.attempts],
        )
        assert paid == said, (
            f"a game paid {paid}, but the function says {said} of it afterwards: let it depend "
            f"on attempts and "
            "verdicts alone, not on rewards that are yet to be paid"
        )


def _games() -> list[Game]:
    return [play_small_game(right) for right in (0, 2, 4)] + [play_small_game(1, attempts=1)]


def _check_finite(what: str, value: object, game: Game) -> None:
    rate = game.solve_rate
    assert isinstance(value, int | float | np.floating | np.integer), (
        f"{what} is a number, not {value!r} (solve rate {rate}): return one on every path"
    )

    assert math.isfinite(value), (
        f"{what} is {value} at the solve rate {rate}: guard logarithms and divisions"
    )


def _check_unchanged(game: Game, look: Callable[[Game], object]) -> None:
    rules = small_rules()

    before = record_game(game, rules)

    look(game)
    assert record_game(game, rules) == before, (
        "the reward function changed the game: let it only read"
    )


class FilterTests:
    """Tests a :data:`~ssp_env.game.filters.Filter`."""

    reason: str = "my_rule"
    """The reason code that you register it under."""
    passes: Sequence[str] = ()
    """Questions that are fine."""
    fails: Sequence[str] = ()
    """Questions that are not."""
    truth = GroundTruth("t", "Vienna", ("Wien",))
    config = GameConfig()

    def make_filter(self) -> Filter:
        """The filter to be tested."""
        missing("make_filter(self)")

    def make_proposal(self, question: str) -> Proposal:
        """A proposal with this question; its trajectory searched once and found passages."""
        limits = Limits.of(Role.PROPOSER, self.config, ByteTokenizer())
        tags = self.config.tags

        trajectory = Trajectory(limits, [], self.truth.answer)
        trajectory.feed_turn(
            limits.tokenizer.encode(f"{tags.opening('search')} Vienna {tags.closing('search')}")
        )

        trajectory.observe(PASSAGES[:3], [32])
        trajectory.feed_turn(
            limits.tokenizer.encode(f"{tags.opening('question')} what {tags.closing('question')}")
        )

        return Proposal(question, self.truth, trajectory, self.config)

    def test_it_tells_good_from_bad(self) -> None:
        assert self.passes, "set passes and fails to questions that your filter is to tell apart"
        assert self.fails, "set passes and fails to questions that your filter is to tell apart"
        for question, expected in [(q, False) for q in self.passes] + [
            (q, True) for q in self.fails
        ]:
            word = self.make_filter()(self.make_proposal(question))
            assert type(word) is bool, f"a filter returns a bool, not {word!r}: use bool(...)"
            assert word is expected, (
                f"a filter returns True for a question that *fails*, but gave {word} for "
                f"{question!r}, which is to "
                f"{'fail' if expected else 'pass'}"
            )

    def test_same_proposal_same_word(self) -> None:
        check = self.make_filter()
        same_twice(
            "a filter", lambda: [check(self.make_proposal(q)) for q in (*self.passes, *self.fails)]
        )

    def test_awkward_questions(self) -> None:
        for question in AWKWARD:
            word = self.make_filter()(self.make_proposal(question))
            assert type(word) is bool, (
                f"{shown(question)} got {word!r}: any question gets True or False"
            )

    def test_its_reason_code_is_free(self) -> None:
        assert self.reason not in RESERVED, (
            f"the reason code {self.reason!r} is the game's own: choose another one"
        )


class NoiseSourceTests:
    """Tests a :class:`~ssp_env.game.noise.NoiseSource`."""

    corpus: Sequence[Document] = PASSAGES
    """At least four passages."""

    def make_noise(self) -> NoiseSource:
        """The noise source to be tested."""
        missing("make_noise(self)")

    def test_noise_documents_say_where_they_come_from(self) -> None:
        for item in self._draw(3):
            assert isinstance(item, NoiseDocument), (
                f"noise is made of NoiseDocuments, not {type(item).__name__}"
            )
            assert isinstance(item.document, Document), (
                f"NoiseDocument.document is a Document, not {item.document!r}"
            )
            assert isinstance(item.origin, str), (
                f"NoiseDocument.origin is a string, not {item.origin!r}"
            )

    def test_none_of_its_own(self) -> None:
        own = self.corpus[:2]
        for seed in range(20):
            ids = {item.document.id for item in self._draw(3, own, seed=seed)}

            shared = ids & {document.id for document in own}
            assert not shared, (
                f"noise held {sorted(shared)}, which the game's own proposer retrieved: leave "
                f"out own"
            )

    def test_at_most_count_and_none_twice(self) -> None:
        for count in (0, 1, 2, 50):
            noise = self._draw(count)
            assert len(noise) <= count, (
                f"at most count = {count} documents, but there were {len(noise)}"
            )

            ids = [item.document.id for item in noise]
            assert len(set(ids)) == len(ids), (
                f"noise held a document twice: {ids}; draw without replacement"
            )

    def test_poor_surroundings(self) -> None:
        """No other games, nothing retrieved, or nothing that is not the game's own."""
        assert len(self._draw(2, (), ())) <= 2

        everything = self._draw(2, self.corpus, [(1, document) for document in self.corpus])
        assert len(everything) == 0, (
            f"every document is the game's own, and yet noise held {everything}"
        )

    def test_all_randomness_comes_from_rng(self) -> None:

        drawn = []
        for seed in (1, 2):
            # Seeded differently, so that a source that uses global randomness gives itself away.
            random.seed(seed)
            np.random.seed(seed)

            drawn.append(self._draw(3, seed=7))
        assert drawn[0] == drawn[1], (
            "the same rng has to draw the same noise: use no other source of randomness"
        )

    def test_arguments_stay_as_they_are(self) -> None:
        own, others, corpus = list(self.corpus[:1]), [(1, self.corpus[1])], list(self.corpus)

        self.make_noise()(np.random.default_rng(0), 3, own, others, corpus)
        assert (own, others, corpus) == (
            [self.corpus[0]],
            [(1, self.corpus[1])],
            list(self.corpus),
        ), "the noise source changed its arguments: copy them first"

    def _draw(
        self,
        count: int,
        own: Sequence[Document] | None = None,
        others: Sequence[tuple[int, Document]] | None = None,
        seed: int = 0,
    ) -> tuple[NoiseDocument, ...]:
        own = self.corpus[:1] if own is None else own

        others = (
            [(1, self.corpus[1]), (2, self.corpus[1]), (2, self.corpus[0])]
            if others is None
            else others
        )

        return self.make_noise()(np.random.default_rng(seed), count, own, others, self.corpus)

"""A mixin for batch strategies."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from ssp_env.errors import UsageError
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import MOST_WAVES, BatchStrategy
from ssp_env.players import MiniPlayer
from ssp_env.testing.material import missing, small_rules
from ssp_env.types import GroundTruth


class BatchStrategyTests:
    """Tests a :class:`~ssp_env.game.strategies.BatchStrategy`."""

    def make_strategy(self) -> BatchStrategy:
        """A new strategy, always with the same settings."""
        missing("make_strategy(self)")

    def test_waves_come_to_an_end(self) -> None:
        strategy = self.make_strategy()
        strategy.begin_step()

        waves = 1
        while waves <= MOST_WAVES and strategy.wants_more(0, 8, waves):
            waves += 1
        assert waves <= MOST_WAVES, (
            f"wants_more still asks after {MOST_WAVES} waves without a valid question: bound the "
            f"waves, or a policy "
            "that only fails would keep a step from ending"
        )

    def test_a_full_batch_wants_no_more(self) -> None:
        strategy = self.make_strategy()
        strategy.begin_step()
        assert not strategy.wants_more(8, 8, 1), (
            "wants_more asks for more though all slots hold a valid question"
        )

    def test_at_most_as_many_as_are_empty(self) -> None:
        strategy, rng = self.make_strategy(), np.random.default_rng(0)
        for step in range(8):
            strategy.begin_step()
            for empty in (0, 3):
                drawn = strategy.fill(rng, _questions(step), empty)
                assert len(drawn) <= empty, (
                    f"fill gave {len(drawn)} questions for {empty} empty slots: give at most that"
                )
                wrong = [item for item in drawn if not isinstance(item, PooledQuestion)]
                assert not wrong, f"fill gives PooledQuestions, not {type(wrong[0]).__name__}"

    def test_all_randomness_comes_from_rng(self) -> None:
        first, second = (_play(self.make_strategy(), 0, 6) for _ in range(2))
        assert first == second, (
            "the same rng has to fill in the same questions: use no other source of randomness"
        )

    def test_a_state_goes_through_json(self) -> None:
        """A strategy that takes the state back goes on as the old one does."""
        strategy = self.make_strategy()
        _play(strategy, 0, 5)

        saved = strategy.get_state()

        try:
            text = json.dumps(saved)
        except TypeError as error:
            raise AssertionError(f"get_state() has to be plain data for JSON: {error}") from error

        fresh = self.make_strategy()

        fresh.set_state(json.loads(text))

        went_on, resumed = _play(strategy, 5, 6), _play(fresh, 5, 6)
        assert went_on == resumed, (
            "a strategy with the state set back goes on differently: put everything that decides "
            "into get_state()"
        )

        assert json.dumps(saved) == text, (
            "a state that was handed out changed afterwards: hand out a copy"
        )

    def test_rounds_end(self) -> None:
        """Rounds of the small world, with a proposer that fails every other time."""
        rules = small_rules(attempts=1)
        strategy, player = self.make_strategy(), MiniPlayer(rules.config.tags)
        for step in range(3):
            try:
                round_ = _play_round(rules, strategy, player, step)
            except UsageError as error:
                raise AssertionError(f"a round refuses this strategy: {error}") from error
            assert round_.done, "a round with this strategy does not end"


def _play_round(rules: Rules, strategy: BatchStrategy, player: MiniPlayer, seed: int) -> Round:
    answers = rules.world.answers

    round_ = Round(
        rules,
        lambda rng, count: [answers[int(rng.integers(len(answers)))] for _ in range(count)],
        4,
        [seed],
        strategy,
    )
    while pending := round_.pending():
        for turn, trajectory in enumerate(pending):
            if trajectory in [g.proposer for g in round_.games] and turn % 2:
                trajectory.feed_turn([])
            else:
                player.play([trajectory])
        round_.advance()
    return round_


def _questions(step: int) -> list[PooledQuestion]:
    return [
        PooledQuestion(f"question {step}-{i} ?", GroundTruth(f"t{i}", f"answer {i}", ("alias",)))
        for i in range(2)
    ]


def _play(
    strategy: BatchStrategy, first: int, steps: int
) -> list[tuple[bool, Sequence[PooledQuestion]]]:
    """What the strategy decides in a few steps."""
    decided: list[tuple[bool, Sequence[PooledQuestion]]] = []
    for step in range(first, first + steps):
        strategy.begin_step()
        more = bool(strategy.wants_more(2, 4, 1))
        decided.append((more, strategy.fill(np.random.default_rng(step), _questions(step), 2)))
    return decided

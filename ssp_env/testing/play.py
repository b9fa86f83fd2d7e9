"""Mixins for parts that take part in a game: player, noise source, batch strategy."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from ssp_env.envs.setup import set_up
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.noise import NoiseDocument, NoiseSource
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import MOST_SAMPLINGS, BatchStrategy
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.players import MiniPlayer
from ssp_env.players.base import Player
from ssp_env.testing.material import PASSAGES, check_unique, missing
from ssp_env.types import Document, GroundTruth, Role


class PlayerTests:
    """Tests a :class:`~ssp_env.players.base.Player` in every role."""

    setup: Mapping[str, Any] = {"world": "small"}
    """Keywords of its games, as every interface takes them (see
    :class:`~ssp_env.envs.setup.Setup`)."""
    games: int = 4

    def make_player(self, rules: Rules) -> Player:
        missing("make_player(self, rules)")

    def test_every_turn_is_written(self) -> None:
        batch = self._begin(self.games)
        player = self.make_player(batch.rules)
        player.play([])
        while pending := batch.pending():
            self._play(player, pending)
            batch.advance()

    def test_it_writes_in_its_own_trajectories_alone(self) -> None:
        batch = self._begin(2)
        mine, other = batch.pending()

        prompt, before = list(mine.ids), list(other.ids)
        self.make_player(batch.rules).play([mine])
        assert other.ids == before, "the player wrote in a trajectory that it was not handed"
        assert mine.ids[: len(prompt)] == prompt, "the player changed the prompt"

    def test_verifier_and_closed_book(self) -> None:
        rules = self._begin(1).rules
        question, documents = "what is it ?", tuple(rules.corpus[:2])
        prompt = rules.prompts.verifier(question, documents, rules.config.max_document_tokens)
        verifies = Trajectory(rules.limits[Role.VERIFIER], prompt, question, documents)
        prompt = rules.prompts.closed_book(question)
        remembers = Trajectory(rules.limits[Role.CLOSED_BOOK], prompt, question)
        self._play(self.make_player(rules), [verifies, remembers])

    def _play(self, player: Player, pending: Sequence[Trajectory]) -> None:
        player.play(pending)
        for trajectory in pending:
            assert trajectory.waiting is not Waiting.POLICY, (
                f"the {trajectory.role}'s turn is not finished: write whole turns, with feed_turn()"
            )

    def _begin(self, games: int) -> GameBatch:
        """Games by the rules of ``setup``, with both of the gates that a policy plays in."""
        # Room for both gates, whatever the budgets of the world are.
        gates = {"verifier": "policy", "closed_book": True, "max_prompt_tokens": 20_000}
        game: dict[str, Any] = {"max_response_tokens": 2_000, **self.setup.get("game", {}), **gates}
        setup: Any = {**self.setup, "game": game}
        rules = set_up(setup).rules
        return GameBatch(rules, answers_of(rules.world), games, [0])


class NoiseSourceTests:
    """Tests a :class:`~ssp_env.game.noise.NoiseSource`."""

    corpus: Sequence[Document] = PASSAGES
    """At least four passages."""

    def make_noise(self) -> NoiseSource:
        missing("make_noise(self)")

    def test_at_most_count_and_none_twice(self) -> None:
        for count in (0, 1, 2, 50):
            noise = self._draw(count)
            assert len(noise) <= count, f"at most {count} documents, but there were {len(noise)}"
            check_unique("noise document", [item.document.id for item in noise])

    def test_none_of_its_own(self) -> None:
        """Also where nothing else is there."""
        evidence = self.corpus[:2]
        for seed in range(20):
            drawn = {item.document.id for item in self._draw(3, evidence, seed=seed)}
            shared = drawn & {document.id for document in evidence}
            assert not shared, f"noise held {sorted(shared)} of the proposer's: leave out own"
        everything = self._draw(2, self.corpus, [(1, document) for document in self.corpus])
        assert len(everything) == 0, f"every document is the game's own, but noise: {everything}"

    def test_all_randomness_comes_from_rng(self) -> None:
        drawn = []
        for seed in (1, 2):
            # Seeded differently, so that a source that uses global randomness gives itself away.
            random.seed(seed)
            np.random.seed(seed)
            drawn.append(self._draw(3, seed=7))
        assert drawn[0] == drawn[1], "the same rng has to draw the same noise"

    def _draw(
        self,
        count: int,
        evidence: Sequence[Document] | None = None,
        others: Sequence[tuple[int, Document]] | None = None,
        seed: int = 0,
    ) -> tuple[NoiseDocument, ...]:
        """Noise for a game; the arguments have to stay as they are."""
        second, first = self.corpus[1], self.corpus[0]
        others = [(1, second), (2, second), (2, first)] if others is None else others
        given = [*(self.corpus[:1] if evidence is None else evidence)], [*others], [*self.corpus]
        before = deepcopy(given)
        drawn = self.make_noise()(np.random.default_rng(seed), count, *given)
        assert given == before, "the noise source changed its arguments"
        return drawn


class BatchStrategyTests:
    """Tests a :class:`~ssp_env.game.strategies.BatchStrategy`."""

    def make_strategy(self) -> BatchStrategy:
        """A new strategy, always with the same settings."""
        missing("make_strategy(self)")

    def test_sampling_comes_to_an_end(self) -> None:
        strategy = self.make_strategy()
        strategy.begin_step()
        full = strategy.wants_more(8, 8, 1)
        assert not full, "wants_more asks for more though no game is missing"
        assert any(
            not strategy.wants_more(0, 8, count) for count in range(1, MOST_SAMPLINGS + 1)
        ), (
            f"wants_more still asks after {MOST_SAMPLINGS} samplings without a valid "
            f"question: bound them, or a policy that only fails would keep a step from ending"
        )

    def test_at_most_as_many_as_are_missing(self) -> None:
        strategy, rng = self.make_strategy(), np.random.default_rng(0)
        for step in range(8):
            strategy.begin_step()
            for count in (0, 3):
                drawn = strategy.fill(rng, _questions(step), count)
                assert len(drawn) <= count, f"fill gave {len(drawn)} where {count} are missing"
            strategy.keep(_questions(step))

    def test_all_randomness_comes_from_rng(self) -> None:
        first, second = (_decide(self.make_strategy(), 0, 6) for _ in range(2))
        assert first == second, "the same rng has to fill in the same questions"

    def test_a_state_goes_through_json(self) -> None:
        """A strategy that takes the state back decides as the old one does."""
        strategy, fresh = self.make_strategy(), self.make_strategy()
        _decide(strategy, 0, 5)

        saved = strategy.get_state()
        text = json.dumps(saved)
        fresh.set_state(json.loads(text))
        assert _decide(strategy, 5, 6) == _decide(fresh, 5, 6), (
            "a strategy with the state set back decides differently: put all of it into get_state()"
        )
        assert json.dumps(saved) == text, "a state that was handed out changed afterwards: copy it"

    def test_batches_end(self) -> None:
        """Batches of games in the small world, with a proposer that fails every other time."""
        rules = set_up({"world": "small", "game": {"attempts": 1}}).rules
        strategy, player = self.make_strategy(), MiniPlayer(rules.tags)
        for step in range(3):
            batch = GameBatch(rules, answers_of(rules.world), 4, [step], strategy)
            while pending := batch.pending():
                for turn, trajectory in enumerate(pending):
                    if trajectory.role is Role.PROPOSER and turn % 2:
                        trajectory.feed_turn([])
                    else:
                        player.play([trajectory])
                batch.advance()
            assert batch.done, "a batch of games with this strategy does not end"


def _questions(step: int) -> list[PooledQuestion]:
    return [
        PooledQuestion(f"question {step}-{i} ?", GroundTruth(f"t{i}", f"answer {i}", ("alias",)))
        for i in range(2)
    ]


def _decide(
    strategy: BatchStrategy, first: int, steps: int
) -> list[tuple[bool, Sequence[PooledQuestion]]]:
    decided: list[tuple[bool, Sequence[PooledQuestion]]] = []
    for step in range(first, first + steps):
        strategy.begin_step()
        more = bool(strategy.wants_more(2, 4, 1))
        # A new generator for every step: what is drawn earlier does not shift what is drawn later.
        decided.append((more, strategy.fill(np.random.default_rng(step), _questions(step), 2)))
        strategy.keep(_questions(step))
    return decided

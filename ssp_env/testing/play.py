"""Mixins for players and for variants of the environment."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from pettingzoo import AECEnv

from ssp_env.doors.dealer import Dealer
from ssp_env.doors.setup import set_up
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.players.base import Player
from ssp_env.testing.material import missing
from ssp_env.types import Role


class PlayerTests:
    """Tests a :class:`~ssp_env.players.base.Player` in every role."""

    setup: Mapping[str, Any] = {"world": "small"}
    """Where it is to play: what the doors take (see :class:`~ssp_env.doors.setup.Setup`)."""
    games: int = 4
    """How many games each test plays."""

    def make_player(self, rules: Rules) -> Player:
        """The player to be tested."""
        missing("make_player(self, rules)")

    def test_every_turn_is_written(self) -> None:
        rules = self._rules()

        player = self.make_player(rules)
        for seed in range(self.games):
            round_ = self._deal(rules, seed)
            while pending := round_.pending():
                player.play(pending)
                for trajectory in pending:
                    _check_written(trajectory)
                round_.advance()
            assert round_.games[0].outcome is not Outcome.PENDING

    def test_others_are_left_alone(self) -> None:
        """Of two games, only the one that was handed over is played."""
        rules = self._rules()
        mine, other = self._deal(rules, 0).pending()[0], self._deal(rules, 1).pending()[0]

        before = list(other.ids)
        self.make_player(rules).play([mine])
        assert other.ids == before, "the player wrote in a trajectory that it was not handed"

    def test_what_was_written_stays(self) -> None:
        rules = self._rules()
        (trajectory,) = self._deal(rules, 0).pending()

        prompt = list(trajectory.ids)
        self.make_player(rules).play([trajectory])
        assert trajectory.ids[: len(prompt)] == prompt, (
            "the player changed the prompt: write with feed_turn() alone"
        )

    def test_nothing_to_play(self) -> None:
        self.make_player(self._rules()).play([])

    def test_verifier_and_closed_book(self) -> None:
        """Those two roles get one turn and no search."""
        rules = self._rules()
        player, question = self.make_player(rules), "what is it ?"
        prompts, config, documents = rules.prompts, rules.config, tuple(rules.corpus[:2])

        ids = {
            Role.VERIFIER: prompts.verifier(question, documents, config.max_document_tokens),
            Role.CLOSED_BOOK: prompts.closed_book(question),
        }
        for role, prompt in ids.items():
            trajectory = Trajectory(
                rules.limits[role], prompt, question, documents if role is Role.VERIFIER else ()
            )
            player.play([trajectory])
            _check_written(trajectory)

    def _rules(self) -> Rules:
        """The rules of ``setup``, with both of the gates that a policy plays in."""
        rules = set_up(dict(self.setup)).rules  # type: ignore[arg-type]
        sizes = {
            "max_prompt_tokens": 20_000,
            "max_response_tokens": max(2_000, rules.config.max_response_tokens),
        }

        game = rules.config.replace(verifier="policy", closed_book=True, **sizes)
        return set_up({**self.setup, "game": game, "world": rules.world, "world_options": {}}).rules  # type: ignore[typeddict-item]

    def _deal(self, rules: Rules, seed: int) -> Round:
        dealer = Dealer(rules)
        dealer.seed(seed)
        return dealer.deal()


def _check_written(trajectory: Trajectory) -> None:
    assert trajectory.waiting is not Waiting.POLICY, (
        f"play() returned, but the {trajectory.role}'s turn is not finished: write a whole turn "
        f"in each trajectory, "
        "with feed_turn()"
    )


class EnvTests:
    """Tests a variant of the AEC environment: PettingZoo's suites, and random games to the end."""

    num_cycles: int = 200
    """Steps that PettingZoo's suites take."""

    def make_env(self) -> AECEnv:
        """A new environment, always with the same settings."""
        missing("make_env(self)")

    # Imported where they are used: PettingZoo's suites bring pytest along.

    def test_api(self) -> None:
        from pettingzoo.test import api_test

        with _quiet():
            api_test(self.make_env(), num_cycles=self.num_cycles)

    def test_seeds(self) -> None:
        from pettingzoo.test import seed_test

        with _quiet():
            seed_test(self.make_env, num_cycles=self.num_cycles)

    def test_random_games_end(self) -> None:
        env = self.make_env()
        for seed in range(3):
            env.reset(seed=seed)
            rng, paid = np.random.default_rng(seed), dict.fromkeys(env.possible_agents, 0.0)
            for agent in env.agent_iter(max_iter=1_000_000):
                observation, reward, terminated, truncated, info = env.last()
                assert env.observation_space(agent).contains(observation), (
                    f"{agent} saw something outside its observation space: check shapes, dtypes "
                    f"and bounds"
                )

                paid[agent] += reward
                if terminated or truncated:
                    self._check_end(env, agent, info)
                    env.step(None)
                    continue

                legal = np.flatnonzero(observation["action_mask"])
                assert len(legal), f"{agent} is to act, but its action_mask allows nothing"
                env.step(int(rng.choice(legal)))

            assert not env.agents, "a random game did not end within a million steps"
            assert all(math.isfinite(reward) for reward in paid.values()), (
                f"rewards are finite numbers, not {paid}"
            )

    def _check_end(self, env: AECEnv, agent: str, info: Mapping[str, Any]) -> None:
        ends = [(env.terminations[a], env.truncations[a]) for a in env.agents]
        assert len(set(ends)) == 1, (
            f"both agents end together and alike, but (terminated, truncated) are {ends}"
        )

        known = {outcome.value for outcome in Outcome} - {Outcome.PENDING.value}
        assert info.get("outcome") in known, (
            f"{agent}'s last info names no outcome: {info.get('outcome')!r}"
        )

        void = info["outcome"] == Outcome.VOID.value
        assert env.truncations[agent] == void, "a void game is truncated; any other one terminates"


@contextlib.contextmanager
def _quiet() -> Any:
    """Without PettingZoo's printing and its warnings about dict observations."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.filterwarnings("ignore", module="pettingzoo")
        yield

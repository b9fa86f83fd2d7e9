"""Games one after another: seeds and options decide them alike behind every interface, players may
fail, and games that end before one's turn are begun anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from all_interfaces import ScriptPlayer
from scripted import by_role, propose

import ssp_env
from ssp_env.envs.driver import GameDriver
from ssp_env.envs.rllib import SearchSelfPlayMultiAgentEnv
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.game import Game
from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import MiniPlayer
from ssp_env.types import GroundTruth
from ssp_env.worlds.mini import MiniWorld, SmallWorld

SMALL = SmallWorld()

INTERFACES: dict[str, tuple[Callable[..., Any], Any]] = {
    "env": (ssp_env.env, 5),
    "raw_env": (ssp_env.raw_env, 5),
    "rllib": (SearchSelfPlayMultiAgentEnv, {"proposer": 5}),
    "SolverEnv": (ssp_env.SolverEnv, 5),
    "ProposerEnv": (ssp_env.ProposerEnv, 5),
    "TurnVectorEnv": (lambda **setup: ssp_env.TurnVectorEnv(2, **setup), [[5], [5]]),
    "TextGame": (ssp_env.TextGame, "what"),
    "TextRole": (ssp_env.TextRole, "what"),
}
"""Every interface, from a setup, and a proper action of it."""
OWN = [name for name in INTERFACES if name != "env"]
"""Interfaces whose calls no wrapper checks."""


def made(interface: str, **setup: Any) -> Any:
    setup = {"world": SMALL, **setup}
    make = INTERFACES[interface][0]
    return make(setup) if interface == "rllib" else make(**setup)


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_interface_names_what_is_wrong(interface: str) -> None:
    empty = SmallWorld()
    empty.answers = ()
    with pytest.raises(ConfigError, match=r"retreiver = None.*did you mean 'retriever'"):
        made(interface, retreiver=None)
    with pytest.raises(ConfigError, match=r"world.answers = .*give it some, or play questions"):
        made(interface, world=empty)


@pytest.mark.parametrize("interface", OWN)
def test_steps_at_the_wrong_time(interface: str) -> None:
    env, action = made(interface), INTERFACES[interface][1]
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        env.step(action)
    if "Vector" in interface:  # one begins anew, the other takes no turn
        return

    env.reset(seed=0)
    if interface == "rllib":
        with pytest.raises(UsageError, match="the turn of 'proposer'"):
            env.step({"solver": 5})
    end = "" if "Text" in interface else env.rules.tokenizer.eos_id
    while env.game.outcome == "pending":
        env.step({"proposer": end} if interface == "rllib" else end)
    env.agents = []  # after PettingZoo's dead steps
    with pytest.raises(UsageError, match=r"the game is over: call reset\(\)"):
        env.step(action)
    env.reset()


PLAYED = ("env", "ProposerEnv", "SolverEnv", "TextGame", "TextRole", "rllib")


def game_of(interface: Any) -> Game:
    return getattr(interface, "unwrapped", interface).game  # type: ignore[no-any-return]


def begun(game: Game) -> tuple[Any, ...]:
    return game.initial_state, game.question, [t.ids for t in game.trajectories()]


@pytest.mark.parametrize("interface", PLAYED)
def test_a_seed_decides_this_and_the_following_games(mini: MiniWorld, interface: str) -> None:
    def games(env: Any, seed: Any) -> list[Any]:
        told = []
        for own in (seed, None, None):
            env.reset(seed=own)
            told.append(begun(game_of(env)))
        return told

    env, other = made(interface, world=mini), made(interface, world=mini)
    first = games(env, 11)
    assert games(env, 11) == games(other, 11) == first
    if not isinstance(env, gym.Env):  # Gymnasium itself wants a plain int
        assert games(other, np.int64(11)) == first
    assert games(env, 12) != first
    assert len({str(told) for told in first}) == 3


def test_batches_deal_what_single_envs_deal(mini: MiniWorld) -> None:
    batch = ssp_env.TurnVectorEnv(3, world=mini)
    drivers = [GameDriver(batch.rules) for _ in range(3)]
    for again in (2**63 - 3, None):
        batch.reset(seed=again)
        for i, (game, driver) in enumerate(zip(batch.games, drivers, strict=True)):
            driver.reset(None if again is None else again + i)
            assert begun(game) == begun(driver.game)


@pytest.mark.parametrize("interface", PLAYED)
def test_options_name_the_subject(mini: MiniWorld, interface: str) -> None:
    env, truth = made(interface, world=mini), mini.answers[4]
    env.reset(seed=1, options={"answer": truth})
    assert game_of(env).truth is truth
    env.reset(seed=1, options={"answer": truth.answer})
    assert game_of(env).truth == GroundTruth("given", truth.answer)
    env.reset(options={"answer": None})
    assert game_of(env).truth in mini.answers
    if interface != "ProposerEnv":
        question = mini.questions(0, 1)[0]
        env.reset(options={"question": question})
        assert game_of(env).question == question.text


def test_a_game_that_is_dealt_anew_is_about_the_same_answer(mini: MiniWorld) -> None:
    """A proposer that fails now and then must not change what was asked for."""
    played = []

    def sometimes(trajectory: Trajectory) -> str:
        played.append(trajectory.about)
        return "<question> bad </question>" if len(played) < 4 else str(propose(1)(trajectory))

    env = ssp_env.SolverEnv(ScriptPlayer(sometimes), world=mini)
    env.reset(seed=1, options={"answer": mini.answers[7]})
    assert set(played) == {mini.answers[7].answer}
    assert len(played) == 5, "three failed proposals, a search, a question"


class Failing(MiniPlayer):
    """Cannot play games about certain answers, or in certain roles."""

    def __init__(self, hopeless: set[str]) -> None:
        super().__init__(Tags())
        self.hopeless = hopeless

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        if any({trajectory.about, trajectory.role} & self.hopeless for trajectory in trajectories):
            raise ServiceError("engine", "out of memory")
        super().play(trajectories)


def test_a_player_that_fails_voids_the_games_it_was_asked_about(mini: MiniWorld) -> None:
    probe, answers = ssp_env.SolverEnv(world=mini), []
    for seed in (1, None, None):
        probe.reset(seed=seed)
        answers.append(probe.game.truth.answer)
    env = ssp_env.SolverEnv(Failing(set(answers[:2])), world=mini)
    env.reset(seed=1)
    assert env.game.truth.answer == answers[2], "the first two games are void, and begun anew"

    text = ssp_env.TextRole("proposer", Failing({"solver"}), world=mini)
    text.reset(seed=1)
    flags, script = [False, False], by_role(propose(1))
    while not any(flags):
        (trajectory,) = text.game.trajectories()
        _, reward, *flags, info = text.step(str(script(trajectory)))
    assert (reward, *flags) == (0.0, False, True)
    assert (info["outcome"], info["reason"]) == ("void", "engine")


def test_what_a_player_wrote_before_it_failed_stays(mini: MiniWorld) -> None:
    class Cut(MiniPlayer):
        def play(self, trajectories: Sequence[Trajectory]) -> None:
            super().play(trajectories[:2])
            if trajectories[2:]:
                raise ServiceError("engine", "out of memory")

    text = ssp_env.TextRole("proposer", Cut(Tags()), world=mini, game={"attempts": 3})
    text.reset(seed=1)
    while not text.game.trajectories()[0].done:
        text.step(str(propose(1)(text.game.trajectories()[0])))
    assert text.game.outcome == "valid"
    assert [attempt.outage is not None for attempt in text.game.attempts] == [False, False, True]

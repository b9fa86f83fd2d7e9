"""The token-by-token door: PettingZoo's own suites, spaces, rewards, errors, and the same game as
through rounds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scripted import MINI, Script, by_role, propose

import ssp_env
from ssp_env.doors.aec import PROPOSER, SOLVER, SearchSelfPlayEnv
from ssp_env.tokenizers import Tokenizer
from ssp_env.types import World
from ssp_env.worlds.mini import MiniWorld

SMALL = MINI.replace(max_response_tokens=60)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """PettingZoo warns about dict observations and agents' names, which are as they should be."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pettingzoo")
        yield


def make(mini: World, tokenizer: Tokenizer | None = None, **changes: Any) -> SearchSelfPlayEnv:
    parts = {name: changes.pop(name) for name in ("retriever", "render_mode") if name in changes}
    return ssp_env.raw_env(world=mini, tokenizer=tokenizer, game=MINI.replace(**changes), **parts)


def drive(env: SearchSelfPlayEnv, script: Script) -> None:
    """Plays a game to the last dead step."""
    while env.agents:
        if env.terminations[env.agent_selection] or env.truncations[env.agent_selection]:
            env.step(None)
            continue
        trajectory = next(t for t in env.game.trajectories() if not t.done)
        written = script(trajectory)
        for token in env.rules.tokenizer.encode(written) if isinstance(written, str) else written:
            env.step(token)


# -- spaces and observations -------------------------------------------------------------------


def test_observations_are_the_agents_trajectory(mini: MiniWorld) -> None:
    env = make(mini, attempts=2)
    env.reset(seed=1)
    checked = 0

    def checking(trajectory: Any) -> Any:
        nonlocal checked
        observation = env.observe(env.agent_selection)
        assert env.observation_space(PROPOSER).contains(observation)
        tokens = observation["observation"]
        assert tokens[: len(trajectory.ids)].tolist() == trajectory.ids
        assert set(tokens[len(trajectory.ids) :].tolist()) == {env.rules.tokenizer.pad_id}
        tokens[:] = 9  # an observation is a copy: writing into it does no harm
        checked += 1
        return by_role(propose(2))(trajectory)

    drive(env, checking)
    assert checked >= 6
    assert env.observe(SOLVER)["observation"].tolist()[
        : len(env.game.attempts[1].trajectory.ids)
    ] == (env.game.attempts[1].trajectory.ids)


# -- games -------------------------------------------------------------------------------------


def test_an_invalid_game(mini: MiniWorld) -> None:
    env = make(mini, invalid_reward=-0.5)
    env.reset(seed=1)
    env.step(env.rules.tokenizer.eos_id)
    assert env.terminations == {PROPOSER: True, SOLVER: True}, "both end together"
    assert env.rewards == {PROPOSER: -0.5, SOLVER: 0.0}
    assert env.last()[1] == -0.5
    assert (env.infos[SOLVER]["outcome"], env.infos[SOLVER]["reason"]) == ("invalid", "format")


# -- seeds and options -------------------------------------------------------------------------


# -- calls that do not fit ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [int, np.int32, np.int64, np.uint16, np.array])
def test_any_whole_number_is_an_action(mini: MiniWorld, kind: Any) -> None:
    env = make(mini)
    env.reset(seed=1)
    env.step(kind(20))
    assert env.game.proposer is not None
    assert env.game.proposer.ids[-1] == 20
    assert type(env.game.proposer.ids[-1]) is int


def test_render(mini: MiniWorld, capsys: pytest.CaptureFixture[str]) -> None:
    env = make(mini, render_mode="ansi")
    env.reset(seed=1)
    drive(env, by_role(propose()))
    text = env.render()
    assert isinstance(text, str)
    assert str(env.game.question) in text
    assert capsys.readouterr().out == ""
    env = make(mini, render_mode="human")
    env.reset(seed=1)
    env.step(20)
    assert capsys.readouterr().out == "", "only whole turns are shown"
    env.step(1)
    assert "outcome: invalid (format)" in capsys.readouterr().out


# -- the same game through every door ----------------------------------------------------------

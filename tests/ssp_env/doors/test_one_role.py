"""Token by token: what an agent sees and is paid, rendering, and vectors of single envs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import by_role, propose, solve, turn

import ssp_env
from ssp_env.errors import ConfigError, UsageError
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld


def test_observations_are_the_agents_trajectory(mini: MiniWorld) -> None:
    env, script = ssp_env.raw_env(world=mini, game={"attempts": 2}), by_role(propose(2), solve)
    env.reset(seed=1)
    assert np.unique(env.observe("solver")["observation"]).tolist() == [0, 1], "nothing, padded"
    turns = 0
    while (trajectory := env.trajectory) is not None:
        observation = env.observe(env.agent_selection)
        assert observation in env.observation_space(env.agent_selection)
        tokens, written = observation["observation"], len(trajectory.ids)
        assert tokens[:written].tolist() == trajectory.ids
        assert set(tokens[written:].tolist()) == {env.rules.tokenizer.pad_id}
        tokens[:] = 9  # an observation is a copy: writing into it does no harm
        for token in turn(trajectory, script):
            env.step(token)
        turns += 1
    assert turns >= 6
    assert env.rewards == {"proposer": 0.0, "solver": 1.0}
    last = env.game.attempts[1].trajectory.ids
    assert env.observe("solver")["observation"][: len(last)].tolist() == last


@pytest.mark.parametrize("kind", [int, np.int64, np.uint16, np.array])
def test_any_whole_number_is_an_action(mini: MiniWorld, kind: Any) -> None:
    env = ssp_env.raw_env(world=mini)
    env.reset(seed=1)
    env.step(kind(20))
    assert env.trajectory is not None
    assert env.trajectory.ids[-1] == 20
    assert type(env.trajectory.ids[-1]) is int


def test_rendering(mini: MiniWorld, capsys: pytest.CaptureFixture[str]) -> None:
    env = ssp_env.SolverEnv(world=mini, render_mode="ansi")
    env.reset(seed=1)
    assert str(env.game.question) in str(env.render())
    assert capsys.readouterr().out == ""

    human = ssp_env.raw_env(world=mini, render_mode="human", game={"invalid_reward": -0.5})
    human.reset(seed=1)
    human.step(20)
    assert capsys.readouterr().out == "", "only whole turns are shown"
    human.step(human.rules.tokenizer.eos_id)
    assert "outcome: invalid (format)" in capsys.readouterr().out
    assert human.terminations == {"proposer": True, "solver": True}, "both end together"
    assert human.rewards == {"proposer": -0.5, "solver": 0.0}
    assert human.last()[1] == -0.5


def test_a_solver_has_one_attempt_and_a_proposer_is_paid_for_all(mini: MiniWorld) -> None:
    env = ssp_env.SolverEnv(world=mini)
    observation, info = env.reset(seed=1)
    assert (info["role"], info["attempts"]) == ("solver", 1)
    assert "solve" in env.rules.tokenizer.decode(observation["observation"][:3].tolist())

    proposer = ssp_env.ProposerEnv(world=mini, game={"attempts": 3})
    proposer.reset(seed=1)
    while not proposer.episode.over:
        for token in turn(proposer.episode.turn, propose(1)):
            step = proposer.step(token)
    assert step[1:4] == (0.0, True, False), "the scripted solver finds every answer"
    assert len(proposer.game.attempts) == 3


# -- vectors -----------------------------------------------------------------------------------


KINDS = {
    "Solver": (ssp_env.SolverEnv, ssp_env.SolverVectorEnv),
    "Proposer": (ssp_env.ProposerEnv, ssp_env.ProposerVectorEnv),
}


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("kind", ["small", "words", "bytes"])
@pytest.mark.parametrize("role", KINDS)
def test_the_same_as_a_vector_of_single_envs(
    mini: MiniWorld, role: str, kind: str, mode: AutoresetMode
) -> None:
    setup: dict[str, Any] = {
        "small": {"world": open_world("small")},
        "words": {"world": mini, "game": {"max_response_tokens": 60}},
        "bytes": {
            "world": mini,
            "tokenizer": ByteTokenizer(),
            "game": {"max_prompt_tokens": 600, "max_response_tokens": 40},
        },
    }[kind]
    if kind == "bytes" and role == "Solver":  # the scripted proposer has no room there
        setup["questions"] = mini.questions(0, 5)
    setup["retriever"] = BM25Retriever(setup["world"].corpus)
    single, vector = KINDS[role]
    ours = vector(3, autoreset_mode=mode, **setup)
    theirs = SyncVectorEnv([lambda: single(**setup)] * 3, autoreset_mode=mode)
    for name in ("observation_space", "action_space", "single_observation_space"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.metadata["autoreset_mode"] is mode

    a, b = ours.reset(seed=[3, 1, 4]), theirs.reset(seed=[3, 1, 4])
    assert data_equivalence(a, b, exact=True)
    ours.action_space.seed(5)
    ended = 0
    for step in range(150):
        actions = ours.action_space.sample(tuple(a[0]["action_mask"]))
        if step % 10 == 0 and kind != "small":
            actions[step // 10 % 3] = 1 if kind == "words" else 256
        a, b = ours.step(actions), theirs.step(actions)
        assert data_equivalence(a, b, exact=True)
        over = a[2] | a[3]
        ended += over.sum()
        if mode is AutoresetMode.DISABLED and over.any():
            with pytest.raises(UsageError, match="reset_mask"):
                ours.step(actions)
            seeds = [7, None, step]
            a = ours.reset(seed=seeds, options={"reset_mask": over})
            b = theirs.reset(seed=seeds, options={"reset_mask": over})
            assert data_equivalence(a, b, exact=True)
    assert ended > 5, "the games are no test if none of them ends"


def test_gymnasium_makes_vectors_in_every_mode() -> None:
    for mode in AutoresetMode:
        envs = gymnasium.make_vec("ssp/Solver-v0", num_envs=2, world="small", autoreset_mode=mode)
        assert isinstance(envs.unwrapped, ssp_env.SolverVectorEnv)
        assert envs.metadata["autoreset_mode"] is mode
    with pytest.raises(ConfigError, match="SameStep"):
        gymnasium.make_vec("ssp/Solver-v0", num_envs=2, world="small", autoreset_mode="never")
    with pytest.raises(UsageError, match="2 booleans"):
        envs.reset(options={"reset_mask": np.zeros(2, dtype=bool)})

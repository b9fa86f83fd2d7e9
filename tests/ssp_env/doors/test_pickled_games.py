"""A game that has begun can be pickled, and goes on alike in the copy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import ssp_env
from ssp_env.doors.one_role import ProposerEnv

Told = list[Any]


def aec(env: Any, steps: int) -> Told:
    """Plays legal tokens; what was seen, paid and told on the way."""
    told: Told = []
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.last()
        told.append(
            (env.agent_selection, observation["observation"].tolist(), reward, terminated, info)
        )
        if terminated or truncated:
            env.reset()
        else:
            env.step(_legal(observation["action_mask"], len(told)))
    return told


def one_role(env: Any, steps: int) -> Told:
    told: Told = []
    for i in range(steps):
        observation, reward, terminated, _, _ = env.step(_legal(env.unwrapped.action_masks(), i))
        told.append((observation["observation"].tolist(), reward, terminated))
        if terminated:
            env.reset()
    return told


def many(envs: Any, steps: int) -> Told:
    told: Told = []
    masks = np.stack([env.action_masks() for env in envs.unwrapped._envs])
    for i in range(steps):
        observations, rewards, terminated, _, _ = envs.step([_legal(mask, i) for mask in masks])
        masks = observations["action_mask"]
        told.append((observations["observation"].tolist(), rewards.tolist(), terminated.tolist()))
    return told


def _legal(mask: Any, i: int) -> int:
    legal = np.flatnonzero(mask)
    return int(legal[i % len(legal)])


@pytest.mark.parametrize(
    ("make", "play"),
    [
        (lambda: ssp_env.env(world="small"), aec),
        (lambda: ssp_env.raw_env(world="mini", view={"window": 16}), aec),
        (lambda: gymnasium.make("ssp/Solver-v0", world="small"), one_role),
        (lambda: gymnasium.make("ssp/Proposer-v0", world="small"), one_role),
        (lambda: gymnasium.make_vec("ssp/Solver-v0", num_envs=3, world="small"), many),
    ],
)
@pytest.mark.parametrize("about", ["drawn", "answer", "question"])
def test_both_go_on_alike(
    make: Callable[[], Any], play: Callable[[Any, int], Told], about: str
) -> None:
    env = make()
    world = env.unwrapped.rules.world
    options = {
        "answer": {"answer": world.answers[3]},
        "question": {"question": world.questions(seed=0)[3]},
    }
    if about == "question" and env.unwrapped.__class__ is ProposerEnv:
        pytest.skip("the solver's questions leave the proposer nothing to do")
    env.reset(seed=4, options=options.get(about))
    play(env, 3)
    copy = pickle.loads(pickle.dumps(env))
    assert play(copy, 60) == play(env, 60)


def test_whole_turns_and_texts() -> None:
    batch, text = ssp_env.GameBatch(2, world="small"), ssp_env.TextGame(world="small")
    batch.reset(seed=1)
    text.reset(seed=1)
    for games in (batch, pickle.loads(pickle.dumps(batch))):
        end = games.rules.tokenizer.eos_id
        games.step([[end]] * 2)
        assert [info["reason"] for info in games.infos] == ["format"] * 2
    for game in (text, pickle.loads(pickle.dumps(text))):
        assert game.step("what")[4]["reason"] == "format"

"""What ``reset`` takes: options by name, answers that can be asked about, seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from hf_tokenizers import word_level

import ssp_env
from ssp_env.doors import rllib
from ssp_env.errors import UsageError
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import GroundTruth

DOORS: dict[str, Callable[..., Any]] = {
    "env": ssp_env.env,
    "solver": lambda **setup: gymnasium.make("ssp/Solver-v0", **setup),
    "proposer": ssp_env.ProposerEnv,
    "solvers": lambda **setup: gymnasium.make_vec("ssp/Solver-v0", num_envs=2, **setup),
    "text": ssp_env.TextGame,
    "text role": ssp_env.TextRole,
    "rllib": lambda **setup: rllib.SearchSelfPlayMultiAgentEnv(setup),
}
"""Every door that takes options, from a setup."""


def small(**setup: Any) -> ssp_env.SearchSelfPlayEnv:
    return ssp_env.raw_env(world="small", **setup)


@pytest.mark.parametrize("name", DOORS)
def test_an_unknown_option_is_refused_behind_every_door(name: str) -> None:
    env = DOORS[name](world="small")
    with pytest.raises(
        UsageError, match=r"options\['answr'\]: there is no such option; did you mean 'answer'"
    ):
        env.reset(seed=0, options={"answr": "x"})
    with pytest.raises(
        UsageError, match=r"options\[5\]: there is no such option; known: answer, question, start"
    ):
        env.reset(seed=0, options={5: None})


def test_what_pettingzoos_suites_reset_with_is_taken_and_nothing_like_it() -> None:
    env = small()
    env.reset(seed=0, options={"options": 1})
    for options in ({"options": 2}, {"option": 1}):
        with pytest.raises(UsageError, match="no such option"):
            env.reset(seed=0, options=options)


@pytest.mark.parametrize("answer", [" ", GroundTruth("x", "")])
def test_a_blank_answer(answer: Any) -> None:
    for setup in ({}, {"tokenizer": "bytes", "view": {"one_hot": False, "legal_moves": False}}):
        with pytest.raises(
            UsageError, match=r"options\['answer'\] = .*there is nothing to ask about"
        ):
            small(**setup).reset(seed=0, options={"answer": answer})


@pytest.mark.parametrize("answer", ["Zebra", "Bemar Zebra", GroundTruth("x", "Zebra")])
def test_an_answer_that_the_tokenizer_cannot_spell(answer: Any) -> None:
    with pytest.raises(
        UsageError, match=r"options\['answer'\] = .*Zebra': the tokenizer has no tokens for some"
    ):
        small().reset(seed=0, options={"answer": answer})
    with pytest.raises(UsageError, match="the tokenizer has no tokens"):
        small(tokenizer=HuggingFaceTokenizer(word_level()), view={"legal_moves": False}).reset(
            seed=0, options={"answer": answer}
        )
    env = small(tokenizer="bytes", view={"legal_moves": False})
    env.reset(seed=0, options={"answer": answer})
    assert "Zebra" in env.game.truth.answer


def test_every_answer_of_a_world_can_be_played() -> None:
    env = small()
    for truth in env.rules.world.answers:
        env.reset(seed=0, options={"answer": truth})
        assert env.game.truth is truth


def test_a_list_of_seeds_is_checked_before_any_game_begins() -> None:
    envs = ssp_env.SolverVectorEnv(2, world="small")
    with pytest.raises(UsageError, match="seed = 'x'"):
        envs.reset(seed=[1, "x"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        envs.step([5, 5])
    envs.reset(seed=[1, None])

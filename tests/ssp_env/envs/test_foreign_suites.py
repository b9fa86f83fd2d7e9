"""The suites of PettingZoo, Gymnasium and RLlib, on words and real text; warnings are errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env
from hf_tokenizers import byte_level
from pettingzoo.test import api_test, seed_test

import ssp_env
from ssp_env.game.rules import own_retriever
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import World
from ssp_env.worlds import open_world

# PettingZoo's api_test warns about every env but its own that offers an action mask as PettingZoo
# does, in observations that are dicts, and whose agents are not called <name>_<number>.
UNAVOIDABLE = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box or "
    "gymnasium.spaces.discrete",
    "We recommend agents to be named in the format",
)
LONG = {"max_prompt_tokens": 3000, "max_response_tokens": 1500, "verifier": "none"}
"""Room for tokenizers of many tokens a word; two short passages leave little to verify."""


@pytest.fixture(autouse=True)
def _strict() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module", params=["mini", "cities"])
def case(request: pytest.FixtureRequest, cities: World) -> Iterator[dict[str, Any]]:
    world, setup = open_world("mini"), dict[str, Any]()
    if request.param == "cities":
        tokenizer = HuggingFaceTokenizer(byte_level(tags=True))
        world, setup = cities, {"tokenizer": tokenizer, "game": LONG}
    retriever = own_retriever(world)
    with pytest.MonkeyPatch.context() as patch:
        for kind in (type(retriever), type(world)):  # Gymnasium's specs copy what they are given
            patch.setattr(kind, "__deepcopy__", lambda self, memo: self, raising=False)
        yield {**setup, "world": world, "retriever": retriever}


def test_pettingzoo_api_and_seeds(case: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        for message in UNAVOIDABLE:
            warnings.filterwarnings("ignore", message=message, module="pettingzoo")
        api_test(ssp_env.env(**case), num_cycles=150)
    seed_test(lambda: ssp_env.env(**case), num_cycles=100)


@pytest.mark.parametrize("role", ["Solver", "Proposer"])
def test_gymnasium_check(
    case: dict[str, Any], role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through ``make``: only an env with a spec has all of its render modes checked."""
    env = gym.make(f"ssp/{role}-v0", **case)
    env.action_space.seed(1)
    check_env(env.unwrapped)

    # Wrappers copy its spec, with all that was given.
    assert env.spec is not None
    first, again = env.reset(seed=1)[0], env.spec.make().reset(seed=1)[0]
    assert (first["observation"] == again["observation"]).all()


def test_rllib_check(case: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # what Ray's modules warn about when they are imported
        from ray.rllib.utils.pre_checks.env import check_multiagent_environments

        from ssp_env.envs.rllib import SearchSelfPlayMultiAgentEnv
    env = SearchSelfPlayMultiAgentEnv(case)
    check_multiagent_environments(env)
    eos = env.rules.tokenizer.eos_id
    env.action_spaces["proposer"].sample = lambda: eos
    check_multiagent_environments(env)
    assert env.game.reason == "format", "this check ends the game"

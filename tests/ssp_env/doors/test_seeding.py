"""Seeds decide games alike behind every door, and options name the subject of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ssp_env
from ssp_env.doors.dealer import Dealer
from ssp_env.doors.setup import set_up
from ssp_env.errors import UsageError
from ssp_env.game.game import Game
from ssp_env.game.rules import Rules
from ssp_env.types import GroundTruth, Question
from ssp_env.worlds.mini import MiniWorld

Door = Callable[..., Any]
QUESTION = Question("q", "what is the mentor of X ?", ("Y", "Z"), "1")


def rllib(**setup: Any) -> Any:
    from ssp_env.doors.rllib import SearchSelfPlayMultiAgentEnv

    return SearchSelfPlayMultiAgentEnv(setup)


DOORS: dict[str, Door] = {
    "raw_env": ssp_env.raw_env,
    "env": lambda **setup: ssp_env.env(**setup),
    "proposer": ssp_env.ProposerEnv,
    "solver": ssp_env.SolverEnv,
    "text": ssp_env.TextGame,
    "text solver": ssp_env.TextRole,
    "text proposer": lambda **setup: ssp_env.TextRole("proposer", **setup),
    "rllib": rllib,
}
PROPOSERS = [name for name in DOORS if "proposer" in name]


def game_of(door: Any) -> Game:
    return getattr(door, "unwrapped", door).game  # type: ignore[no-any-return]


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Door:
    return DOORS[request.param]


def begun(game: Game) -> tuple[Any, ...]:
    return game.start, game.question, [t.ids for t in game.trajectories()]


def test_a_seed_decides_this_and_the_following_games(mini: MiniWorld, door: Door) -> None:
    def games(env: Any, seed: Any) -> list[Any]:
        told = []
        for i in range(4):
            env.reset(seed=seed if i == 0 else None)
            told.append(begun(game_of(env)))
        return told

    env, other = door(world=mini), door(world=mini)
    first = games(env, 11)
    assert games(env, 11) == games(other, 11) == first
    if not isinstance(env, gym.Env):  # Gymnasium itself wants a plain int
        assert games(other, np.int64(11)) == first
    assert games(env, 12) != first
    assert len({str(told) for told in first}) == 4


def test_options(mini: MiniWorld, door: Door) -> None:
    env = door(world=mini)
    truth = mini.answers[4]
    env.reset(seed=1, options={"answer": truth})
    assert game_of(env).truth is truth
    env.reset(seed=1, options={"answer": truth.answer})
    assert game_of(env).truth == GroundTruth("given", truth.answer)
    env.reset(options={"answer": None})
    assert game_of(env).truth in mini.answers
    for name, wrong in (("answer", 5), ("question", "why ?")):
        with pytest.raises(UsageError, match=rf"options\['{name}'\] is a"):
            env.reset(options={name: wrong})
    with pytest.raises(UsageError, match="not about answer and question"):
        env.reset(options={"answer": truth, "question": QUESTION})


@settings(max_examples=30)
@given(seed=st.integers(0, 2**63), count=st.integers(1, 4))
def test_batches_deal_what_single_envs_deal(mini: MiniWorld, seed: int, count: int) -> None:
    if not RULES:
        RULES.append(set_up({"world": mini}).rules)
    (rules,) = RULES
    batch = ssp_env.GameBatch(count, world=mini, retriever=rules.retriever)
    for again in (seed, None):
        batch.reset(seed=again)
        for i, game in enumerate(batch.games):
            dealer = Dealer(rules)
            dealer.seed(seed + i)
            dealt = dealer.deal()
            if again is None:
                dealt = dealer.deal()
            assert begun(game) == begun(dealt.games[0])


RULES: list[Rules] = []

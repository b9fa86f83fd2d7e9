"""The SkyRL environments, registered and played as SkyRL's generator plays them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from recorded import SETUP

import ssp_env
from ssp_env import Rules
from ssp_env.envs.setup import set_up

skyrl_gym = pytest.importorskip(
    "skyrl_gym", reason="skyrl-gym is not installed; run: make integrations"
)
RULES = set_up(SETUP).rules  # type: ignore[arg-type]


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    import skyrl_ssp

    skyrl_ssp.register_all(rules=RULES)


def make(role: str, seed: int) -> Any:
    """As the generator makes it, with its own limit of turns in the extras."""
    extras = {"extra_info": {"seed": seed}, "max_turns": 10}
    return skyrl_gym.make(f"ssp-{role}", env_config={}, extras=extras)


@pytest.mark.parametrize("role", ["solver", "proposer"])
def test_their_loop_plays_our_game(role: str) -> None:
    ours, player = ssp_env.TextRole(role, rules=RULES), ssp_env.scripted_player(RULES)
    text, _ = ours.reset(4)
    env = make(role, 4)
    chat, _ = env.init([{"role": "user", "content": "the row's own prompt"}])
    assert chat == [{"role": "user", "content": text}]
    done, reward = False, 0.0
    while not done:
        turn = player.write(ours._driver.turn)
        text, reward, terminated, _, info = ours.step(turn)
        out = env.step(turn)
        done = out["done"]
        assert out["observations"] == ([] if done else [{"role": "user", "content": text}])
        assert (done, out["metadata"]) == (terminated, info)
    assert out["reward"] == reward
    assert env.get_metrics()["valid"] == 1.0
    env.close()


def test_a_limit_that_would_cut_games_off_is_refused() -> None:
    """SkyRL's default is a single turn."""
    extras = {"extra_info": {"seed": 0}, "max_turns": 1}
    with pytest.raises(ssp_env.ConfigError, match=r"generator.max_turns = 1: give at least"):
        skyrl_gym.make("ssp-solver", env_config={}, extras=extras)


def test_outages_and_mistakes_are_no_rewards(without_search: Callable[[Rules], None]) -> None:
    env = make("solver", 0)
    env.init([])
    with pytest.raises(ssp_env.UsageError, match="a turn is a string"):
        env.step([1, 2])

    without_search(RULES)
    with pytest.raises(ssp_env.ServiceError, match="the game is void"):
        env.step("<search> Tatal </search>")

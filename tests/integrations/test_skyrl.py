"""The SkyRL environments, registered and played as SkyRL's generator plays them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from recorded import SETUP

import ssp_env
from ssp_env.doors.setup import set_up

skyrl_gym = pytest.importorskip(
    "skyrl_gym", reason="skyrl-gym is not installed; run: make integrations"
)
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "integrations"))
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
        turn = player.write(ours._episode.turn)
        text, reward, terminated, _, info = ours.step(turn)
        out = env.step(turn)
        done = out["done"]
        assert out["observations"] == ([] if done else [{"role": "user", "content": text}])
        assert (done, out["metadata"]) == (terminated, info)
    assert out["reward"] == reward
    assert env.get_metrics()["valid"] == 1.0
    env.close()


def test_outages_and_mistakes_are_no_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("solver", 0)
    env.init([])
    with pytest.raises(ssp_env.UsageError, match="a turn is a string"):
        env.step([1, 2])

    def down(queries: Any, k: int) -> Any:
        raise ssp_env.ServiceError("search", "gone")

    monkeypatch.setattr(RULES.retriever, "search", down)
    with pytest.raises(ssp_env.ServiceError, match="the game is void"):
        env.step("<search> Tatal </search>")


def test_two_hundred_environments_keep_apart() -> None:
    envs = [make("solver", i % 8) for i in range(200)]
    shown = [env.init([])[0] for env in envs]
    assert all(shown[i] == shown[i % 8] for i in range(200))
    found = [
        env.step(f"<search> Tatal </search> {i}")["observations"] for i, env in enumerate(envs)
    ]
    assert all(one == found[0] for one in found)
    rewards = [
        env.step(f"<answer> {env._role.game.truth.answer} </answer>")["reward"] for env in envs
    ]
    assert rewards == [1.0] * 200

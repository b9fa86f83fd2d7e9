"""The game behind TorchRL's PettingZoo wrapper: same tokens, masks and rewards, and it learns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ssp_env

pytest.importorskip("torchrl", reason="torchrl is not installed; run: make integrate-torchrl")
EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "torchrl_ssp.py"
pytestmark = pytest.mark.filterwarnings("ignore:PettingZoo in TorchRL:UserWarning")


def test_a_rollout_is_our_game() -> None:
    """Token by token: who writes, what is seen and legal, what is paid, when it ends."""
    import torch
    import torchrl_ssp

    torch.manual_seed(0)
    env = torchrl_ssp.make_env(world="small")
    env.set_seed(3)
    ours: Any = ssp_env.env(world="small")
    ours.reset(seed=3)
    for game in range(5):
        played = env.rollout(1000)
        ours.reset()
        for step in played:
            agent = ours.agent_selection
            seen = {name: step[name] for name in ours.possible_agents}
            assert [bool(own["mask"].all()) for own in seen.values()] == [
                name == agent for name in seen
            ]
            for name, own in seen.items():
                observed = ours.observe(name)
                text = torch.as_tensor(observed["observation"])
                assert torch.equal(own["observation", "observation"][0], text), game
            legal = torch.as_tensor(ours.observe(agent)["action_mask"]).bool()
            assert torch.equal(seen[agent]["action_mask"][0], legal)
            ours.step(int(seen[agent]["action"]))
            for name in seen:
                assert float(step["next", name, "reward"]) == pytest.approx(ours.rewards[name])
            assert bool(step["next", "terminated"]) is all(ours.terminations.values())
        assert bool(played[-1]["next", "done"])


def test_specs_are_what_comes() -> None:
    import torchrl_ssp
    from torchrl.envs.utils import check_env_specs

    check_env_specs(torchrl_ssp.make_env(world="small"))


def test_void_games_are_no_part_of_the_loss() -> None:
    import torch
    import torchrl_ssp

    torch.manual_seed(1)
    env = torchrl_ssp.make_env(world="small")
    actor = torchrl_ssp.make_actors(env)["proposer"]
    games = [env.rollout(1000) for _ in range(4)]
    for number, game in enumerate(games):  # else all might be paid the same
        game["next", "proposer", "reward"][-1] = float(number)
    loss = torchrl_ssp.loss_of("proposer", actor, games)
    void = games[0].clone()
    void["next", "truncated"][-1] = True
    assert torchrl_ssp.loss_of("proposer", actor, [*games, void]) == loss != 0
    assert torchrl_ssp.loss_of("proposer", actor, [void]) == 0


def test_actors_sample() -> None:
    import torch
    import torchrl_ssp
    from tensordict.nn import TensorDictSequential

    torch.manual_seed(0)
    env, written = torchrl_ssp.make_env(world="small"), set()
    policy = TensorDictSequential(*torchrl_ssp.make_actors(env).values())
    for _ in range(8):
        env.set_seed(0)
        with torch.no_grad():
            game = env.rollout(1000, policy)
        written.add(tuple(game["proposer", "action"].flatten().tolist()))
    assert len(written) > 1, "of one game"


def test_the_example_runs() -> None:
    command = [sys.executable, str(EXAMPLE), "--steps", "2", "--games", "4"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(done.stdout.splitlines()) == 2

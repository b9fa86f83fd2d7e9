"""RLlib's PPO with your own network: it embeds each token of the window and applies the mask.

    python examples/rllib_own_module.py

The window of the small world is given as tokens here (``one_hot`` off), so that the module can
embed them itself.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import ray
import torch
from curves import curve_file, write_curve
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

import ssp_env

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--steps", type=int, default=80_000, help="tokens to play, both roles together")
parser.add_argument("--batch", type=int, default=4000, help="tokens an update")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=curve_file, help="write the curve here, as JSON lines")


class Reader(TorchRLModule, ValueFunctionAPI):
    """Embeds the window, and reads it with one hidden layer each for policy and value."""

    def setup(self) -> None:
        """Builds the networks from the spaces."""
        window, words = self.observation_space["observations"].shape[0], self.action_space.n
        width, hidden = self.model_config["width"], self.model_config["hidden"]
        self.embed = nn.Embedding(int(words), width)
        self.policy = nn.Sequential(
            nn.Linear(window * width, hidden), nn.Tanh(), nn.Linear(hidden, int(words))
        )
        self.value = nn.Sequential(
            nn.Linear(window * width, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def _read(self, batch: dict[str, Any]) -> torch.Tensor:
        return self.embed(batch[Columns.OBS]["observations"].long()).flatten(1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, torch.Tensor]:
        read = self._read(batch)
        illegal = batch[Columns.OBS]["action_mask"] == 0
        return {
            Columns.ACTION_DIST_INPUTS: self.policy(read).masked_fill(illegal, -1e9),
            Columns.EMBEDDINGS: read,
        }

    def compute_values(
        self, batch: dict[str, Any], embeddings: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What PPO's learner asks for."""
        return self.value(self._read(batch) if embeddings is None else embeddings).squeeze(-1)


def make_config(steps: int, batch: int, seed: int) -> PPOConfig:
    """PPO over two agents with a module each; see rllib_ppo.py for the settings."""
    names = ["proposer", "solver"]
    spec = RLModuleSpec(module_class=Reader, model_config={"width": 16, "hidden": 128})
    return (
        PPOConfig()
        .environment(
            ssp_env.rllib.register(), env_config={"world": "small", "view": {"one_hot": False}}
        )
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8, batch_mode="complete_episodes")
        .multi_agent(policies=names, policy_mapping_fn=lambda agent, episode, **_: agent)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=dict.fromkeys(names, spec)))
        .training(
            train_batch_size_per_learner=batch,
            minibatch_size=min(500, batch),
            num_epochs=4,
            lr=[[0, 1e-3], [steps, 0.0]],
            gamma=1.0,
            lambda_=0.95,
            entropy_coeff=0.003,
            grad_clip=0.5,
        )
        .reporting(metrics_num_episodes_for_smoothing=300)
        .debugging(seed=seed, log_level="ERROR")
    )


def main() -> None:
    """Learns, and prints one line per update."""
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ray.init(include_dashboard=False, log_to_driver=False)
    algorithm = make_config(arguments.steps, arguments.batch, arguments.seed).build_algo()
    curve, began, steps = [], time.process_time(), 0

    while steps < arguments.steps:
        seen = algorithm.train()["env_runners"]
        steps = int(seen["num_env_steps_sampled_lifetime"])
        roles = {role: float(mean) for role, mean in seen["agent_episode_returns_mean"].items()}
        mean = float(seen["episode_return_mean"])
        curve.append(
            {"steps": steps, "cpu_seconds": time.process_time() - began, "return": mean, **roles}
        )
        print(json.dumps({name: round(value, 3) for name, value in curve[-1].items()}), flush=True)

    algorithm.stop()
    ray.shutdown()
    write_curve(arguments.out, curve)


if __name__ == "__main__":
    main()

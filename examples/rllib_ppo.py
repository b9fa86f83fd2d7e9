"""RLlib's PPO on the registered environment: both roles learn, with two policies or a shared one.

    python examples/rllib_ppo.py --policies independent

The small world has words for tokens and masks of legal moves, which RLlib's
``ActionMaskingTorchRLModule`` applies. With one attempt per question, a valid game
pays 1 in total and an invalid one 0, so the mean return is the share of valid games. Independent
policies brought it to .96, .94 and .94 in 81,000 tokens and 95 to 99 CPU-seconds, where a random
legal player gets .18; the solver was right in .99 of them (20 Nov 2026, seeds 0 to 2, the mean of
the last five updates, AMD EPYC, one thread, commit 7f11436). Made by ``python -m
benchmarks.learning_curves --out DIRECTORY``; curves in ``benchmarks/results/learning_curves``.
"""

from __future__ import annotations

import argparse
import json
import time

import ray
import torch
from curves import curve_file, write_curve
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

import ssp_env

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--policies", choices=("independent", "shared"), default="independent")
parser.add_argument("--steps", type=int, default=80_000, help="tokens to play, both roles together")
parser.add_argument("--batch", type=int, default=4000, help="tokens an update")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=curve_file, help="write the curve here, as JSON lines")


def make_config(policies: str, steps: int, batch: int, seed: int) -> PPOConfig:
    """PPO over two agents; a module is a small network for each policy."""
    names = ["proposer", "solver"] if policies == "independent" else ["both"]
    network = {
        "fcnet_hiddens": [128],
        "fcnet_activation": "tanh",
        "head_fcnet_hiddens": [],
        "vf_share_layers": False,
    }
    spec = RLModuleSpec(module_class=ActionMaskingTorchRLModule, model_config=network)

    return (
        PPOConfig()
        .environment(ssp_env.rllib.register(), env_config={"world": "small"})
        # The reward comes at the end of a game, so batches are made of whole games.
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8, batch_mode="complete_episodes")
        .multi_agent(
            policies=names,
            policy_mapping_fn=lambda agent, episode, **_: (
                agent if policies == "independent" else "both"
            ),
        )
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=dict.fromkeys(names, spec)))
        .training(
            train_batch_size_per_learner=batch,
            minibatch_size=min(500, batch),
            num_epochs=4,
            lr=[
                [0, 5e-4],
                [steps, 0.0],
            ],  # once the solver is always right, nothing holds the proposer but this
            gamma=1.0,
            lambda_=0.95,
            entropy_coeff=0.003,
            grad_clip=0.5,  # without it, a long run lost again what it had learned
        )
        .reporting(metrics_num_episodes_for_smoothing=300)
        .debugging(seed=seed, log_level="ERROR")
    )


def main() -> None:
    """Learns, and prints one line per update."""
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ray.init(include_dashboard=False, log_to_driver=False)
    algorithm = make_config(
        arguments.policies, arguments.steps, arguments.batch, arguments.seed
    ).build_algo()
    curve, began, steps = [], time.process_time(), 0

    while steps < arguments.steps:
        seen = algorithm.train()["env_runners"]
        steps = int(seen["num_env_steps_sampled_lifetime"])
        # An agent that has not played yet is not in it. The solver's mean is over valid games: it
        # plays no others.
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

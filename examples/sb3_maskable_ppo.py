"""sb3-contrib's MaskablePPO, unchanged, on the solver's view: masks come from ``action_masks()``.

    python examples/sb3_maskable_ppo.py

Questions are asked by the scripted proposer, so every game is valid and the return is 1 for a right
answer, else 0. It rose to .97, .98 and .99 in 31,000 tokens and 43 to 44 CPU-seconds, where a
random legal player gets .11 (20 Nov 2026, seeds 0 to 2, the mean of the last five points, AMD EPYC,
one thread, commit 7f11436). Made by ``python -m benchmarks.learning_curves --out DIRECTORY``;
curves in ``benchmarks/results/learning_curves``.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from curves import curve_file, write_curve
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import ssp_env  # noqa: F401  (registers ssp/Solver-v0)

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--steps", type=int, default=30_000, help="tokens to play")
parser.add_argument("--batch", type=int, default=1024, help="tokens an update")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=curve_file, help="write the curve here, as JSON lines")


class Curve(BaseCallback):
    """Notes the mean return of the last 100 episodes, once an update."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[dict[str, float]] = []
        self.began = time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        mean = float(np.mean([episode["r"] for episode in self.model.ep_info_buffer]))
        self.points.append(
            {
                "steps": self.num_timesteps,
                "cpu_seconds": time.process_time() - self.began,
                "return": mean,
            }
        )
        print(
            json.dumps({name: round(value, 3) for name, value in self.points[-1].items()}),
            flush=True,
        )


def main() -> None:
    """Learns, and prints one line per update."""
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # make_vec_env asks for pictures unless it is told not to.
    options = {"world": "small", "render_mode": None}
    env = make_vec_env("ssp/Solver-v0", n_envs=8, seed=arguments.seed, env_kwargs=options)
    model = MaskablePPO(
        "MultiInputPolicy",  # the observation is a dict
        env,
        n_steps=arguments.batch // 8,
        batch_size=min(256, arguments.batch),
        learning_rate=5e-4,
        ent_coef=0.003,
        gamma=1.0,
        seed=arguments.seed,
        policy_kwargs={"net_arch": [128]},
    )
    curve = Curve()
    model.learn(arguments.steps, callback=curve)
    write_curve(arguments.out, curve.points)


if __name__ == "__main__":
    main()

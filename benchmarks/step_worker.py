"""One side of ``step_speed``: ``python step_worker.py MODEL STEPS``, so many steps per line read.

Trains ``tiny`` on whichever checkout is on the path, with that one's preset, so it asks no more
than an early one has. Prints CPU-seconds per step, those of engine, learner and game by the clock,
and the tokens that the policy wrote.
"""

from __future__ import annotations

import importlib
import json
import sys
from time import process_time
from typing import Any

import torch


def main() -> int:
    """Works once for every line."""
    torch.set_num_threads(1)
    model, steps = sys.argv[1], int(sys.argv[2])
    from experiments.config import load_preset, make_config

    values = load_preset("tiny")
    # It decides how soon questions become longer, not how fast tokens are.
    values["learning"] = {**values["learning"], "proposer_weight": 0.03}
    config = make_config({**values, "steps": 1000, "model": model})
    cluster = _first("experiments.run.cluster", "experiments.training")

    with cluster.local_ray(config):
        algorithm = cluster.algorithm_config(config).build_algo()
        import agents

        print(json.dumps({"code": agents.__file__}), flush=True)
        for _ in sys.stdin:
            print(json.dumps({"steps": [_step(algorithm) for _ in range(steps)]}), flush=True)
        algorithm.stop()
    return 0


def _step(algorithm: Any) -> dict[str, float]:
    began = process_time()
    clock = algorithm.train()["ssp"]["seconds"]
    spent = process_time() - began
    played = [trajectory for game in algorithm.last_games for trajectory in game.trajectories]
    return {
        "cpu_seconds": spent,
        "policy_tokens": sum(trajectory.policy_tokens for trajectory in played),
        **{name: float(clock[name]) for name in ("engine", "learn", "game")},
    }


def _first(*names: str) -> Any:
    """The first of these modules that there is."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(names[-1])


if __name__ == "__main__":
    sys.exit(main())

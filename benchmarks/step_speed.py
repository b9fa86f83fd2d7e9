"""Seconds of a training step at ``tiny`` on one thread, and the game's share of it.

The game is everything but the engine and the learner: rules, prompts, parsing, search, filters,
verification, judging and records."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import torch

from experiments.config import load_preset, make_config
from experiments.run.cluster import algorithm_config, local_ray
from experiments.run.provenance import git_commit, machine


def main() -> int:
    """Plays and learns for some steps and writes the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=30)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    config = make_config({**load_preset("tiny"), "steps": settings.steps})
    rows = []

    with local_ray(config):
        algorithm = algorithm_config(config).build_algo()
        for _ in range(settings.steps):
            seconds = algorithm.train()["ssp"]["seconds"]
            rows.append({name: float(value) for name, value in seconds.items()})

        algorithm.stop()

    steps = [row["sample"] + row["learn"] for row in rows]
    result = {
        "command": " ".join(["python -m benchmarks.step_speed", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": machine(),
        "threads": 1,
        "seed": config.seed,
        "steps": settings.steps,
        "seconds_per_step": {"median": median(steps), "max": max(steps)},
        "engine_seconds": median(row["engine"] for row in rows),
        "learn_seconds": median(row["learn"] for row in rows),
        "game_seconds": median(row["game"] for row in rows),
        "game_share": median(row["game"] / step for row, step in zip(rows, steps, strict=True)),
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))

    return 0


if __name__ == "__main__":
    sys.exit(main())

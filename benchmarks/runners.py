"""Steps of ``tiny`` with several numbers of env runners: the same games, and how long they take.

One Ray, one main process, an algorithm per number, which train in turn, step by step, from one
seed. Steps are dealt as rounds. Beside the clock, which tells of everything that
the machine does, the CPU-seconds of the main process and of each runner are read: the main
process's and the busiest runner's, added up, are what a step would take on idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch

from agents.rllib.algorithm import SSP
from benchmarks.origin import origin
from experiments.config import load_preset, make_config
from experiments.run.cluster import build, started_ray

CALLS = 40
"""Empty calls, and handings-over, that are timed."""


class Watched:
    """An algorithm and the processes that it keeps busy."""

    def __init__(self, runners: int, rounds: int, stack: ExitStack) -> None:
        values = load_preset("tiny")
        values["learning"]["round_size"] = values["learning"]["batch_size"] // rounds
        values["compute"] = {"env_runners": runners}
        self.algorithm: SSP = build(make_config(values))
        stack.callback(self.algorithm.stop)
        self._runners = [
            psutil.Process(pid)
            for pid in self.algorithm.env_runner_group.foreach_env_runner(
                lambda runner: os.getpid(), local_env_runner=False
            )
        ]
        self._main = psutil.Process()

    def step(self) -> dict[str, Any]:
        """A step: seconds by the clock, and of each process's CPU."""
        began, before = time.perf_counter(), self._busy()
        figures = self.algorithm.train()["ssp"]["seconds"]
        seconds = time.perf_counter() - began
        main, *runners = [b - a for a, b in zip(before, self._busy(), strict=True)]
        return {
            "seconds": seconds,
            "main_cpu_seconds": main,
            "runners_cpu_seconds": runners,
            "idle_cores_seconds": main + max(runners, default=0.0),
            "sample": float(figures["sample"]),
            "learn": float(figures["learn"]),
        }

    def per_call(self) -> dict[str, float]:
        """What a call of a runner costs beside its work, and a handing-over of weights."""
        group = self.algorithm.env_runner_group
        empty = _timed(
            lambda: group.foreach_env_runner(lambda runner: None, local_env_runner=False)
        )
        weights = _timed(lambda: self.algorithm._hand_over_weights(group))
        return {"empty_call_of_all": empty, "handing_over": weights}

    def _busy(self) -> list[float]:
        times = [process.cpu_times() for process in (self._main, *self._runners)]
        return [spent.user + spent.system for spent in times]


def _timed(call: Any) -> float:
    """Fastest of some calls, by the clock."""
    fastest = float("inf")
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def main() -> int:
    """Trains in turns, compares the games, writes the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=12, help="after one to warm up")
    parser.add_argument("--runners", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=4, help="that a step is dealt as")
    settings = parser.parse_args()
    torch.set_num_threads(1)

    with started_ray(num_cpus=1 + sum(settings.runners)), ExitStack() as stack:
        watched = {n: Watched(n, settings.rounds, stack) for n in settings.runners}
        steps: dict[int, list[dict[str, Any]]] = {number: [] for number in watched}
        same = True
        for step in range(1 + settings.steps):
            for number, one in watched.items():
                found = one.step()
                if step:
                    steps[number].append(found)
            games = [[g.start for g in one.algorithm.last_games] for one in watched.values()]
            texts = [[g.trajectories for g in one.algorithm.last_games] for one in watched.values()]
            same &= all(other == games[0] for other in games)
            same &= all(other == texts[0] for other in texts)
        calls = {str(number): one.per_call() for number, one in watched.items() if number}

    result = {
        **origin("runners"),
        "load_average": os.getloadavg(),
        "seed": 0,
        "rounds": settings.rounds,
        "same_games": same,
        "runners": {str(number): medians(found) for number, found in steps.items()},
        "speedup_over_first": speedups(steps),
        "call_seconds": calls,
        "steps": {str(number): found for number, found in steps.items()},
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({n: v for n, v in result.items() if n != "steps"}, indent=2))
    return 0 if same else 1


def medians(steps: list[dict[str, Any]]) -> dict[str, float]:
    """Of each figure that is a number."""
    names = [name for name, value in steps[0].items() if isinstance(value, float)]
    return {name: median(step[name] for step in steps) for name in names}


def speedups(steps: Mapping[int, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Medians of the ratio to the first number of runners, step by step."""
    first = next(iter(steps.values()))
    return {
        name: {
            str(number): median(a[name] / b[name] for a, b in zip(first, found, strict=True))
            for number, found in steps.items()
        }
        for name in ("seconds", "idle_cores_seconds", "sample")
    }


if __name__ == "__main__":
    sys.exit(main())

"""Processes that are killed: env runners, learners; and trials of Tune that share a Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from agents.rllib import SSP, SSPConfig
from benchmarks.runs import PATIENCE, SSP_COMMAND, begin, figures, games, sets, train, weights
from ssp_env.errors import ServiceError
from ssp_env.game.config import GameConfig
from ssp_env.game.rules import Rules
from ssp_env.judge.base import Judge, JudgeTask, Verdict
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import World

LEARNING: dict[str, Any] = {
    "batch_size": 6,
    "round_size": 2,
    "minibatches": 1,
    "lr": 3e-4,
    "strategy": "reuse",
    "precision": "float32",
}
GAME = {"attempts": 3}
STEPS = 3
"""Of each run through RLlib."""
MOVES = (0, 2, 1)
"""Numbers of env runners, each for two steps."""


@dataclass(frozen=True)
class Lethal:
    """A judge that kills its process, once for each file in a folder."""

    inner: Judge
    folder: Path

    def judge(self, tasks: Sequence[JudgeTask]) -> Sequence[Verdict | ServiceError]:
        """As the judge that it stands for."""
        for file in sorted(self.folder.iterdir()):
            try:
                file.unlink()
            except FileNotFoundError:
                continue  # another runner was faster
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner.judge(tasks)


def lethal_rules(folder: Path, world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
    """The usual rules with that judge."""
    rules = Rules.build(world, tokenizer, game)
    return Rules.build(world, tokenizer, game, judge=Lethal(rules.judge, folder))


def config(folder: Path, seed: int) -> SSPConfig:
    """The tiny policy over the mini-wiki; ``folder`` is where files mean death."""
    folder.mkdir(exist_ok=True)
    env = {"world": "mini", "game": GAME, "make_rules": partial(lethal_rules, folder)}
    made = SSPConfig().environment(env_config=env).training(**LEARNING)
    made.debugging(seed=seed, log_level="ERROR")
    return made


# -- env runners -------------------------------------------------------------------------------


def runners(place: Path, seed: int) -> dict[str, Any]:
    """Kills env runners; see the package's head."""
    torch.set_num_threads(1)  # as in env runners: sums are formed in the same order
    with started():
        made = config(place / "deaths", seed).evaluation(evaluation_duration=8)
        calm, expected = played(made.copy(copy_frozen=False), lambda step: None)

        def kill(step: int) -> None:
            for number in range(step):  # nobody in the first step, one in the next, then both
                (place / "deaths" / str(number)).touch()

        made.env_runners(num_env_runners=2).evaluation(evaluation_num_env_runners=1)
        found, evaluation = played(made, kill)

    return {
        "games_differ": sum(a.games != b.games for a, b in zip(calm, found, strict=True)),
        "largest_difference_of_weights": max(
            float(np.abs(a.weights[name] - b.weights[name]).max())
            for a, b in zip(calm, found, strict=True)
            for name in a.weights
        ),
        "pools_differ": sum(a.pool != b.pool for a, b in zip(calm, found, strict=True)),
        "questions_in_the_pool": len(found[-1].pool),
        "restarts": found[-1].restarts,
        "evaluation": [expected, evaluation],
        "held": not any((place / "deaths").iterdir())
        and expected == evaluation
        and all(a.same_as(b) for a, b in zip(calm, found, strict=True)),
    }


@dataclass(frozen=True)
class Step:
    """What is compared of a step."""

    games: list[Any]
    weights: dict[str, np.ndarray]
    pool: list[Any]
    restarts: int

    def same_as(self, other: Step) -> bool:
        """Whether games, weights and pool are equal, to the bit."""
        weights = all(np.array_equal(w, other.weights[name]) for name, w in self.weights.items())
        return weights and self.games == other.games and self.pool == other.pool


def played(made: SSPConfig, before: Callable[[int], None]) -> tuple[list[Step], float]:
    """A run's steps, and the accuracy at its end."""
    algorithm = made.build_algo()
    assert isinstance(algorithm, SSP)
    steps = []
    try:
        for step in range(STEPS):
            before(step)
            result = algorithm.train()
            pool = algorithm.get_state()["self_play"]["strategy"]["pool"]
            weights = {name: np.array(w) for name, w in algorithm.policy_weights().items()}
            restarts = result["fault_tolerance"]["num_remote_worker_restarts"]
            steps.append(Step(list(algorithm.last_games), weights, pool, restarts))
        return steps, algorithm.evaluate()["env_runners"]["episode_return_mean"]
    finally:
        algorithm.stop()


# -- learners ----------------------------------------------------------------------------------


def learner(place: Path, seed: int) -> dict[str, Any]:
    """Kills learners of ``ssp train``; see the package's head."""
    calm, _, _ = trained(place / "calm", seed, deaths=0)
    once, status, said = trained(place / "once", seed, deaths=1)
    _, end, last = trained(place / "twice", seed, deaths=2)
    return {
        "metrics_differ": sum(a != b for a, b in zip(calm, once, strict=True)),
        "statuses": [status, end],
        "said": [line for line in said if "learner died" in line],
        "said_at_the_end": last[-1],
        "tracebacks": sum("Traceback" in line for line in (*said, *last)),
        "held": calm == once
        and (status, end) == (0, 2)
        and "a learner died" in last[-1]
        and not any("Traceback" in line for line in (*said, *last)),
    }


def trained(run: Path, seed: int, deaths: int) -> tuple[list[Any], int, list[str]]:
    """A run of ``ssp train`` of four steps, whose learner is killed after the third, so often.

    Returns:
        Its metrics without times, its exit status, and the lines that it wrote to standard error.
    """
    assignments = {
        **{f"learning.{name}": value for name, value in LEARNING.items()},
        "game.attempts": 3,
        "checkpoint_every": 2,
        "compute.learners": 1,
        "evaluation.per_group": 4,
        "evaluation.every": 4,
        "seed": seed,
    }
    command = [SSP_COMMAND, "train", "--steps", "4", "--out", str(run), *sets(assignments)]
    process = begin(command)
    killed: set[int] = set()
    deadline = time.monotonic() + PATIENCE
    third = run / "games" / "step_000003.jsonl"
    while process.poll() is None and time.monotonic() < deadline:
        alive = [pid for pid in learners_of(process.pid) if pid not in killed]
        if len(killed) < deaths and third.exists() and alive:
            os.kill(alive[0], signal.SIGKILL)
            killed.add(alive[0])
        time.sleep(0.01)
    _, errors = process.communicate(timeout=60)
    return figures(run), process.returncode, errors.splitlines()


def moved(place: Path, seed: int) -> dict[str, Any]:
    """Resumes on other numbers of env runners; see the package's head."""
    given = sets({"learning.round_size": 3, "evaluation.every": 2})
    whole, run = place / "whole", place / "moved"
    ends = [train(whole, *given, steps=6, seed=seed).returncode]
    for part, count in enumerate(MOVES):
        these = sets({"compute.env_runners": count})
        more = ["--resume", *these] if part else [*given, *these]
        ends.append(train(run, *more, steps=2 * part + 2, seed=seed).returncode)

    return {
        "env_runners": [*MOVES],
        "statuses": ends,
        "games": sum(text.count("\n") for text in games(run)),
        "files_of_games_that_differ": sum(
            a != b for a, b in zip(games(whole), games(run), strict=True)
        ),
        "metrics_differ": figures(whole) != figures(run),
        "weights_differ": weights(whole) != weights(run),
        "held": not any(ends)
        and games(whole) == games(run)
        and figures(whole) == figures(run)
        and weights(whole) == weights(run),
    }


def learners_of(parent: int) -> list[int]:
    """Ray's actors among the descendants of a process; without env runners, they are learners."""
    listed = subprocess.run(
        ["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()[1:]]
    family = {parent}
    for _ in range(4):  # driver, raylet, worker
        family |= {int(pid) for pid, above, _ in rows if int(above) in family}

    others = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
    return [
        int(pid)
        for pid, _, args in rows
        if int(pid) in family and args.startswith("ray::") and not args.startswith(others)
    ]


# -- Tune --------------------------------------------------------------------------------------


def tune(place: Path, seed: int) -> dict[str, Any]:
    """Two trials; see the package's head."""
    from ray import tune as tuning

    with started():
        made = config(place / "deaths", seed)
        made.training(lr=tuning.grid_search([1e-4, 1e-3]))
        results = tuning.Tuner(
            "SSP",
            param_space=made,
            tune_config=tuning.TuneConfig(
                metric="env_runners/episode_return_mean", mode="max", max_concurrent_trials=1
            ),
            run_config=tuning.RunConfig(
                stop={"training_iteration": 2}, storage_path=str(place), verbose=0
            ),
        ).fit()

    metrics = [result.metrics or {} for result in results]
    means = [found["env_runners"]["episode_return_mean"] for found in metrics]
    best = results.get_best_result().config["lr"]
    return {
        "trials": len(results),
        "errors": len(results.errors),
        "episode_return_mean": means,
        "best_lr": best,
        "held": len(results) == 2 and not results.errors and bool(np.isfinite(means).all()),
    }


class started:
    """A Ray of this benchmark's own."""

    def __enter__(self) -> None:
        ray.init(
            "local", num_cpus=6, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
        )

    def __exit__(self, *_: object) -> None:
        ray.shutdown()

"""A training run from its settings to its summary."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import ray
import torch
from torch.utils.tensorboard import SummaryWriter

from agents.models import save_policy
from agents.rllib.algorithm import SSP, SSPConfig
from experiments.config import RunConfig
from experiments.run.checks import check, checkpoint_bytes
from experiments.run.directory import RunDirectory
from experiments.run.evaluation import Accuracy, accuracies
from experiments.run.interrupt import ignore_at_exit, interruptible, uninterrupted
from experiments.run.progress import Progress
from experiments.run.provenance import git_commit, machine
from experiments.run.quiet import filtered_stderr, quiet_libraries
from experiments.run.rules import MakeRules
from ssp_env.errors import ConfigError, RunError, ServiceError
from ssp_env.game.rules import resolve_verifier
from ssp_env.types import Question
from ssp_env.worlds import open_world

STOPPING = "stopping after this step; Ctrl-C again stops at once"


def algorithm_config(config: RunConfig) -> SSPConfig:
    """The RLlib config of a run."""
    compute = config.compute
    made = SSPConfig()
    made.environment(
        env_config={
            "world": config.world,
            "world_options": config.world_options,
            "game": config.game,
            "make_rules": MakeRules(config),
        }
    )
    made.training(model_dir=config.model_dir, **vars(config.learning))
    # Ray gives each actor as many threads as it has CPUs.
    made.env_runners(
        num_env_runners=compute.env_runners,
        num_gpus_per_env_runner=compute.gpus_per_env_runner,
        num_cpus_per_env_runner=compute.threads,
    )
    # RLlib refuses a learner with GPUs and more than one CPU.
    learner_cpus = 1 if compute.gpus_per_learner else compute.threads
    made.learners(
        num_learners=compute.learners,
        num_gpus_per_learner=compute.gpus_per_learner,
        num_cpus_per_learner=learner_cpus,
    )
    made.debugging(seed=config.seed, log_level="ERROR")
    return made


def train(
    config: RunConfig, out: str | Path, *, resume: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Trains, evaluates, and leaves a run directory behind; returns the summary.

    Ctrl-C ends the run after the step in progress, with a checkpoint; ``resume`` goes on from there
    to the same result as an uninterrupted run.

    Raises:
        SSPError: a mistake that was found before training, or a disk that cannot be written to.
        KeyboardInterrupt: after an interrupted run was saved.
    """
    began = time.perf_counter()
    quiet_libraries()
    _, questions = check(config)
    validate(config)
    directory = RunDirectory(out)
    with directory.claimed(config, resume, checkpoint_bytes(config)) as first:
        if first < config.steps:
            _play(config, directory, first, questions, quiet, began)
        summary = summarise(config, directory)
        directory.write_summary(summary)
        return summary


def validate(config: RunConfig) -> None:
    """What RLlib's config knows of settings that cannot work together.

    Raises:
        ConfigError: names our setting.
    """
    try:
        algorithm_config(config).validate()
    except ConfigError as error:
        # RLlib has other names for our sections.
        field = error.field.removeprefix("env_config.").replace("training.", "learning.", 1)
        raise ConfigError(field, error.value, error.fix) from None


def _play(
    config: RunConfig,
    directory: RunDirectory,
    first: int,
    questions: list[Question],
    quiet: bool,
    began: float,
) -> None:
    torch.set_num_threads(config.compute.threads)
    with local_ray(config):
        algorithm = build(config)
        try:
            with Progress(config.steps, done=first, quiet=quiet) as progress:
                run = _Run(config, directory, algorithm, questions, progress, began)
                run.start(first)
                run.go_on(first)
        finally:
            with uninterrupted():
                algorithm.stop()


def build(config: RunConfig) -> SSP:
    """The algorithm, with its model loaded."""
    with filtered_stderr():
        algorithm = algorithm_config(config).build_algo()
    assert isinstance(algorithm, SSP)
    # RLlib makes a folder for results in the home directory. It stays empty: ours is elsewhere.
    Path(algorithm.logdir).rmdir()
    return algorithm


class _Run:
    """One process's share of a run."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        algorithm: SSP,
        questions: list[Question],
        progress: Progress,
        began: float,
    ) -> None:
        self.config, self.directory, self.algorithm = config, directory, algorithm
        self.questions, self.progress = questions, progress
        self._last_line = began

    def start(self, first: int) -> None:
        """Measures the base policy, or takes a checkpoint back.

        Raises:
            ServiceError: an outage leaves a group of questions without a single answer.
        """
        latest = self.directory.latest_checkpoint()
        if first and latest is not None:
            self.algorithm.restore_from_path(str((latest[1] / "algorithm").resolve()))
            self.progress.note(f"resumed after step {first}")
        self._board = _Board(self.directory.tensorboard, first)
        if first:
            return
        seconds: dict[str, float] = {}
        base = self._evaluate("base", seconds)
        for group, accuracy in base.items():
            if not accuracy.asked:
                raise ServiceError(
                    "judge", f"no question of group {group} could be judged; see that it answers"
                )
        self._log({"step": 0, "seconds": seconds}, base)

    def go_on(self, first: int) -> None:
        """Plays the remaining steps.

        Raises:
            KeyboardInterrupt: after Ctrl-C, when the step in progress is done and saved.
        """
        steps = self.config.steps
        with interruptible(lambda: self.progress.note(STOPPING)) as interrupted:
            for step in range(first + 1, steps + 1):
                self.step(step, last=step == steps)
                stop = interrupted() and step < steps
                if stop or step == steps or step % self.config.checkpoint_every == 0:
                    self.checkpoint(step)
                if stop:
                    raise KeyboardInterrupt
        self._board.close()

    def step(self, step: int, last: bool) -> None:
        """Plays, learns, writes."""
        began = time.perf_counter()
        result = self.algorithm.train()["ssp"]
        figures = {name: float(value) for name, value in result["figures"].items()}
        seconds = {name: float(value) for name, value in result["seconds"].items()}
        seconds["step"] = time.perf_counter() - began
        self.directory.write_games(step, self.algorithm.last_games)
        self.progress.step(step, figures, seconds)
        evaluated = last or step % self.config.evaluation.every == 0
        accuracy = self._evaluate("final" if last else f"step {step}", seconds) if evaluated else {}
        self._log({"step": step, **figures, "seconds": seconds}, accuracy)

    def checkpoint(self, step: int) -> None:
        """Everything that is needed to go on, and the policy as a model directory."""

        def save(folder: Path) -> None:
            self.algorithm.save_to_path(str((folder / "algorithm").resolve()))
            save_policy(self.algorithm.policy_weights(), self.config.model_dir, folder / "policy")

        self.directory.save_checkpoint(step, save)

    def _evaluate(self, label: str, seconds: dict[str, float]) -> dict[str, Accuracy]:
        began = time.perf_counter()
        self.progress.note(f"evaluating {len(self.questions)} questions ({label})")
        settings = self.config.evaluation
        records = self.algorithm.solve(self.questions, settings.temperature, settings.seed)
        result = accuracies(self.questions, records)
        self.progress.accuracy(label, result)
        seconds["evaluation"] = time.perf_counter() - began
        return result

    def _log(self, line: dict[str, Any], accuracy: dict[str, Accuracy]) -> None:
        told = {group: a for group, a in accuracy.items() if a.asked}
        if accuracy:
            line["accuracy"] = {group: a.value for group, a in told.items()}
            line["interval"] = {group: list(a.interval()) for group, a in told.items()}
            line["questions"] = {group: a.asked for group, a in accuracy.items()}
            line["void_questions"] = sum(a.void for a in accuracy.values())
        now = time.perf_counter()
        line["seconds"]["wall"], self._last_line = now - self._last_line, now
        self.directory.append_metrics(line)
        figures = {name: value for name, value in line.items() if isinstance(value, float)}
        figures |= {f"seconds/{name}": value for name, value in line["seconds"].items()}
        self._board.add(
            line["step"], figures | {f"accuracy/{group}": a.value for group, a in told.items()}
        )


class _Board:
    """TensorBoard's copy of the figures."""

    def __init__(self, folder: Path, done: int) -> None:
        """
        Args:
            folder: where the events go.
            done: steps whose figures stand; later ones, of a run that was interrupted, are hidden.
        """
        self._folder = folder
        with self._writing():
            self._writer = SummaryWriter(str(folder), purge_step=done + 1 if done else None)

    def add(self, step: int, figures: dict[str, float]) -> None:
        """Adds the figures of a step.

        Raises:
            RunError: they cannot be written.
        """
        with self._writing():
            for name, value in figures.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        with self._writing():
            self._writer.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"{self._folder} cannot be written: {error}") from error


def summarise(config: RunConfig, directory: RunDirectory) -> dict[str, Any]:
    """The result of a finished run, from what its directory holds.

    Raises:
        RunError: its metrics cannot be read.
    """
    lines = directory.read_metrics()
    base, final = lines[0], lines[-1]
    world = open_world(config.world, **config.world_options)
    return {
        "preset": config.preset,
        "seed": config.seed,
        "steps": final["step"],
        "world": config.world,
        "verifier": resolve_verifier(config.game.verifier, world),
        "learning_roles": list(config.learning.learning_roles),
        "accuracy": {"base": base["accuracy"], "final": final["accuracy"]},
        "interval": {"base": base["interval"], "final": final["interval"]},
        "questions_per_hop": config.evaluation.per_group,
        "questions": {"base": base["questions"], "final": final["questions"]},
        "void_games": sum(line.get("void_games", 0.0) for line in lines),
        "void_questions": sum(line.get("void_questions", 0) for line in lines),
        "wall_seconds": round(sum(line["seconds"]["wall"] for line in lines), 1),
        "seconds_per_step": round(median(line["seconds"]["step"] for line in lines[1:]), 3),
        "model": config.model or "tiny (shipped)",
        "git_commit": git_commit(),
        "machine": machine(),
    }


@contextmanager
def local_ray(config: RunConfig) -> Iterator[None]:
    """A Ray of our own on this machine, quiet and without a dashboard; none is started where one is
    running already.

    ``RAY_ADDRESS`` names a cluster to use instead.
    """
    if ray.is_initialized():
        yield
        return
    quiet_libraries()
    compute = config.compute
    address = os.environ.get("RAY_ADDRESS", "local")
    local: dict[str, Any] = {}
    if address == "local":
        actors = compute.env_runners + compute.learners
        local["num_cpus"] = 1 + actors * compute.threads
        if not actors:
            # Nothing is shared between processes then.
            local["object_store_memory"] = 100 * 1024 * 1024
    ray.init(
        address=address,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        **local,
    )
    ignore_at_exit()  # Ray goes on with its shutdown then
    try:
        yield
    finally:
        with uninterrupted():
            ray.shutdown()

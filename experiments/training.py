"""A training run from its settings to its summary."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from torch.utils.tensorboard import SummaryWriter

from agents.config import ROLES
from agents.models import save_policy
from agents.rllib.algorithm import SSP, SSPConfig
from experiments.config import RunConfig, to_plain
from experiments.evaluation import Accuracy, accuracies
from experiments.progress import Progress
from experiments.provenance import git_commit, machine
from experiments.run_directory import RunDirectory
from ssp_env.game.rules import Rules, resolve_verifier
from ssp_env.judge.base import Judge, Verifier
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.worlds import open_world
from ssp_env.worlds.base import Question, World


class MakeRules:
    """Makes the rules in whichever process plays; carries settings, not clients."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def __call__(self, world: World, tokenizer: Tokenizer, game: Any) -> Rules:
        """Judge and verifier as the settings name them."""
        judge: Judge = ExactMatchJudge()
        verifier: Verifier | None = None
        if game.verifier == "openai" or self._config.openai.judge:
            from ssp_env.judge.openai import ChatClient, OpenAIJudge, OpenAIVerifier

            client = ChatClient(self._config.openai.chat())
            judge = OpenAIJudge(client) if self._config.openai.judge else judge
            verifier = OpenAIVerifier(client, judge) if game.verifier == "openai" else None
        return Rules.build(world, tokenizer, game, judge=judge, verifier=verifier)


def check(config: RunConfig) -> list[Question]:
    """Everything that can be known to fail before a run starts; returns the evaluation questions.

    Raises:
        SSPError: model, tokenizer, world, answers, prompts or questions cannot work.
    """
    world = open_world(config.world, **config.world_options)
    MakeRules(config)(world, HuggingFaceTokenizer.load(config.model_dir), config.game)
    assert len(world.answers), "worlds refuse empty answer sets"
    algorithm_config(config).validate()
    return world.questions(config.evaluation.seed, config.evaluation.per_group)


def algorithm_config(config: RunConfig) -> SSPConfig:
    """The RLlib config of a run."""
    learning = {name: value for name, value in vars(config.learning).items()}
    compute = config.compute
    made = SSPConfig().environment(
        env_config={
            "world": config.world,
            "world_options": config.world_options,
            "game": config.game,
            "make_rules": MakeRules(config),
        }
    )
    made.training(model_dir=config.model_dir, **learning)
    made.env_runners(num_env_runners=compute.env_runners, num_gpus_per_env_runner=compute.gpus_per_env_runner)
    made.learners(num_learners=compute.learners, num_gpus_per_learner=compute.gpus_per_learner)
    made.debugging(seed=config.seed, log_level="ERROR")
    return made


def train(config: RunConfig, out: str | Path, *, resume: bool = False, quiet: bool = False) -> dict[str, Any]:
    """Trains, evaluates, and leaves a run directory behind; returns the summary.

    Ctrl-C ends the run after the step in progress, with a checkpoint; ``resume`` goes on from there to the same
    result as an uninterrupted run.

    Raises:
        SSPError: a mistake that was found before training, or a disk that cannot be written to.
        KeyboardInterrupt: after an interrupted run was saved.
    """
    questions = check(config)
    directory = RunDirectory(out)
    first = directory.open(config, resume)
    torch.set_num_threads(config.compute.threads)
    with _ray(config), Progress(config.steps, quiet=quiet) as progress, _interruptible() as interrupted:
        algorithm = algorithm_config(config).build_algo()
        try:
            run = _Run(config, directory, algorithm, questions, progress)
            run.start(first)
            for step in range(first + 1, config.steps + 1):
                run.step(step, last=step == config.steps)
                if interrupted() and step < config.steps:
                    run.checkpoint(step)
                    raise KeyboardInterrupt
            return run.finish()
        finally:
            algorithm.stop()


class _Run:
    """One process's share of a run."""

    def __init__(
        self, config: RunConfig, directory: RunDirectory, algorithm: SSP, questions: list[Question], progress: Progress
    ) -> None:
        self.config, self.directory, self.algorithm = config, directory, algorithm
        self.questions, self.progress = questions, progress
        self.board = SummaryWriter(str(directory.path / "tensorboard"))
        self.accuracy: dict[str, dict[str, Accuracy]] = {}

    def start(self, first: int) -> None:
        """Measures the base policy, or takes a checkpoint back."""
        if first == 0:
            self._log({"step": 0}, self._evaluate("base"))
            return
        _, folder = self.directory.latest_checkpoint() or (0, Path())
        self.algorithm.restore_from_path(str((folder / "algorithm").resolve()))
        self.progress.note(f"resumed after step {first}")

    def step(self, step: int, last: bool) -> None:
        """Plays, learns, writes."""
        began = time.perf_counter()
        result = self.algorithm.train()["ssp"]
        figures = {name: float(value) for name, value in result["figures"].items()}
        seconds = {name: float(value) for name, value in result["seconds"].items()}
        seconds["step"] = time.perf_counter() - began
        self.directory.write_games(step, self.algorithm.last_games)
        evaluated = last or step % self.config.evaluation.every == 0
        accuracy = self._evaluate("final" if last else f"step {step}") if evaluated else {}
        self._log({"step": step, **figures, "seconds": seconds}, accuracy)
        self.progress.step(step, figures, seconds)
        if last or step % self.config.checkpoint_every == 0:
            self.checkpoint(step)

    def checkpoint(self, step: int) -> None:
        """Everything that is needed to go on, and the policy as a model directory."""

        def save(folder: Path) -> None:
            self.algorithm.save_to_path(str((folder / "algorithm").resolve()))
            save_policy(self.algorithm.policy_weights(), self.config.model_dir, folder / "policy")

        self.directory.save_checkpoint(step, save)

    def finish(self) -> dict[str, Any]:
        """Writes and returns the summary, made from the run directory alone."""
        self.board.close()
        lines = self.directory.read_metrics()
        world = open_world(self.config.world, **self.config.world_options)
        summary = {
            "preset": self.config.preset,
            "seed": self.config.seed,
            "steps": lines[-1]["step"],
            "world": self.config.world,
            "verifier": resolve_verifier(self.config.game.verifier, world),
            "learning_roles": list(self.config.learning.learning_roles),
            "accuracy": {"base": lines[0]["accuracy"], "final": lines[-1]["accuracy"]},
            "interval": {"base": lines[0]["interval"], "final": lines[-1]["interval"]},
            "questions_per_hop": self.config.evaluation.per_group,
            "void_games": sum(line.get("void_games", 0.0) for line in lines),
            "wall_seconds": round(sum(line["seconds"]["step"] for line in lines if "seconds" in line), 1),
            "seconds_per_step": _median([line["seconds"]["step"] for line in lines if "seconds" in line]),
            "model": str(self.config.model or "tiny (shipped)"),
            "git_commit": git_commit(),
            "machine": machine(),
        }
        self.directory.write_summary(summary)
        return summary

    def _evaluate(self, label: str) -> dict[str, Accuracy]:
        self.progress.note(f"evaluating {len(self.questions)} questions ({label})")
        settings = self.config.evaluation
        records = self.algorithm.solve(self.questions, settings.temperature, settings.seed)
        result = accuracies(self.questions, records)
        self.progress.accuracy(label, result)
        return result

    def _log(self, line: dict[str, Any], accuracy: dict[str, Accuracy]) -> None:
        if accuracy:
            line["accuracy"] = {group: a.value for group, a in accuracy.items()}
            line["interval"] = {group: list(a.interval()) for group, a in accuracy.items()}
        self.directory.append_metrics(line)
        for name, value in line.items():
            if isinstance(value, float):
                self.board.add_scalar(name, value, line["step"])
        for group, a in accuracy.items():
            self.board.add_scalar(f"accuracy/{group}", a.value, line["step"])
        self.board.flush()


def solver_only(config: RunConfig) -> RunConfig:
    """The paper's Solver-Only: the proposer plays on, but is not trained."""
    return replace(config, learning=replace(config.learning, learning_roles=(ROLES[1],)))


def describe(config: RunConfig) -> dict[str, Any]:
    """The settings as plain data."""
    return to_plain(config)


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return round(ordered[len(ordered) // 2], 3) if ordered else 0.0


@contextmanager
def _ray(config: RunConfig) -> Iterator[None]:
    """A local Ray, unless one is running; quiet, without a dashboard."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    wanted = max(2, config.compute.env_runners + config.compute.learners + 1)
    logging.getLogger("ray").setLevel(logging.ERROR)
    address = os.environ.get("RAY_ADDRESS")
    local: dict[str, Any] = {} if address else {"num_cpus": wanted, "object_store_memory": 256 * 1024 * 1024}
    ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **local)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C is only noted; a second one interrupts at once."""
    noted = False

    def note(signum: int, frame: Any) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)

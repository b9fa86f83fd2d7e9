"""A training run from its settings to its summary."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agents.config import played_at_once
from agents.engines.base import StopRule
from agents.engines.opening import open_engine
from agents.health import Monitor
from agents.models import save_policy
from agents.rollout import answer
from experiments.config import RunConfig
from experiments.run.checks import check, checkpoint_bytes
from experiments.run.directory import RunDirectory
from experiments.run.early_checks import check_learning
from experiments.run.interrupt import interruptible, uninterrupted
from experiments.run.progress import Progress
from experiments.run.quiet import quiet_libraries
from experiments.run.recorder import Recorder, Report, summarise, unmeasured
from ssp_env.errors import ServiceError, UnhealthyRun
from ssp_env.game.idle import idle_settings
from ssp_env.game.record import GameRecord, outages
from ssp_env.game.rules import Rules
from ssp_env.replay.header import SavedRules
from ssp_env.types import Question

if TYPE_CHECKING:
    from agents.rllib.algorithm import SSP

STOPPING = "stopping after this step; Ctrl-C again stops at once"
LEARNER = "learner"
"""The service that a :class:`~ssp_env.errors.ServiceError` names when a learner has died."""
AGAIN = "a learner died; the run goes on from step {step}, once"
STARTING = "starting Ray, engine and learner"
STARTING_OVER = "the run ended before its first checkpoint: it starts over"


def train(
    config: RunConfig,
    out: str | Path,
    *,
    resume: bool = False,
    quiet: bool = False,
    report: Report | None = None,
) -> dict[str, Any]:
    """Trains, evaluates, and leaves a run directory behind; returns the summary.

    Ctrl-C ends the run after the step in progress, with a checkpoint; ``resume`` goes on from there
    to the same result as an uninterrupted run. So do a collapse and an outage that lasts, see
    :mod:`agents.health`.

    Args:
        config: the run's settings.
        out: its directory.
        resume: go on with the run that is there.
        quiet: show nothing.
        report: is told of each line of ``metrics.jsonl`` that this call writes.

    Raises:
        UnhealthyRun: after a run that had gone wrong was saved.
        RunError: an outage has left a group of questions of the last evaluation without a single
            answer; the run is saved.
        SSPError: a mistake that was found before training, or a disk that cannot be written to.
        KeyboardInterrupt: after an interrupted run was saved.
    """
    began = time.perf_counter()
    quiet_libraries()
    if find_spec("ray") is None:
        # It is imported late, when the base policy has been evaluated.
        raise ModuleNotFoundError("No module named 'ray'", name="ray")

    check_learning(config)
    rules, questions = check(config)

    directory = RunDirectory(out)
    with directory.claimed(config, resume, checkpoint_bytes(config)) as first:
        if first < config.steps:
            with Progress(config.steps, done=first, quiet=quiet) as progress:
                for idle in idle_settings(rules):
                    progress.note(idle)
                if resume:
                    progress.note(f"resumed after step {first}" if first else STARTING_OVER)
                if stopped := directory.read_stopped():
                    progress.note(f"it was stopped after step {stopped.step}: {stopped}")
                _play(config, directory, first, rules, questions, progress, began, report)

        summary = summarise(config, directory, rules)
        directory.write_summary(summary)
        return summary


def _play(
    config: RunConfig,
    directory: RunDirectory,
    first: int,
    rules: Rules,
    questions: list[Question],
    progress: Progress,
    began: float,
    report: Report | None,
) -> None:
    """Plays what remains of a run.

    Args:
        config: the run's settings.
        directory: claimed for this run.
        first: the step to go on from; 0 begins with an evaluation of the base policy.
        rules: what this process plays by.
        questions: what the policy is measured by.
        progress: what a person sees.
        began: ``time.perf_counter()`` when the run began.
        report: is told of each line of metrics.
    """
    torch.set_num_threads(config.compute.threads)
    recorder = Recorder(config, directory, questions, progress, first, began, report)

    # Needs no Ray, so the first figures are there seconds earlier. Of vLLM, a process holds one.
    here = not config.compute.env_runners and config.engine.kind == "transformers"
    if not first and here:
        recorder.base(_BasePolicy(config, rules))

    progress.note(STARTING)
    from experiments.run.cluster import local_ray

    saved = SavedRules.of(rules)
    with local_ray(config):
        try:
            _run_steps(_Run(config, directory, saved, recorder), first, here, progress)
            return
        except ServiceError as error:
            if error.service != LEARNER:
                raise

        # Ray does not restart learners, since what one of them knew is gone with it.
        step = directory.go_back()
        progress.note(AGAIN.format(step=step))
        now = time.perf_counter()
        recorder = Recorder(config, directory, questions, progress, step, now, report)
        measured = directory.metrics.exists() and directory.metrics.stat().st_size > 0
        _run_steps(_Run(config, directory, saved, recorder), step, measured, progress)


def _run_steps(run: _Run, first: int, evaluated: bool, progress: Progress) -> None:
    """Builds the algorithm and plays the steps that come after ``first``.

    Args:
        run: what is played.
        first: the step of the checkpoint to go on from; 0 begins.
        evaluated: whether the base policy has been measured.
        progress: what a person sees.
    """
    with run.built():
        if first:
            run.restore()
        elif not evaluated:
            run.measure_base()

        progress.show_panel()
        run.go_on(first, progress)


class _BasePolicy:
    """The policy that a run starts from, answering questions in this process."""

    def __init__(self, config: RunConfig, rules: Rules) -> None:
        self._config, self._rules = config, rules

    def __call__(
        self, questions: Sequence[Question], temperature: float, seed: int
    ) -> list[GameRecord]:
        """One record per question. The model is forgotten afterwards."""
        config, tokenizer = self._config, self._rules.tokenizer
        on_gpu = config.compute.gpus_per_env_runner > 0
        engine = open_engine(
            config.engine,
            config.model_dir,
            tokenizer,
            StopRule.of(config.game, tokenizer),
            device="cuda" if on_gpu else "cpu",
            longest=self._rules.longest_trajectory,
        )
        return answer(
            self._rules,
            questions,
            engine,
            temperature=temperature,
            seed=seed,
            at_once=played_at_once(config.game, config.learning) if on_gpu else None,
        )


class _Run:
    """The training steps of one process."""

    _algorithm: SSP

    def __init__(
        self, config: RunConfig, directory: RunDirectory, rules: SavedRules, recorder: Recorder
    ) -> None:
        self._config, self._directory, self._rules = config, directory, rules
        self._recorder = recorder
        self._monitor = Monitor(config.health)

    @contextmanager
    def built(self) -> Iterator[None]:
        """Has an algorithm, with its model loaded."""
        from experiments.run.cluster import build

        self._algorithm = build(self._config)
        try:
            yield
        finally:
            with uninterrupted():
                self._algorithm.stop()

    def measure_base(self) -> None:
        """Measures the policy before the first step."""
        self._recorder.base(self._algorithm.solve)

    def restore(self) -> None:
        """Takes the newest checkpoint back."""
        latest = self._directory.latest_checkpoint()
        assert latest is not None, "a run goes on from a checkpoint"
        self._algorithm.restore_from_path(str((latest[1] / "algorithm").resolve()))

        self._monitor.replay(self._directory.read_metrics())
        if self._directory.read_stopped():
            # Whoever resumes a run that was stopped wants to see it go on.
            self._monitor.begin_again()

    def go_on(self, first: int, progress: Progress) -> None:
        """Plays the remaining steps.

        Raises:
            KeyboardInterrupt: after Ctrl-C, when the step in progress is done and saved.
            UnhealthyRun: the run has gone wrong; it is saved.
            RunError: it is done and saved, but an outage voided its last evaluation.
        """
        steps = self._config.steps
        with interruptible(lambda: progress.note(STOPPING)) as interrupted:
            for step in range(first + 1, steps + 1):
                figures = self.step(step)

                failed = outages(self._algorithm.last_games)
                diagnosis = self._monitor(step, figures, failed) if step < steps else None
                stop = interrupted() and step < steps
                due = step == steps or step % self._config.checkpoint_every == 0
                if stop or due or diagnosis:
                    self.checkpoint(step)
                if diagnosis:
                    self._directory.write_stopped(diagnosis)
                    raise UnhealthyRun(str(diagnosis))
                if stop:
                    raise KeyboardInterrupt

        self._recorder.close()
        if self._recorder.unmeasured:
            raise unmeasured(str(self._recorder.unmeasured), self._directory)

    def step(self, step: int) -> dict[str, float]:
        """Plays, learns, writes; returns the figures."""
        began = time.perf_counter()
        result = self._algorithm.train()["ssp"]
        figures = dict(self._algorithm.last_figures)
        seconds = {name: float(value) for name, value in result["seconds"].items()}
        seconds["step"] = time.perf_counter() - began

        games, tokens = self._algorithm.last_games, self._config.record_tokens
        self._directory.write_games(step, self._rules, games, tokens)
        self._recorder.step(step, figures, seconds, self._algorithm.solve)
        return figures

    def checkpoint(self, step: int) -> None:
        """Everything that is needed to go on, and the policy as a model directory."""

        def save(folder: Path) -> None:
            self._algorithm.save_to_path(str((folder / "algorithm").resolve()))
            weights = self._algorithm.policy_weights()
            save_policy(weights, self._config.model_dir, folder / "policy")

        self._directory.save_checkpoint(step, save, self._config.checkpoints_kept)

"""A training run from its settings to its summary."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from agents.health import Monitor
from agents.models import save_policy
from agents.rllib.algorithm import SSP
from experiments.config import RunConfig
from experiments.run.checks import check_settings, open_run
from experiments.run.cluster import build, local_ray
from experiments.run.process import interruptible, uninterrupted
from experiments.run.progress import Progress
from experiments.run.recorder import Recorder, Report, summarise
from experiments.run.rundir import RunDirectory
from ssp_env.errors import ServiceError, UnhealthyRun
from ssp_env.game.parts import idle_settings
from ssp_env.game.record import outages
from ssp_env.game.rules import Rules
from ssp_env.replay.header import SavedRules
from ssp_env.types import Question

LEARNER = "learner"
"""The service that a :class:`~ssp_env.errors.ServiceError` names when a learner has died."""


def train(
    config: RunConfig,
    out: str | Path,
    *,
    resume: bool = False,
    quiet: bool = False,
    report: Report | None = None,
) -> dict[str, Any]:
    """Trains, evaluates, and leaves a run directory behind; returns the summary.

    Ctrl-C and SIGTERM end the run after the step in progress, with a checkpoint; ``resume``
    continues from there to the same result as an uninterrupted run. A collapse or a
    lasting outage also ends it with a checkpoint, see :mod:`agents.health`.

    Args:
        config: the run's settings.
        out: its directory.
        resume: continue the run that is there.
        quiet: show nothing.
        report: receives each line of ``metrics.jsonl`` that this call writes.

    Raises:
        UnhealthyRun: after a run that had gone wrong was saved.
        RunError: an outage has left a group of questions of the last evaluation without a single
            answer; the run is saved.
        SSPError: a mistake that was found before training, or a disk that cannot be written to.
        KeyboardInterrupt: after an interrupted run was saved.
    """
    began = time.perf_counter()
    check_settings(config)
    rules, questions = open_run(config)
    directory = RunDirectory(out)
    with directory.claimed(config, resume) as steps_done:
        if steps_done < config.steps:
            with Progress(config.steps, done=steps_done, quiet=quiet) as progress:
                for idle in idle_settings(rules):
                    progress.note(idle)
                if resume and not steps_done:
                    progress.note("the run ended before its first checkpoint: it starts over")
                elif resume:
                    progress.note(f"resumed after step {steps_done}")
                if stopped := directory.read_stopped():
                    progress.note(f"it was stopped after step {stopped.step}: {stopped}")
                _Run(config, directory, rules, questions, progress, report).play(steps_done, began)

        summary = summarise(config, directory, rules)
        directory.write_summary(summary)
        return summary


class _Run:
    """The training steps of one process, in a directory that is claimed for them."""

    _algorithm: SSP
    _recorder: Recorder

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        rules: Rules,
        questions: list[Question],
        progress: Progress,
        report: Report | None,
    ) -> None:
        self._config, self._directory = config, directory
        self._rules, self._questions = SavedRules.of(rules), questions
        self._progress, self._report = progress, report
        self._monitor = Monitor(config.health)

    def play(self, steps_done: int, began: float) -> None:
        """Plays what remains of the run, which began at this ``time.perf_counter()``.

        Ray does not restart learners, since what one of them knew is lost with it: the run goes
        back to its newest checkpoint then, once.
        """
        torch.set_num_threads(self._config.compute.threads)
        self._progress.note("starting Ray, engine and learner")
        with local_ray(self._config):
            try:
                self._play_steps(steps_done, began)
            except ServiceError as error:
                if error.service != LEARNER:
                    raise
                step = self._directory.go_back()
                self._progress.note(f"a learner died; the run continues from step {step}, once")
                self._play_steps(step, time.perf_counter())

    def _play_steps(self, steps_done: int, began: float) -> None:
        """Builds the algorithm and plays the steps that come after those that are done."""
        self._recorder = Recorder(
            self._config,
            self._directory,
            self._questions,
            self._progress,
            steps_done,
            began,
            self._report,
        )
        self._algorithm = build(self._config)
        try:
            if steps_done:
                self._restore()
            elif not self._directory.metrics.exists():
                self._recorder.base(self._algorithm.solve)

            self._progress.show_panel()
            stopping = "stopping after this step; a second time stops at once"
            with interruptible(lambda: self._progress.note(stopping)) as interrupted:
                for step in range(steps_done + 1, self._config.steps + 1):
                    self._step(step, interrupted)
        finally:
            with uninterrupted():
                self._algorithm.stop()
        self._recorder.close()

    def _restore(self) -> None:
        """Takes the newest checkpoint back."""
        latest = self._directory.latest_checkpoint()
        assert latest is not None, "a run continues from a checkpoint"
        self._algorithm.restore_from_path(str((latest[1] / "algorithm").resolve()))

        self._monitor.replay(self._directory.read_metrics())
        if self._directory.read_stopped():
            # It is resumed on purpose: what stopped it must happen anew to stop it again.
            self._monitor.begin_again()

    def _step(self, step: int, interrupted: Callable[[], KeyboardInterrupt | None]) -> None:
        """Plays, learns, writes; saves a checkpoint where one is due or the run ends here."""
        config, directory, algorithm = self._config, self._directory, self._algorithm
        began = time.perf_counter()
        result = algorithm.train()["ssp"]
        figures = dict(algorithm.last_figures)
        seconds = {name: float(value) for name, value in result["seconds"].items()}
        seconds["step"] = time.perf_counter() - began

        games = algorithm.last_games
        directory.write_games(step, self._rules, games)
        self._recorder.step(step, figures, seconds, algorithm.solve)

        last = step == config.steps
        diagnosis = None if last else self._monitor(step, figures, outages(games))
        interruption = None if last else interrupted()
        if last or diagnosis or interruption or step % config.checkpoint_every == 0:
            directory.save_checkpoint(step, self._save, config.checkpoints_kept)
        if diagnosis:
            directory.write_stopped(diagnosis)
            raise UnhealthyRun(str(diagnosis))
        if interruption:
            raise interruption

    def _save(self, folder: Path) -> None:
        """Writes all that is needed to resume, and the policy as a model directory."""
        self._algorithm.save_to_path(str((folder / "algorithm").resolve()))
        save_policy(self._algorithm.policy_weights(), self._config.model_dir, folder / "policy")

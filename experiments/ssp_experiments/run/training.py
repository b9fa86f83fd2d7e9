"""A training run from its settings to its summary."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ssp_agents.health import Monitor
from ssp_agents.rllib.algorithm import SSP
from ssp_env.errors import LearnerDied, UnhealthyRun
from ssp_env.game.record import outages
from ssp_env.game.rules import idle_settings
from ssp_env.replay.files import SavedRules
from ssp_experiments.config import RunConfig
from ssp_experiments.run.checks import check_settings, open_run
from ssp_experiments.run.cluster import build, started_ray
from ssp_experiments.run.process import interruptible, uninterrupted
from ssp_experiments.run.progress import Progress
from ssp_experiments.run.recorder import Recorder, Report, summarise
from ssp_experiments.run.rundir import RunDirectory


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
    continues from there to the same result as an uninterrupted run. A collapse or a lasting outage
    also ends it with a checkpoint, see :mod:`ssp_agents.health`.

    ``report`` receives each line of ``metrics.jsonl`` that this call writes.

    Raises:
        UnhealthyRun: after a run that had gone wrong was saved.
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
                recorder = Recorder(
                    config, directory, questions, progress, steps_done, began, report
                )
                with closing(recorder):
                    run = _Run(config, directory, SavedRules.of(rules), progress, recorder)
                    run.play(steps_done)

        summary = summarise(config, directory, rules)
        directory.write_summary(summary)
        return summary


@dataclass
class _Run:
    """The training steps of one process, in a directory that is claimed for them."""

    config: RunConfig
    directory: RunDirectory
    rules: SavedRules
    progress: Progress
    recorder: Recorder

    def play(self, steps_done: int) -> None:
        """Plays what remains of the run.

        Ray does not restart learners, since what one of them knew is lost with it: the run goes
        back to its newest checkpoint then, once.
        """
        torch.set_num_threads(self.config.compute.threads)
        self.progress.note("starting Ray, engine and learner")
        with started_ray(self.config):
            try:
                self._play_steps(steps_done)
            # Another death in the second try is no accident, and ends the run.
            except LearnerDied:
                step = self.directory.go_back()
                self.progress.note(f"a learner died; the run continues from step {step}, once")
                self._play_steps(step)

    def _play_steps(self, steps_done: int) -> None:
        """Builds the algorithm and plays the steps that come after those that are done."""
        # A run that is shorter than the patience is told at its end.
        patience = self.config.patience and min(self.config.patience, self.config.steps)
        algorithm, monitor = build(self.config), Monitor(patience)
        try:
            if steps_done:
                self._restore(algorithm, monitor)
            elif not self.directory.metrics.exists():
                self.recorder.base(algorithm.solve)

            stopping = "stopping after this step; a second time stops at once"
            with interruptible(lambda: self.progress.note(stopping)) as interrupted:
                for step in range(steps_done + 1, self.config.steps + 1):
                    self._step(step, algorithm, monitor, interrupted)
        finally:
            with uninterrupted():
                algorithm.stop()

    def _restore(self, algorithm: SSP, monitor: Monitor) -> None:
        """Takes the newest checkpoint back."""
        latest = self.directory.latest_checkpoint()
        assert latest is not None, "a run continues from a checkpoint"
        algorithm.restore_from_path(str((latest[1] / "algorithm").resolve()))

        # A run that was stopped is resumed on purpose: what stopped it must happen anew.
        if not self.directory.read_stopped():
            monitor.replay(self.directory.read_metrics())

    def _step(
        self,
        step: int,
        algorithm: SSP,
        monitor: Monitor,
        interrupted: Callable[[], KeyboardInterrupt | None],
    ) -> None:
        """Plays, learns, writes; saves a checkpoint where one is due or the run ends here."""
        began = time.perf_counter()
        result = algorithm.train()["ssp"]
        seconds = {name: float(value) for name, value in result["seconds"].items()}
        seconds["step"] = time.perf_counter() - began

        figures, games = dict(algorithm.last_figures), algorithm.last_games
        self.directory.write_games(step, self.rules, games)
        self.recorder.step(step, figures, seconds, algorithm.solve)

        def save(folder: Path) -> None:
            """Writes all that is needed to resume, and the policy as a model directory."""
            algorithm.save_to_path(str((folder / "algorithm").resolve()))
            algorithm.save_policy(folder / "policy")

        last = step == self.config.steps
        diagnosis = monitor(step, figures, outages(games))
        interruption = None if last else interrupted()
        if last or diagnosis or interruption or step % self.config.checkpoint_every == 0:
            self.directory.save_checkpoint(step, save, self.config.checkpoints_kept)
        if diagnosis and last:
            self.progress.note(str(diagnosis))
        elif diagnosis:
            self.directory.write_stopped(diagnosis)
            raise UnhealthyRun(str(diagnosis))
        if interruption:
            raise interruption

"""A training run from its settings to its summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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
from experiments.run.checks import check, check_learning
from experiments.run.process import interruptible, quiet_libraries, uninterrupted
from experiments.run.progress import Progress
from experiments.run.recorder import Recorder, Report, summarise, unmeasured
from experiments.run.rundir import RunDirectory
from ssp_env.errors import ServiceError, UnhealthyRun
from ssp_env.game.parts import idle_settings
from ssp_env.game.record import GameRecord, outages
from ssp_env.game.rules import Rules
from ssp_env.replay.header import SavedRules
from ssp_env.types import Question

if TYPE_CHECKING:
    from agents.rllib.algorithm import SSP

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
    quiet_libraries()
    if find_spec("ray") is None:
        # It is imported late, when the base policy has been evaluated.
        raise ModuleNotFoundError("No module named 'ray'", name="ray")

    check_learning(config)
    rules, questions = check(config)
    directory = RunDirectory(out)
    with directory.claimed(config, resume) as first:
        if first < config.steps:
            with Progress(config.steps, done=first, quiet=quiet) as progress:
                for idle in idle_settings(rules):
                    progress.note(idle)
                if resume and not first:
                    progress.note("the run ended before its first checkpoint: it starts over")
                elif resume:
                    progress.note(f"resumed after step {first}")
                if stopped := directory.read_stopped():
                    progress.note(f"it was stopped after step {stopped.step}: {stopped}")
                _Run(config, directory, rules, questions, progress, report).play(first, began)

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
        self._rules, self._questions = rules, questions
        self._progress, self._report = progress, report
        self._monitor, self._saved_rules = Monitor(config.patience), SavedRules.of(rules)

    def play(self, first: int, began: float) -> None:
        """Plays what remains of the run.

        Args:
            first: the step to continue from; 0 begins with an evaluation of the base policy.
            began: ``time.perf_counter()`` when the run began.
        """
        config, directory = self._config, self._directory
        torch.set_num_threads(config.compute.threads)
        self._record(first, began)

        # Needs no Ray, so the first figures come seconds earlier. Of vLLM, a process holds one.
        here = not config.compute.env_runners and config.engine.kind == "transformers"
        if not first and here:
            self._recorder.base(self._solve_here)

        self._progress.note("starting Ray, engine and learner")
        from experiments.run.cluster import local_ray

        with local_ray(config):
            try:
                self._play_steps(first, evaluated=here)
                return
            except ServiceError as error:
                if error.service != LEARNER:
                    raise

            # Ray does not restart learners, since what one of them knew is lost with it.
            step = directory.go_back()
            self._progress.note(f"a learner died; the run continues from step {step}, once")
            self._record(step, time.perf_counter())
            measured = directory.metrics.exists() and directory.metrics.stat().st_size > 0
            self._play_steps(step, evaluated=measured)

    def _record(self, done: int, began: float) -> None:
        self._recorder = Recorder(
            self._config,
            self._directory,
            self._questions,
            self._progress,
            done,
            began,
            self._report,
        )

    def _solve_here(
        self, questions: Sequence[Question], temperature: float, seed: int
    ) -> list[GameRecord]:
        """Lets the base policy answer in this process; the model is forgotten afterwards."""
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

    def _play_steps(self, first: int, evaluated: bool) -> None:
        """Builds the algorithm and plays the steps that come after ``first``.

        Args:
            first: the step of the checkpoint to continue from; 0 begins.
            evaluated: whether the base policy has been measured.

        Raises:
            KeyboardInterrupt: after Ctrl-C or SIGTERM, when the step in progress is done and saved.
            UnhealthyRun: the run has gone wrong; it is saved.
            RunError: it is done and saved, but an outage voided its last evaluation.
        """
        from experiments.run.cluster import build

        self._algorithm = build(self._config)
        try:
            if first:
                self._restore()
            elif not evaluated:
                self._recorder.base(self._algorithm.solve)

            self._progress.show_panel()
            stopping = "stopping after this step; a second time stops at once"
            with interruptible(lambda: self._progress.note(stopping)) as interrupted:
                for step in range(first + 1, self._config.steps + 1):
                    self._step(step, interrupted)
        finally:
            with uninterrupted():
                self._algorithm.stop()

        self._recorder.close()
        if self._recorder.unmeasured:
            raise unmeasured(str(self._recorder.unmeasured), self._directory)

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
        directory.write_games(step, self._saved_rules, games, config.record_tokens)
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

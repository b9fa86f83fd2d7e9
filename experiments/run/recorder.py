"""Evaluations and figures of a run: on the screen, in files, for TensorBoard, in the summary."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tensorboardX import SummaryWriter

from agents.rollout import waits_for_others
from experiments.config import RunConfig
from experiments.run.process import git_commit, machine
from experiments.run.progress import Progress
from experiments.run.rundir import RunDirectory, finite
from experiments.stats import share
from ssp_env.errors import RunError, ServiceError
from ssp_env.game.record import GameRecord, outages
from ssp_env.game.rules import Rules, fingerprint, resolve_verifier
from ssp_env.types import Question

Solve = Callable[[Sequence[Question], float, int], list[GameRecord]]
"""Lets a policy answer questions at a temperature, with a seed: one record per question."""
Report = Callable[[dict[str, Any]], object]
"""Receives each line of ``metrics.jsonl``, once it is there."""


@dataclass(frozen=True)
class Accuracy:
    """Share of right answers in a group of questions."""

    right: int
    asked: int
    void: int = 0
    """Questions that an outage hit; they are not among those asked."""

    @property
    def value(self) -> float:
        """The share; not a number if nothing was asked."""
        return self.right / self.asked if self.asked else math.nan

    def interval(self) -> tuple[float, float]:
        """Wilson's interval of 95%; everything is possible if nothing was asked."""
        found = share(self.right, self.asked)
        return found.low, found.high


def accuracies(questions: Sequence[Question], records: Sequence[GameRecord]) -> dict[str, Accuracy]:
    """Pass@1 of each group, from the first attempt at each question.

    Args:
        questions: what was asked.
        records: one game per question, in the same order.
    """
    tallies: dict[str, list[int]] = {}

    for question, record in zip(questions, records, strict=True):
        tally = tallies.setdefault(question.group, [0, 0, 0])
        if record.outcome == "void":
            tally[2] += 1
            continue

        solver = [trajectory for trajectory in record.trajectories if trajectory.role == "solver"]
        tally[0] += bool(solver and solver[0].reward)
        tally[1] += 1

    return {group: Accuracy(*tally) for group, tally in sorted(tallies.items())}


class Recorder:
    """Evaluates the policy, and writes down each step."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        questions: list[Question],
        progress: Progress,
        done: int,
        began: float,
        report: Report | None = None,
    ) -> None:
        """
        Args:
            config: the run's settings.
            directory: where the figures go.
            questions: what the policy is measured by.
            progress: what a person sees.
            done: steps that an earlier part of the run has done.
            began: ``time.perf_counter()`` when the run began.
            report: receives each line, too.
        """
        self._report = report
        self._config, self._directory = config, directory
        self._questions, self._progress = questions, progress
        # TensorBoard hides the steps after ``done``, of a run that was interrupted.
        purge = done + 1 if done else None
        try:
            self._board = SummaryWriter(str(directory.tensorboard), purge_step=purge)
        except OSError as error:
            raise RunError(f"{directory.tensorboard} cannot be written: {error}") from error
        self._last_line = began
        self.unmeasured: ServiceError | None = None
        """Outage that left a group of questions of the last evaluation without a single answer."""

    def base(self, solve: Solve) -> None:
        """Measures the policy before the first step.

        Raises:
            ServiceError: an outage leaves a group of questions without a single answer.
        """
        seconds: dict[str, float] = {}
        base = self._evaluate("base", solve, seconds)
        if self.unmeasured:
            raise self.unmeasured
        self._log({"step": 0}, seconds, base)

    def step(
        self, step: int, figures: dict[str, float], seconds: dict[str, float], solve: Solve
    ) -> None:
        """Shows and writes a step, with an evaluation where one is due."""
        self._progress.step(step, figures, seconds)

        accuracy: dict[str, Accuracy] = {}
        last = step == self._config.steps
        if last or step % self._config.evaluation.every == 0:
            accuracy = self._evaluate("final" if last else f"step {step}", solve, seconds)
        self._log({"step": step, **figures}, seconds, accuracy)

    def close(self) -> None:
        """Closes TensorBoard's file."""
        self._board.close()

    def _evaluate(self, label: str, solve: Solve, seconds: dict[str, float]) -> dict[str, Accuracy]:
        """Accuracies by group; adds the time it took to ``seconds``."""
        began = time.perf_counter()
        self._progress.note(f"evaluating {len(self._questions)} questions ({label})")

        settings = self._config.evaluation
        records = solve(self._questions, settings.temperature, settings.seed)
        result = accuracies(self._questions, records)

        self._progress.accuracy(label, result)
        seconds["evaluation"] = time.perf_counter() - began

        silent = [group for group, accuracy in result.items() if not accuracy.asked]
        self.unmeasured = _outage(silent[0], self._questions, records) if silent else None
        return result

    def _log(
        self, line: dict[str, Any], seconds: dict[str, float], accuracy: dict[str, Accuracy]
    ) -> None:
        """Writes one line of ``metrics.jsonl``, and the same for TensorBoard."""
        now = time.perf_counter()
        seconds["wall"], self._last_line = now - self._last_line, now
        line["seconds"] = seconds

        # A group that an outage hit whole has no accuracy.
        known = {group: a for group, a in accuracy.items() if a.asked}
        if accuracy:
            line["accuracy"] = {group: a.value for group, a in known.items()}
            line["interval"] = {group: list(a.interval()) for group, a in known.items()}
            line["questions"] = {group: a.asked for group, a in accuracy.items()}
            line["void_questions"] = sum(a.void for a in accuracy.values())
        self._directory.append_metrics(line)

        figures = {name: value for name, value in line.items() if isinstance(value, float)}
        figures |= {f"seconds/{name}": value for name, value in seconds.items()}
        figures |= {f"accuracy/{group}": a.value for group, a in known.items()}
        try:
            for name, value in figures.items():
                self._board.add_scalar(name, value, line["step"])
            self._board.flush()
        except OSError as error:
            raise RunError(f"{self._directory.tensorboard} cannot be written: {error}") from error

        if self._report is not None:
            self._report(finite(line))


def _outage(
    group: str, questions: Sequence[Question], records: Sequence[GameRecord]
) -> ServiceError:
    """The error of a group of which no question has been answered and judged."""
    asked = zip(questions, records, strict=True)
    found = outages(record for question, record in asked if question.group == group)
    what = f"no question of group {group} could be judged; "
    return ServiceError(
        found[0].service if found else "judge",
        what + (found[0].what if found else "see that it answers"),
    )


def unmeasured(what: str, directory: RunDirectory) -> RunError:
    """The error of a run whose last evaluation an outage has voided; its last step is saved."""
    latest = directory.latest_checkpoint()
    assert latest is not None, "a run is saved before it ends"
    policy = shlex.quote(str(latest[1] / "policy"))
    return RunError(f"after the last step, {what}. The policy is saved: ssp eval --model {policy}")


def same_seed(config: RunConfig, rules: Rules) -> str:
    """Degree to which another run of the same seed on the same machine gives the same."""
    compute = config.compute
    if (
        config.engine.kind != "transformers"
        or compute.gpus_per_env_runner
        or compute.gpus_per_learner
    ):
        return "the same up to floating point (engine or GPU)"
    if waits_for_others(rules):
        return "the same up to floating point (services of other machines)"
    return "the same to the last bit"


def summarise(config: RunConfig, directory: RunDirectory, rules: Rules) -> dict[str, Any]:
    """The result of a finished run, from what its directory holds.

    Raises:
        RunError: its metrics cannot be read, or an outage has left nothing of the last evaluation.
    """
    lines = directory.read_metrics()
    base, final = lines[0], lines[-1]
    if silent := base["accuracy"].keys() - final["accuracy"].keys():
        raise unmeasured(f"no question of group {min(silent)} could be judged", directory)

    return {
        "preset": config.preset,
        "seed": config.seed,
        "steps": final["step"],
        "world": config.world,
        "verifier": resolve_verifier(config.game.verifier, rules.world),
        "learning_roles": list(config.learning.learning_roles),
        **{
            name: {"base": base[name], "final": final[name]}
            for name in ("accuracy", "interval", "questions")
        },
        "questions_per_hop": config.evaluation.per_group,
        "void_games": sum(line.get("void_games", 0.0) for line in lines),
        "void_questions": sum(line.get("void_questions", 0) for line in lines),
        "wall_seconds": round(sum(line["seconds"]["wall"] for line in lines), 1),
        "seconds_per_step": round(median(line["seconds"]["step"] for line in lines[1:]), 3),
        "fingerprint": fingerprint(rules),
        "engine": config.engine.kind,
        "same_seed": same_seed(config, rules),
        "model": config.model or "tiny (shipped)",
        "git_commit": git_commit(),
        "machine": machine(),
    }

"""Evaluations and figures of a run: on the screen, in files, for a tracker, in the summary."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ssp_env.errors import RunError, ServiceError
from ssp_env.game.outcome import Outage
from ssp_env.game.record import GameRecord, outages
from ssp_env.game.rules import Rules, fingerprint, resolve_verifier
from ssp_env.types import Question
from ssp_experiments.config import RunConfig
from ssp_experiments.run.process import git_commit, machine
from ssp_experiments.run.progress import Progress
from ssp_experiments.run.rundir import RunDirectory
from ssp_experiments.run.trackers import TRACKERS
from ssp_experiments.stats import share

Solve = Callable[[Sequence[Question]], list[GameRecord]]
Report = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Accuracy:
    """Share of right answers in a group of questions."""

    right: int
    asked: int
    void: int = 0
    """Questions that an outage hit; they are not among those asked."""
    outage: Outage | None = None
    """The first of these outages."""

    def __str__(self) -> str:
        """The share, and how many questions an outage hit."""
        why = f": {self.outage.what}" if self.outage and not self.asked else ""
        void = f" ({self.void} void{why})" if self.void else ""
        return f"{self.right / self.asked:.3f}{void}" if self.asked else f"-{void}"


def accuracies(questions: Sequence[Question], records: Sequence[GameRecord]) -> dict[str, Accuracy]:
    """Pass@1 of each group, from the first attempt at each question; one game per question."""
    groups: dict[str, list[GameRecord]] = {}
    for question, record in zip(questions, records, strict=True):
        groups.setdefault(question.group, []).append(record)

    found = {}
    for group, played in sorted(groups.items()):
        judged = [record for record in played if record.outcome != "void"]
        right = sum(any(attempt.right for attempt in record.attempts[:1]) for record in judged)
        first = next(iter(outages(played)), None)
        found[group] = Accuracy(right, len(judged), len(played) - len(judged), first)
    return found


class Recorder:
    """Evaluates the policy, and writes down each step; ``report`` receives each line, too."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        questions: list[Question],
        progress: Progress,
        steps_done: int,
        began: float,
        report: Report | None = None,
    ) -> None:
        self._config, self._directory, self._report = config, directory, report
        self._questions, self._progress = questions, progress
        self._last_line = began
        try:
            self._tracker = TRACKERS[config.tracker](config, directory, steps_done)
        except Exception as error:  # each library raises its own
            raise RunError(f"tracker {config.tracker} cannot be opened: {error}") from error

    def base(self, solve: Solve) -> None:
        """Measures the policy before the first step; a run whose base is unknown does not begin."""
        seconds: dict[str, float] = {}
        base = self._evaluate("base", solve, seconds)
        # Against an unknown base, no later accuracy would say anything.
        for group, accuracy in base.items():
            if accuracy.outage and not accuracy.asked:
                what = f"no question of group {group} could be judged; {accuracy.outage.what}"
                raise ServiceError(accuracy.outage.service, what)
        self._log({"step": 0}, seconds, base)

    def step(
        self, step: int, figures: dict[str, float], seconds: dict[str, float], solve: Solve
    ) -> None:
        """Shows and writes a step, with an evaluation where one is due."""
        self._progress.step(step, figures, seconds["step"])
        last, accuracy = step == self._config.steps, dict[str, Accuracy]()
        if last or step % self._config.evaluate_every == 0:
            accuracy = self._evaluate("final" if last else f"step {step}", solve, seconds)
        self._log({"step": step, **figures}, seconds, accuracy)

    def close(self) -> None:
        """Closes the tracker."""
        self._tracker.close()

    def _evaluate(self, label: str, solve: Solve, seconds: dict[str, float]) -> dict[str, Accuracy]:
        """Accuracies by group; adds the time it took to ``seconds``."""
        began = time.perf_counter()
        self._progress.note(f"evaluating {len(self._questions)} questions ({label})")
        result = accuracies(self._questions, solve(self._questions))
        shown = "  ".join(f"{group}: {accuracy}" for group, accuracy in result.items())
        self._progress.note(f"accuracy {label}:  {shown}")
        seconds["evaluation"] = time.perf_counter() - began
        return result

    def _log(
        self, line: dict[str, Any], seconds: dict[str, float], accuracy: dict[str, Accuracy]
    ) -> None:
        """Writes one line of ``metrics.jsonl``, and the same for the tracker."""
        now = time.perf_counter()
        seconds["wall"], self._last_line = now - self._last_line, now
        line["seconds"] = seconds

        # A group that an outage hit whole has no accuracy.
        known = {group: share(a.right, a.asked) for group, a in accuracy.items() if a.asked}
        if accuracy:
            line["accuracy"] = {group: found.mean for group, found in known.items()}
            line["interval"] = {group: found.interval for group, found in known.items()}
            line["questions"] = {group: a.asked for group, a in accuracy.items()}
            line["void_questions"] = sum(a.void for a in accuracy.values())
        line = self._directory.append_metrics(line)

        figures = {name: value for name, value in line.items() if isinstance(value, float)}
        figures |= {f"seconds/{name}": value for name, value in seconds.items()}
        figures |= {f"accuracy/{group}": found.mean for group, found in known.items()}
        try:
            self._tracker.log(line["step"], figures)
        except Exception as error:
            raise RunError(f"tracker {self._config.tracker} failed: {error}") from error

        if self._report is not None:
            self._report(line)


def summarise(config: RunConfig, directory: RunDirectory, rules: Rules) -> dict[str, Any]:
    """The result of a finished run, from what its directory holds; refused where an outage has left
    nothing of a group of questions in the last evaluation."""
    lines = directory.read_metrics()
    base, final = lines[0], lines[-1]
    if silent := base["accuracy"].keys() - final["accuracy"].keys():
        latest = directory.latest_checkpoint()
        assert latest is not None, "a run is saved before it ends"
        what = f"after the last step, no question of group {min(silent)} could be judged"
        policy = shlex.quote(str(latest[1] / "policy"))
        raise RunError(f"{what}. The policy is saved: ssp eval --model {policy}")

    played = fingerprint(rules)
    verifier = resolve_verifier(config.game.verifier, rules.world)
    return {
        "seed": config.seed,
        "steps": final["step"],
        "world": rules.world.name if config.rules else config.world,
        "verifier": played["verifier"] if config.rules else verifier,
        "learning_roles": list(config.learning.learning_roles),
        **{
            name: {"base": base[name], "final": final[name]}
            for name in ("accuracy", "interval", "questions")
        },
        "void_games": sum(line.get("void_games", 0.0) for line in lines),
        "void_questions": sum(line.get("void_questions", 0) for line in lines),
        "wall_seconds": round(sum(line["seconds"]["wall"] for line in lines), 1),
        "fingerprint": played,
        "git_commit": git_commit(),
        "machine": machine(),
    }

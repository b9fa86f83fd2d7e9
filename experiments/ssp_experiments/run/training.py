"""A training run around the loop of examples/self_play.py: screen, files, tracker, checkpoints.

The loop itself, in which a step is played and learnt from, is ``SSP.training_step`` in
``agents/ssp_agents/rllib/algorithm.py``."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ssp_agents.config import given_per_step
from ssp_agents.health import Monitor
from ssp_agents.metrics import Accuracy, accuracies
from ssp_agents.rllib.algorithm import SSP
from ssp_env.errors import LearnerDied, RunError, ServiceError, UnhealthyRun
from ssp_env.game.record import outages
from ssp_env.game.rules import Rules, fingerprint, idle_settings, resolve_verifier
from ssp_env.game.schedule import at_step, idle_points
from ssp_env.replay import read_games
from ssp_env.replay.files import SavedRules
from ssp_env.types import Question
from ssp_experiments.config import POLICIES, RunConfig
from ssp_experiments.options import plural
from ssp_experiments.planner import check_memory
from ssp_experiments.run.checks import check_settings, open_training
from ssp_experiments.run.cluster import build, started_ray
from ssp_experiments.run.process import git_commit, interruptible, machine, uninterrupted
from ssp_experiments.run.progress import Progress, heartbeat
from ssp_experiments.run.rules import kept_open
from ssp_experiments.run.rundir import RunDirectory
from ssp_experiments.run.trackers import Show, tracking
from ssp_experiments.stats import share

Report = Callable[[dict[str, Any]], object]


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
    planned = check_memory(config)
    rules, questions = open_training(config)
    directory = RunDirectory(out)
    had_ended = directory.summary.exists()
    saved_rules = replace(SavedRules.of(rules), fingerprint=fingerprint(rules)["hash"])
    with kept_open(), directory.claimed(config, resume) as steps_done:
        tell_lost_games(directory, steps_done)
        if steps_done < config.steps:
            with (
                Progress(config.steps, done=steps_done, quiet=quiet) as progress,
                ExitStack() as open_,
            ):
                for idle in idle_settings(rules) if config.learning.share_given < 1 else ():
                    progress.note(idle)
                for idle in idle_steps(config):
                    progress.note(idle)
                if config.learning.share_given:
                    progress.note(describe_given(config))
                if resume and not steps_done:
                    progress.note("the run ended before its first checkpoint: it starts over")
                elif resume:
                    progress.note(f"resumed after step {steps_done}")
                    file = directory.game_files.get(steps_done)
                    before = next(read_games(file), None) if file else None
                    if before and before.rules.fingerprint != saved_rules.fingerprint:
                        what = "passages, search, judge, verifier or prompts"
                        progress.note(f"from here on, it is played by other {what} than before")
                if stopped := directory.read_stopped():
                    progress.note(f"it was stopped after step {stopped.step}: {stopped}")
                track = open_tracker(open_, config, directory, steps_done)
                run = _Run(
                    planned, directory, saved_rules, questions, progress, track, report, began
                )
                run.play(steps_done)

        elif not had_ended:
            # Killed behind its last checkpoint: the tracker may lack what it had not written yet.
            with ExitStack() as open_:
                open_tracker(open_, config, directory, steps_done)

        summary = summarise(config, directory, rules)
        directory.write_summary(summary)
        return summary


def open_tracker(
    open_: ExitStack, config: RunConfig, directory: RunDirectory, steps_done: int
) -> Show:
    """The run's tracker, until the stack closes it."""
    try:
        return open_.enter_context(tracking(config, directory, steps_done))
    except Exception as error:  # each library raises its own
        raise RunError(f"tracker {config.tracker} cannot be opened: {error}") from error


def tell_lost_games(directory: RunDirectory, steps_done: int) -> None:
    """Says which files of games a run has lost; it goes on without them."""
    lost = [step for step in range(1, steps_done + 1) if step not in directory.game_files]
    if lost:
        which = plural(len(lost), "step")
        what = f"the games of {which}, the first of step {lost[0]}, are gone from {directory.games}"
        fix = "restore them from a copy: replay, report and questions lack them"
        print(f"ssp: {what}; {fix}", file=sys.stderr)


def idle_steps(config: RunConfig) -> Iterator[str]:
    """One line for each setting that asks for something after the last step."""
    yield from idle_points(config.learning.schedules, config.steps)
    every = config.learning.verifier_refresh
    # The copy that the last step makes verifies nothing.
    if every >= config.steps:
        yield (
            f"learning.verifier_refresh = {every} has no effect: the last step is {config.steps}, "
            "and a copy verifies in the steps after it"
        )


def describe_given(config: RunConfig) -> str:
    """What a run learns from that is given questions, and who plays."""
    given, batch = given_per_step(config.learning, config.game), config.learning.batch_size
    whole = "; nothing is proposed, and the solver alone learns" if given == batch else ""
    where = config.learning.questions
    source = where if isinstance(where, str) else plural(len(where), "question")
    return f"{given} of {plural(batch, 'question')} a step are given ({source}){whole}"


@dataclass
class _Run:
    """The training steps of one process, in a directory that is claimed for them."""

    config: RunConfig
    directory: RunDirectory
    rules: SavedRules
    questions: list[Question]
    """Those that the policy is measured by."""
    progress: Progress
    track: Show
    report: Report | None
    last_line: float
    """When the last line of metrics was written, by ``time.perf_counter``."""

    def play(self, steps_done: int) -> None:
        """Plays what remains of the run.

        Ray does not restart learners, since what one of them knew is lost with it: the run goes
        back to its newest checkpoint then, once.
        """
        torch.set_num_threads(self.config.compute.threads)
        self.progress.note("starting Ray, engine and learner")
        # On a terminal, the bar says what is sampled.
        beats = heartbeat(self.progress.note) if self.progress.disable else nullcontext()
        with beats, started_ray(self.config):
            try:
                self._play_steps(steps_done)
            # Another death in the second try is no accident, and ends the run.
            except LearnerDied:
                step = self.directory.go_back()
                self.progress.note(f"a learner died; the run continues from step {step}, once")
                self._play_steps(step)

    def _play_steps(self, steps_done: int) -> None:
        """Builds the algorithm and plays the steps that come after those that are done."""
        # In a run that is shorter than the patience, it ends with the run.
        patience = self.config.patience and min(self.config.patience, self.config.steps)
        algorithm, monitor = build(self.config), Monitor(patience)
        try:
            if steps_done:
                _, checkpoint = self.directory.kept_checkpoints()[-1]
                algorithm.restore_from_path(str((checkpoint / "algorithm").resolve()))
                # A run that was stopped is resumed on purpose: what stopped it must happen anew.
                if not self.directory.read_stopped():
                    monitor.replay(self.directory.read_metrics())
            elif not self.directory.metrics.exists():
                self._measure_base(algorithm)

            stopping = "stopping after this step; a second time stops at once"
            with interruptible(lambda: self.progress.note(stopping)) as seen:
                for step in range(steps_done + 1, self.config.steps + 1):
                    self._step(step, algorithm, monitor, seen)
        finally:
            with uninterrupted():
                algorithm.stop()

    def _step(
        self, step: int, algorithm: SSP, monitor: Monitor, seen: Sequence[KeyboardInterrupt]
    ) -> None:
        """Plays, learns, writes; saves a checkpoint where one is due or the run ends here, as it
        does after an interruption that was ``seen``."""
        began = time.perf_counter()
        result = algorithm.train()["ssp"]
        seconds = {name: float(value) for name, value in result["seconds"].items()}
        seconds["step"] = time.perf_counter() - began

        figures, games = dict(algorithm.last_figures), algorithm.last_games
        # The file of games says by which numbers this step was played.
        played = at_step(self.rules.config, self.config.learning.schedules, step)
        self.directory.write_games(step, replace(self.rules, config=played), games)
        self.progress.step(step, figures, seconds["step"])
        last, accuracy = step == self.config.steps, dict[str, Accuracy]()
        if last or step % self.config.evaluate_every == 0:
            label = "final" if last else f"step {step}"
            accuracy = self._evaluate(label, algorithm, seconds)
        self._write({"step": step, **figures}, seconds, accuracy)

        def save(folder: Path) -> None:
            """Writes all that is needed to resume, and each policy as a model directory."""
            algorithm.save_to_path(str((folder / "algorithm").resolve()))
            separate = self.config.learning.policies == "separate"
            for role, place in POLICIES.items() if separate else ():
                algorithm.save_policy(folder / place, role)
            if not separate:
                algorithm.save_policy(folder / POLICIES["solver"])

        diagnosis = monitor(step, figures, outages(games))
        interruption = None if last else next(iter(seen), None)
        if last or diagnosis or interruption or step % self.config.checkpoint_every == 0:
            self.directory.save_checkpoint(step, save, self.config.checkpoints_kept)
        if diagnosis and last:
            self.progress.note(str(diagnosis))
        elif diagnosis:
            self.directory.write_stopped(diagnosis)
            raise UnhealthyRun(str(diagnosis))
        if interruption:
            raise interruption

    def _measure_base(self, algorithm: SSP) -> None:
        """Measures the policy before the first step; a run whose base is unknown does not begin."""
        seconds: dict[str, float] = {}
        base = self._evaluate("base", algorithm, seconds)
        # Against an unknown base, no later accuracy would say anything.
        for group, accuracy in base.items():
            if accuracy.outage and not accuracy.asked:
                what = f"no question of group {group} could be judged; {accuracy.outage.what}"
                raise ServiceError(accuracy.outage.service, what)
        self._write({"step": 0}, seconds, base)

    def _evaluate(
        self, label: str, algorithm: SSP, seconds: dict[str, float]
    ) -> dict[str, Accuracy]:
        """Accuracies by group; adds the time it took to ``seconds``."""
        began = time.perf_counter()
        self.progress.note(f"evaluating {len(self.questions)} questions ({label})")
        by_group = accuracies(algorithm.solve(self.questions), self.questions)
        shown = "  ".join(f"{group}: {accuracy}" for group, accuracy in by_group.items())
        self.progress.note(f"accuracy {label}:  {shown}")
        seconds["evaluation"] = time.perf_counter() - began
        return by_group

    def _write(
        self, line: dict[str, Any], seconds: dict[str, float], accuracy: dict[str, Accuracy]
    ) -> None:
        """Writes one line of ``metrics.jsonl``, and the same for the tracker and ``report``."""
        now = time.perf_counter()
        seconds["wall"], self.last_line = now - self.last_line, now
        line["seconds"] = seconds

        # A group that an outage hit whole has no accuracy.
        known = {group: share(a.right, a.asked) for group, a in accuracy.items() if a.asked}
        if accuracy:
            line["accuracy"] = {group: estimate.mean for group, estimate in known.items()}
            line["interval"] = {group: estimate.interval for group, estimate in known.items()}
            line["questions"] = {group: a.asked for group, a in accuracy.items()}
            line["void_questions"] = sum(a.void for a in accuracy.values())
        line = self.directory.append_metrics(line)

        try:
            self.track(line)
        except Exception as error:
            raise RunError(f"tracker {self.config.tracker} failed: {error}") from error

        if self.report is not None:
            self.report(line)


def summarise(config: RunConfig, directory: RunDirectory, rules: Rules) -> dict[str, Any]:
    """The result of a finished run, from what its directory holds; refused where an outage has left
    nothing of a group of questions in the last evaluation."""
    lines = directory.read_metrics()
    # The first line is the base policy's, of step 0.
    base, final = lines[0], lines[-1]
    if silent := base["accuracy"].keys() - final["accuracy"].keys():
        what = f"after the last step, no question of group {min(silent)} could be judged"
        _, checkpoint = directory.kept_checkpoints()[-1]
        policy = shlex.quote(str(checkpoint / POLICIES["solver"]))
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

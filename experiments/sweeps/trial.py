"""One trial, in whichever process Ray plays it: what ``ssp train`` does, with a listener."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from agents.health import OUTAGE
from experiments.config import make_config
from experiments.run.process import quiet_libraries
from experiments.run.rundir import RunDirectory
from ssp_env.errors import UnhealthyRun

Tell = Callable[[dict[str, Any]], object]


def play(config: dict[str, Any], out: Path, keep_checkpoints: bool, tell: Tell) -> None:
    """Plays a run, or goes on with it where it was stopped.

    A run that is stopped because its figures went wrong ends the trial like any other: its
    directory says why.

    Args:
        config: the run's settings, as plain data.
        out: its directory.
        keep_checkpoints: whether its last checkpoints stay when it has ended.
        tell: is told after each step, see :func:`reported`.

    Raises:
        SSPError: the run cannot be played.
    """
    quiet_libraries()
    from experiments.run.training import train

    run, accuracy = RunDirectory(out), dict[str, float]()

    def listen(line: dict[str, Any]) -> None:
        # Trials are compared at any step; between two evaluations the last one stands. A run that
        # is gone on with had it before this process began.
        for known in [line] if accuracy else run.read_metrics():
            accuracy.update(known.get("accuracy", {}))
        tell(reported(line, accuracy))

    try:
        train(make_config(config), out, resume=run.config.exists(), quiet=True, report=listen)
    except UnhealthyRun:
        stopped = run.read_stopped()
        assert stopped is not None, "its directory says why it was stopped"
        if stopped.sign == OUTAGE:
            raise  # no result: the same trial goes well where its services are there
    if not keep_checkpoints:
        shutil.rmtree(run.checkpoints, ignore_errors=True)


def reported(line: dict[str, Any], accuracy: dict[str, float]) -> dict[str, Any]:
    """What Tune is told of a step: its figures, and the accuracy on questions that are held out.

    Args:
        line: of ``metrics.jsonl``.
        accuracy: by group of questions, at the last evaluation.
    """
    figures = {name: value for name, value in line.items() if isinstance(value, int | float)}
    groups = {f"accuracy/{group}": value for group, value in accuracy.items()}
    return {**figures, **groups, "accuracy": mean_accuracy(accuracy)}


def mean_accuracy(accuracy: dict[str, float]) -> float | None:
    """The mean over the groups of questions, as the paper's average over benchmarks."""
    return fmean(accuracy.values()) if accuracy else None

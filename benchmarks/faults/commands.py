"""Runs of ``ssp train``, and what is compared of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SSP_COMMAND = str(Path(sys.executable).with_name("ssp"))
PATIENCE = 900
"""Seconds that anything may take here."""
SMALL = {
    "learning.batch_size": 6,
    "game.attempts": 3,
    "evaluation.per_group": 4,
    "evaluation.every": 100,
    "checkpoint_every": 2,
}
"""Settings of short steps with the tiny policy."""


def sets(assignments: Mapping[str, Any]) -> list[str]:
    """The settings as arguments."""
    return [part for name, value in assignments.items() for part in ("--set", f"{name}={value}")]


def train(out: Path, *more: str, steps: int, seed: int) -> subprocess.CompletedProcess[str]:
    """Runs ``ssp train`` to its end.

    Args:
        out: the run directory.
        more: further arguments.
        steps: of the run.
        seed: of the run.
    """
    command = command_of(out, *more, steps=steps, seed=seed)
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def command_of(out: Path, *more: str, steps: int, seed: int) -> list[str]:
    """A command line of ``ssp train`` with :data:`SMALL` settings, or one that resumes."""
    fresh = [] if "--resume" in more else [*sets({**SMALL, "seed": seed})]
    return [SSP_COMMAND, "train", "--steps", str(steps), "--out", str(out), *fresh, *more]


def figures(run: Path) -> list[dict[str, Any]]:
    """The lines of the metrics, without times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def games(run: Path) -> list[str]:
    """The text of every file of games."""
    return [file.read_text() for file in sorted((run / "games").iterdir())]

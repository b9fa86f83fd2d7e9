"""What a page says of runs, read from their directories: figures, tables, settings, games' places.

Nothing here knows of HTML. :func:`described` gives plain data that becomes JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.arms import arms
from experiments.report.figures import charts, figures_of
from experiments.report.games import ROW, StepFile, step_files
from experiments.report.tables import (
    T_975,
    accuracy_table,
    differences,
    last_steps,
)
from experiments.run.rundir import RunDirectory, flat
from ssp_env.errors import RunError
from ssp_env.version import __version__

DIGITS = 6
"""Significant digits of figures on a page."""


@dataclass(frozen=True)
class Run:
    """A run as it was found in its directory."""

    key: str
    """Its short name, the same in links to its games."""
    path: Path
    config: dict[str, Any]
    lines: list[dict[str, Any]]
    """Of ``metrics.jsonl``."""
    summary: dict[str, Any] | None
    """``None`` while the run is not finished."""
    files: list[StepFile]

    @property
    def done(self) -> int:
        """Steps that have their figures."""
        return int(self.lines[-1]["step"])

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by dotted name."""
        return flat(self.config)


def open_runs(paths: Sequence[str], *, growing: bool = False) -> list[Run]:
    """Reads everything of run directories but their games.

    Args:
        paths: the directories.
        growing: a run may be going on in one; see :meth:`RunDirectory.read_metrics`.

    Raises:
        RunError: one is no run directory, is incomplete, or cannot be read; names the place.
    """
    places = [Path(path) for path in paths]
    keys = _keys(places)
    return [_open(key, path, growing) for key, path in zip(keys, places, strict=True)]


def described(runs: Sequence[Run], *, tokens: bool, live: bool) -> dict[str, Any]:
    """All that the page says besides games, as plain data.

    Args:
        runs: in the order of the page.
        tokens: whether token ids and log-probabilities can be looked at.
        live: whether the page asks for more as runs go on.
    """
    names = {name: None for run in runs for line in run.lines for name in figures_of(line)}
    settings = [run.settings for run in runs]
    prints = [flat((run.summary or {}).get("fingerprint") or {}) for run in runs]
    groups = arms(settings)

    return {
        "package": __version__,
        "live": live,
        "tokens": tokens,
        "row": ROW,
        "t975": T_975,
        "runs": [_run(run, names) for run in runs],
        "charts": [vars(chart) for chart in charts(names)],
        "arms": groups,
        "tables": {
            "accuracy": accuracy_table([run.lines for run in runs], groups),
            "last": last_steps([run.lines for run in runs], groups),
        },
        "settings": differences(settings),
        "fingerprint": differences(prints) if any(prints) else [],
    }


# -- within ------------------------------------------------------------------------------------


def _open(key: str, path: Path, growing: bool) -> Run:
    directory = RunDirectory(path)
    if not path.is_dir():
        raise RunError(f"{path} is no run directory")
    if not directory.config.exists():
        raise RunError(_no_run(path))
    config = directory.read_config()
    lines = directory.read_metrics(growing=growing)
    _check_order(directory, lines)
    return Run(key, path, config, lines, _summary(directory), step_files(directory.games))


def _no_run(path: Path) -> str:
    """Why a directory is no run's, and which ones may be meant."""
    for inner, what in (("trials", "the directory of a sweep"), (".", "a folder of runs")):
        if any((path / inner).glob("*/config.yaml")):
            return f"{path} is {what}, not a run: name its runs, as {path / inner / '*'} does"
    return f"{path} is no run directory: it holds no config.yaml"


def _check_order(directory: RunDirectory, lines: list[dict[str, Any]]) -> None:
    """
    Raises:
        RunError: steps are missing or come twice.
    """
    for number, (line, due) in enumerate(zip(lines, range(len(lines)), strict=True), start=1):
        if line["step"] != due:
            raise RunError(
                f"{directory.metrics}:{number}: step {line['step']} where step {due} is due: "
                f"lines are missing, or this is no file of one run"
            )


def _summary(directory: RunDirectory) -> dict[str, Any] | None:
    try:
        text = directory.summary.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{directory.summary} cannot be read: {error}") from error
    try:
        summary = json.loads(text)
    except ValueError as error:
        raise RunError(f"{directory.summary}: not JSON ({error})") from error
    if not isinstance(summary, dict):
        raise RunError(f"{directory.summary} holds no summary: an object is wanted")
    return summary


def _keys(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that tell them apart; those of one directory get a number."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        keys = ["-".join(part[-length:]).strip("/-") or "run" for part in parts]
        if len({*keys}) == len(keys):
            return keys
    raise RunError("a run is named twice: " + ", ".join(str(path) for path in paths))


def _run(run: Run, names: Iterable[str]) -> dict[str, Any]:
    config, summary = run.config, run.summary or {}
    columns: dict[str, list[float | None]] = {}
    for place, line in enumerate(run.lines):
        for name, value in figures_of(line, names).items():
            columns.setdefault(name, [None] * len(run.lines))[place] = _short(value)

    return {
        "key": run.key,
        "path": str(run.path),
        "preset": config.get("preset"),
        "seed": config.get("seed"),
        "world": config.get("world"),
        "planned": config.get("steps"),
        "done": run.done,
        "finished": run.summary is not None,
        "verifier": summary.get("verifier"),
        "commit": summary.get("git_commit"),
        "machine": summary.get("machine"),
        "seconds": summary.get("wall_seconds"),
        "at": [line["step"] for line in run.lines],
        "figures": columns,
        "accuracy": _accuracy(run.lines),
        "steps": [[file.step, file.version] for file in run.files],
    }


def _accuracy(lines: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """Group -> [step, accuracy, lower and upper end of its 95% interval] of each evaluation."""
    found: dict[str, list[list[float]]] = {}
    for line in lines:
        for group, value in line.get("accuracy", {}).items():
            low, high = line["interval"][group]
            point = [line["step"], *map(_short, (value, low, high))]
            found.setdefault(group, []).append(point)
    return found


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")

"""Runs as their readers find them: settings, figures by step, files of games; arms of seeds."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ssp_env.errors import RunError
from ssp_experiments.config import flat
from ssp_experiments.run.rundir import CHANGEABLE, RunDirectory

ACCURACY = "accuracy."
"""Beginning of the accuracies by group of questions."""
MEAN = "accuracy.mean"
"""Mean over the groups, as the paper's average over benchmarks."""
REASON = "invalid_"
"""Beginning of the shares of proposals that failed for a reason."""


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
    files: dict[int, Path]
    """Files of games by step."""

    @property
    def state(self) -> str:
        """``finished``, or the step that it is at."""
        if self.summary is not None:
            return "finished"
        return f"at step {self.lines[-1]['step']} of {self.config.get('steps', '?')}"

    @cached_property
    def figures(self) -> pd.DataFrame:
        """Figures by step, mappings made flat (``seconds.engine``, ``accuracy.2``); NaN where there
        is none, or where it was not finite.

        An evaluation that an outage hit lacks groups, and so the mean over them.
        """
        other = {"interval", "questions", "void_questions"}
        kept = [{n: v for n, v in line.items() if n not in other} for line in self.lines]
        frame = pd.json_normalize(kept).set_index("step").apply(pd.to_numeric, errors="coerce")
        frame = frame.dropna(axis="columns", how="all")
        for name in [name for name in frame if name.startswith(REASON)]:
            frame[name] = frame[name].fillna(self._no_reason)
        if groups := [name for name in frame if name.startswith(ACCURACY)]:
            frame.insert(0, MEAN, frame[groups].mean(axis=1, skipna=False))
        return frame

    def figure(self, name: str) -> pd.Series[float]:
        """A figure by step, where it is known."""
        known = self.figures.get(name)
        if known is None:
            known = self._no_reason if name.startswith(REASON) else pd.Series(dtype=float)
        return known.dropna()

    @cached_property
    def _no_reason(self) -> pd.Series[float]:
        """The share of proposals that failed for a reason that is not written, by step: it did not
        occur, so it is 0 where anything was proposed."""
        lines = [line for line in self.lines if line.get("valid_rate") is not None]
        return pd.Series(0.0, index=[line["step"] for line in lines])

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("accuracy")]


def open_runs(paths: Sequence[str], live: bool = False) -> list[Run]:
    """Reads run directories, but no games; a sweep's stands for its trials, as they began.

    Says where the last line of metrics is cut off and left out, unless ``live``: then the next look
    finds its end.
    """
    folders: list[Path] = []
    for path in map(Path, paths):
        begun = [file.parent / "config.yaml" for file in path.glob("trials/*/metrics.jsonl")]
        begun = sorted(begun, key=lambda file: file.stat().st_mtime_ns)
        folders += [file.parent for file in begun] or [path]

    parts = [path.resolve().parts for path in folders]
    # The shortest ends of paths that tell the runs apart.
    for length in range(1, max(map(len, parts)) + 1):
        keys = ["-".join(part[-length:]).strip("/-") or "run" for part in parts]
        if len({*keys}) == len(keys):
            break
    else:
        raise RunError(f"a run is named twice: {', '.join(paths)}")
    runs = [read_run(key, path) for key, path in zip(keys, folders, strict=True)]
    for file in (path / "metrics.jsonl" for path in folders):
        if not live and not file.read_bytes().endswith(b"\n"):
            cut = "its last line is cut off and left out (a run writes it, or was killed)"
            print(f"ssp: {file}: {cut}", file=sys.stderr)
    return runs


def read_run(key: str, path: str | Path) -> Run:
    """A run, with the name that it gets; see :func:`open_runs`."""
    directory = RunDirectory(path)
    config, summary, lines = (
        directory.read_config(),
        directory.read_summary(),
        directory.read_metrics(),
    )
    return Run(key, directory.path, config, lines, summary, directory.game_files)


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but their seed, so that a mean over them says something."""

    name: str
    runs: list[int]
    """Their places."""


def looks_of(runs: Sequence[Run], arms: Sequence[Arm]) -> list[dict[str, int]]:
    """How each run is drawn: the ``colour`` of its arm, dashed by its place there. Where each arm
    has one run, dashes differ as well, so that curves that coincide are both seen."""
    if len(arms) == len(runs):
        return [{"colour": i, "dash": i} for i in range(len(runs))]
    looks = {
        run: {"colour": colour, "dash": dash}
        for colour, arm in enumerate(arms)
        for dash, run in enumerate(arm.runs)
    }
    return [looks[i] for i in range(len(runs))]


def arms_of(runs: Sequence[Run]) -> list[Arm]:
    """Groups runs that differ in nothing but their seed, machines and services.

    No arm has a seed twice: the second run of a seed begins another arm, together with the second
    runs of other seeds. Arms are named by the settings in which they differ, if these are few.
    """
    ignored = ("compute.", "search.", "openai.")
    settings = pd.DataFrame(
        [
            {
                name: written(value)
                for name, value in flat(run.config).items()
                if not (name.startswith(ignored) and CHANGEABLE.fullmatch(name))
            }
            for run in runs
        ]
    ).fillna("null")
    seeds = settings.pop("seed")
    kinds = settings.agg(" ".join, axis="columns")
    # How many runs of the same settings and seed came before each.
    copies = seeds.groupby([kinds, seeds]).cumcount()
    differ = [*settings.columns[settings.nunique() > 1]]

    arms: list[Arm] = []
    for _, members in seeds.groupby([kinds, copies], sort=False):
        first, places = settings.loc[members.index[0]], members.index.tolist()
        key = runs[places[0]].key
        if 0 < len(differ) <= 3:
            label = ", ".join(f"{name.rpartition('.')[2]}={first[name]}" for name in differ)
        else:
            label = key if len(places) == 1 else re.sub(r"[-_.]*(seed)?[-_=.]*\d*$", "", key)
        if len(places) > 1:
            label = " · ".join(filter(None, [label, f"{len(places)} seeds"]))
        if label in [arm.name for arm in arms]:
            label += f" ({key})"
        arms.append(Arm(label, places))
    return arms


def written(value: Any) -> str:
    """A setting's value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

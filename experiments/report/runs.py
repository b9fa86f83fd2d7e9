"""Runs of a report, read from their directories: metrics, settings, arms and tables over them."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.report.figures import LENGTHS, QUESTIONS, REWARDS, charts, figures_of, spoken
from experiments.run.rundir import CHANGEABLE, RunDirectory, flat
from experiments.stats import Estimate, over_runs
from ssp_env.errors import RunError

LAST_STEPS = 10

Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """A run as it was found in its directory."""

    key: str
    """Its short name, the same in links to its games."""
    path: Path
    config: dict[str, Any]
    lines: Lines
    """Of ``metrics.jsonl``."""
    summary: dict[str, Any] | None
    """``None`` while the run is not finished."""
    files: dict[int, Path]
    """Files of games by step."""

    @property
    def done(self) -> int:
        """Steps that have their figures."""
        return int(self.lines[-1]["step"])

    @property
    def state(self) -> str:
        """``finished``, or how far it is."""
        if self.summary is not None:
            return "finished"
        return f"at step {self.done} of {self.config.get('steps', '?')}"

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by dotted name."""
        return flat(self.config)

    @cached_property
    def figures(self) -> pd.DataFrame:
        """Figures by step; see :func:`~experiments.report.figures.figures_of`."""
        return figures_of(self.lines)

    @property
    def evaluated(self) -> Lines:
        """Lines with an evaluation."""
        return [line for line in self.lines if line.get("accuracy")]


def open_runs(paths: Sequence[str]) -> list[Run]:
    """Reads everything of run directories but their games.

    Args:
        paths: the directories.

    Raises:
        RunError: one is no run directory, is incomplete, or cannot be read; names the place.
    """
    places = [Path(path) for path in paths]
    return [_open(key, path) for key, path in zip(_keys(places), places, strict=True)]


def step_files(folder: Path) -> dict[int, Path]:
    """The files of games in a folder, by step; none if there is no such folder."""
    named = [(re.fullmatch(r"step_(\d+)\.jsonl(\.gz)?", p.name), p) for p in folder.glob("step_*")]
    return dict(sorted((int(match[1]), path) for match, path in named if match))


def _open(key: str, path: Path) -> Run:
    directory = RunDirectory(path)
    if not path.is_dir():
        raise RunError(f"{path} is no run directory")
    if not directory.config.exists():
        for inner, what in (("trials", "the directory of a sweep"), (".", "a folder of runs")):
            if any((path / inner).glob("*/config.yaml")):
                these = f"name its runs, as {path / inner / '*'} does"
                raise RunError(f"{path} is {what}, not a run: {these}")
        raise RunError(f"{path} is no run directory: it holds no config.yaml")

    summary = None
    if directory.summary.exists():
        try:
            summary = json.loads(directory.summary.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{directory.summary} cannot be read: {error}") from error
    lines = directory.read_metrics()
    files = step_files(directory.games)
    return Run(key, path, directory.read_config(), lines, summary, files)


def _keys(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        keys = ["-".join(part[-length:]).strip("/-") or "run" for part in parts]
        if len({*keys}) == len(keys):
            return keys
    raise RunError("a run is named twice: " + ", ".join(str(path) for path in paths))


# -- arms --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but their seed, so that a mean over them says something."""

    name: str
    runs: list[int]
    """Their places."""


def arms_of(runs: Sequence[Run]) -> list[Arm]:
    """Groups runs that differ in nothing but their seed.

    Machines and services do not count. No arm has a seed twice: the second run
    of a seed begins another arm, together with the second runs of other seeds.
    """
    groups: dict[tuple[str, int], list[int]] = {}
    times: Counter[tuple[str, Any]] = Counter()
    for place, run in enumerate(runs):
        kind = json.dumps(_deciding(run), sort_keys=True, default=str)
        seed = (kind, run.settings.get("seed"))
        groups.setdefault((kind, times[seed]), []).append(place)
        times[seed] += 1

    names = [_arm_name(runs, members, [*groups.values()]) for members in groups.values()]
    return [
        Arm(name if names.count(name) == 1 else ", ".join(runs[i].key for i in members), members)
        for name, members in zip(names, groups.values(), strict=True)
    ]


def _deciding(run: Run) -> dict[str, Any]:
    """Settings that make an arm: all but the seed, machines and services."""
    own = ("compute.", "search.", "openai.")
    elsewhere = {n for n in run.settings if n.startswith(own) and CHANGEABLE.fullmatch(n)}
    return {n: v for n, v in run.settings.items() if n not in {"seed", *elsewhere}}


def _arm_name(runs: Sequence[Run], members: list[int], groups: list[list[int]]) -> str:
    """Up to three settings in which the arms differ (``noise_documents=0 · 2 seeds``), or the
    common beginning of the runs' names where there are none or more."""
    keys = [runs[place].key for place in members]
    settings = [_deciding(runs[group[0]]) for group in groups]
    names = sorted({name for values in settings for name in values})
    differ = [name for name in names if len({str(values.get(name)) for values in settings}) > 1]
    if 0 < len(differ) <= 3:
        own = _deciding(runs[members[0]])
        label = ", ".join(f"{n.rpartition('.')[2]}={written(own.get(n))}" for n in differ)
    elif len(members) == 1:
        return keys[0]
    else:
        shared = os.path.commonprefix(keys)  # noqa: RUF071 (of names, not of paths)
        label = re.sub(r"[-_.]*(seed)?[-_=.]*\d*$", "", shared)
    seeds = [f"{len(members)} seeds"] if len(members) > 1 else []
    return " · ".join([*filter(None, [label]), *seeds])


# -- tables ------------------------------------------------------------------------------------


def accuracy_means(runs: Sequence[Run], arm: Arm) -> tuple[int, dict[str, Estimate]] | None:
    """The last step at which all runs of an arm were evaluated, and means by question group."""
    steps = [{line["step"] for line in runs[place].evaluated} for place in arm.runs]
    common = set.intersection(*steps)
    if len(arm.runs) < 2 or not common:
        return None
    lines = [line for place in arm.runs for line in runs[place].evaluated]
    last = pd.DataFrame([line["accuracy"] for line in lines if line["step"] == max(common)])
    known = last.dropna(axis="columns")
    return max(common), {group: over_runs(known[group].tolist()) for group in sorted(known)}


def last_means(run: Run, end: int | None = None) -> pd.Series:
    """Means of a run's figures over its last steps, up to ``end``."""
    return run.figures.loc[1 : run.done if end is None else end].tail(LAST_STEPS).mean()


def last_steps(runs: Sequence[Run], arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Rows of the table of the last steps: ``heading``, ``label``, a value for each run, and an
    estimate for each arm of several runs, over the last steps that all of them have."""
    means = pd.DataFrame([last_means(run) for run in runs]).dropna(axis="columns", how="all")
    common = []
    for arm in arms:
        if len(arm.runs) > 1:
            end = min(runs[place].done for place in arm.runs)
            found = pd.DataFrame([last_means(runs[place], end) for place in arm.runs])
            common.append(found.reindex(columns=means.columns))

    rows = []
    for chart in charts(means):
        for name in chart.figures if chart.group in (REWARDS, QUESTIONS, LENGTHS) else ():
            over = [found[name].dropna().tolist() for found in common]
            rows.append(
                {
                    "heading": chart.title,
                    "label": spoken(name),
                    "values": [None if math.isnan(value) else value for value in means[name]],
                    "arms": [over_runs(values) if len(values) > 1 else None for values in over],
                }
            )
    return rows


def differences(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every setting with its value in each run: ``name``, ``values``, and whether they ``differ``.

    A setting that a run does not have is ``None`` there.
    """
    names = {name: None for run in values for name in run}
    rows = []
    for name in names:
        found = [written(run[name]) if name in run else None for run in values]
        rows.append({"name": name, "values": found, "differ": len({*found}) > 1})
    return rows


def written(value: Any) -> str:
    """A setting's value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

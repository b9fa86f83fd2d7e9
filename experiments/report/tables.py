"""Tables over runs: accuracy before and after, figures of the last steps, settings that differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from scipy.stats import t

from experiments.report.figures import charts, figures_of
from experiments.stats import over_runs

T_975 = tuple(float(quantile) for quantile in t.ppf(0.975, range(1, 31)))
"""97.5% quantiles of Student's t with 1 to 30 degrees of freedom, for the page; beyond, it uses the
last, which makes intervals wider by 4% at most."""
LAST_STEPS = 10
_IN_TABLE = ("Accuracy and rewards", "Questions", "Searches and lengths")
"""Groups of charts whose figures stand in the table of the last steps."""

Lines = list[dict[str, Any]]


def mean_interval(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Mean and 95% interval (Student's t) over runs; ``None`` of fewer than two."""
    if len(values) < 2:
        return None
    found = over_runs(values)
    return found.mean, found.low, found.high


def accuracy_table(runs: Sequence[Lines], groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Accuracy at the first and at the last evaluation.

    Returns:
        ``groups``, the names of the question groups; ``runs``, for each run ``first`` and ``last``,
        each with its ``step`` and, by group, ``[accuracy, low, high]`` (Wilson, 95%); ``arms``, for
        each arm of several runs its place and, by group, mean and interval over runs at the last
        ``step`` at which all of them were evaluated.
    """
    ends = [_ends(lines) for lines in runs]
    names = sorted({group for end in ends if end for group in end["last"]["values"]})
    means = []

    for place, members in enumerate(groups):
        by_step = [{line["step"]: line for line in _evaluated(runs[i])} for i in members]
        common = set[int].intersection(*({*found} for found in by_step))
        if len(members) > 1 and common:
            step = max(common)
            lines = [found[step]["accuracy"] for found in by_step]
            values = {
                name: mean_interval([line[name] for line in lines if name in line])
                for name in names
            }
            means.append({"arm": place, "runs": len(members), "step": step, "values": values})

    return {"groups": names, "runs": ends, "arms": means}


def last_steps(runs: Sequence[Lines], groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Means of the last steps.

    Returns:
        ``steps``, how many at most; ``figures``, a list of ``name``, ``label`` and ``heading``;
        ``runs``, for each run its means by figure; ``arms``, as for :func:`accuracy_table`, over
        the last steps that all runs of the arm have.
    """
    names = {name: None for lines in runs for line in lines for name in figures_of(line)}
    means = [_means(lines, names) for lines in runs]
    names = {name: None for mean in means for name in mean}
    shown = [
        {"name": name, "label": label, "heading": chart.title}
        for chart in charts(names)
        if chart.group in _IN_TABLE
        for name, label in zip(chart.figures, chart.labels, strict=True)
    ]

    over = []
    for place, members in enumerate(groups):
        if len(members) > 1:
            end = min(runs[i][-1]["step"] for i in members)
            same = [
                _means([each for each in runs[i] if each["step"] <= end], names) for i in members
            ]
            values = {
                figure["name"]: mean_interval(
                    [mean[figure["name"]] for mean in same if figure["name"] in mean]
                )
                for figure in shown
            }
            over.append({"arm": place, "runs": len(members), "values": values})
    return {"steps": LAST_STEPS, "figures": shown, "runs": means, "arms": over}


def differences(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every setting with its value in each run: ``name``, ``values``, and whether they ``differ``.

    A setting that a run does not have is ``None`` there.
    """
    names = {name: None for run in values for name in run}
    rows = []
    for name in names:
        found = [_written(run[name]) if name in run else None for run in values]
        rows.append({"name": name, "values": found, "differ": len({*found}) > 1})
    return rows


def _evaluated(lines: Lines) -> Lines:
    return [line for line in lines if line.get("accuracy")]


def _ends(lines: Lines) -> dict[str, Any] | None:
    measured = _evaluated(lines)
    if not measured:
        return None
    return {"first": _measured(measured[0]), "last": _measured(measured[-1])}


def _measured(line: dict[str, Any]) -> dict[str, Any]:
    values = {group: [value, *line["interval"][group]] for group, value in line["accuracy"].items()}
    return {"step": line["step"], "values": values, "questions": line.get("questions", {})}


def _means(lines: Lines, names: Iterable[str]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for line in [line for line in lines if line["step"] > 0][-LAST_STEPS:]:
        for name, value in figures_of(line, names).items():
            if value is not None:
                found.setdefault(name, []).append(value)
    return {name: fmean(values) for name, values in found.items()}


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

"""Curves of runs, one per figure or arm: as plain data for the page, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.report.figures import REWARDS, charts, spoken, spoken_group
from experiments.report.runs import Arm, Run, arms_of, open_runs
from experiments.stats import over_runs
from ssp_env.disk import replacing
from ssp_env.errors import ConfigError, RunError

PANELS = {
    "rewards": {"solver_reward": "solver", "proposer_reward": "proposer"},
    "proposals": {
        "valid_rate": "valid",
        "true_share": "true, of the valid",
        "ambiguous_share": "ambiguous, of the valid",
    },
    "hops and searches": {
        "question_hops": "hops of valid questions",
        "solver_searches": "solver's searches",
    },
}
SHARES = ("rewards", "proposals")
"""Panels whose values lie between 0 and 1."""
STYLES = ("-", "--", ":", "-.")
"""Of the curves of one panel, where colours tell the arms apart."""


def figure_curve(run: Run, name: str) -> pd.DataFrame:
    """A figure (``y``) by step, where it is known."""
    return run.figures.reindex(columns=[name]).set_axis(["y"], axis=1).dropna()


def accuracy_curve(run: Run, group: str) -> pd.DataFrame:
    """Accuracy (``y``) by step, with the ends of its interval (``low``, ``high``)."""
    held = [line for line in run.evaluated if group in line["accuracy"]]
    rows = [(line["accuracy"][group], *line["interval"][group]) for line in held]
    return pd.DataFrame(rows, [line["step"] for line in held], ["y", "low", "high"])


# -- of the page -------------------------------------------------------------------------------


def chart_data(runs: Sequence[Run], arms: Sequence[Arm]) -> tuple[list[dict[str, Any]], list[str]]:
    """All curves as plain data, and the names of figures that were always 0.

    A chart of one run has a curve per figure; of several runs, each figure has a chart with a curve
    per run, and one per arm with the 95% interval over its seeds.
    """
    drawn, zero = [], []
    groups = sorted({g for run in runs for line in run.evaluated for g in line["accuracy"]})
    accuracy = [(spoken_group(g), [accuracy_curve(run, g) for run in runs]) for g in groups]
    if accuracy:
        head = {"group": REWARDS, "title": "Unseen questions", "unit": "share answered right"}
        drawn += _charts(head, accuracy, runs, arms)

    for chart in charts({name for run in runs for name in run.figures}):
        curves = []
        for name in chart.figures:
            found = [figure_curve(run, name) for run in runs]
            if any(curve["y"].any() for curve in found):
                curves.append((spoken(name), found))
            else:
                zero.append(f"{chart.title.lower()}: {spoken(name)}")
        if curves:
            head = {"group": chart.group, "title": chart.title, "unit": chart.unit}
            drawn += _charts(head, curves, runs, arms)
    return drawn, zero


def _charts(
    head: dict[str, Any],
    curves: list[tuple[str, list[pd.DataFrame]]],
    runs: Sequence[Run],
    arms: Sequence[Arm],
) -> list[dict[str, Any]]:
    head = {**head, "share": head["unit"].startswith("share")}
    if len(runs) == 1:
        steps = sorted({step for _, (curve,) in curves for step in curve.index.tolist()})
        series = [_series(label, i, curve, steps) for i, (label, (curve,)) in enumerate(curves)]
        return [head | {"x": steps, "series": series, "means": []}]

    made = []
    for label, found in curves:
        steps = sorted({step for curve in found for step in curve.index.tolist()})
        series = [_series(run.key, i, found[i], steps) for i, run in enumerate(runs)]
        means = [
            _series(arm.name, arm.runs[0], _mean([found[i] for i in arm.runs]), steps)
            for arm in (arms if any(len(arm.runs) > 1 for arm in arms) else ())
        ]
        title = head["title"] if label == head["title"].lower() else f"{head['title']}: {label}"
        made.append(head | {"title": title, "x": steps, "series": series, "means": means})
    return made


def _series(label: str, colour: int, curve: pd.DataFrame, steps: list[int]) -> dict[str, Any]:
    """A curve over common steps, in six digits; ``None`` where it has no value."""
    columns = {
        name: [float(f"{value:.6g}") if math.isfinite(value) else None for value in column]
        for name, column in curve.reindex(steps).items()
    }
    return {"label": label, "colour": colour, **columns}


def _mean(curves: list[pd.DataFrame]) -> pd.DataFrame:
    """Means over runs with their intervals, at the steps that all of them have."""
    if len(curves) == 1:
        return curves[0]
    common = _together(curves)
    found = [over_runs(values) for values in common.to_numpy().tolist()]
    rows = [(mean.mean, mean.low, mean.high) for mean in found]
    return pd.DataFrame(rows, common.index, ["y", "low", "high"])


def _together(curves: list[pd.DataFrame]) -> pd.DataFrame:
    """A column per curve, at the steps that all of them have."""
    return pd.concat([curve["y"] for curve in curves], axis="columns").dropna()


# -- ssp plot ----------------------------------------------------------------------------------


def plot(paths: Sequence[str], file: Path, smooth: int) -> int:
    """Draws the runs into one picture; see :func:`experiments.cli.plot`."""
    import matplotlib

    if smooth < 1:
        raise ConfigError("--smooth", smooth, "must be at least 1")
    runs = open_runs(paths)
    arms = arms_of(runs)

    matplotlib.use("Agg")
    save_figure(picture(runs, arms, smooth), file)
    lines = f", {len(arms)} lines" if len(arms) < len(runs) else ""
    print(f"wrote {file} ({'1 run' if len(runs) == 1 else f'{len(runs)} runs'}{lines})")
    for arm in arms:
        ends = [runs[place].done for place in arm.runs]
        if min(ends) < max(ends):
            print(f"{arm.name} is drawn up to step {min(ends)}, which all of its runs have")
    return 0


def save_figure(figure: Any, out: Path) -> None:
    """Writes a figure of matplotlib, in full or not at all.

    Raises:
        RunError: the file cannot be written.
    """
    try:
        with replacing(out, "wb") as file:
            figure.savefig(file, dpi=120, format=out.suffix.removeprefix(".") or "png")
    except ValueError as error:
        # matplotlib's, for an unknown file type.
        raise RunError(f"{out} cannot be written: {error}") from error


def picture(runs: Sequence[Run], arms: Sequence[Arm], smooth: int) -> Any:
    """The picture, as a figure of matplotlib: of each arm the mean, and the range of its runs.

    Args:
        runs: all of them.
        arms: one line each.
        smooth: steps of the running mean.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2)
    for axis, (title, names) in zip(axes.flat[:3], PANELS.items(), strict=True):
        labelled = {label: _smoothed(name, smooth) for name, label in names.items()}
        _panel(axis, runs, arms, labelled)
        running = f", running mean over {smooth} steps" if smooth > 1 else ""
        axis.set(title=title + running, ylim=(0, 1.02 if title in SHARES else None))

    groups = sorted({group for run in runs for line in run.evaluated for group in line["accuracy"]})
    accuracy = {spoken_group(g): partial(accuracy_curve, group=g) for g in groups}
    _panel(axes.flat[3], runs, arms, accuracy, marker="o")
    axes.flat[3].set(title="accuracy on unseen questions", ylim=(0, 1.02))

    for axis in axes.flat:
        axis.set_xlabel("step")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    labels = [f"{arm.name} (mean and range)" if len(arm.runs) > 1 else arm.name for arm in arms]
    if len(arms) > 1:
        handles = [_handle(name, f"C{place % 10}", 4) for place, name in enumerate(labels)]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    elif len(runs) > 1:
        figure.suptitle(labels[0])
    return figure


def _panel(
    axis: Any,
    runs: Sequence[Run],
    arms: Sequence[Arm],
    curves: Mapping[str, Callable[[Run], pd.DataFrame]],
    marker: str | None = None,
) -> None:
    """All curves of a panel. Colours tell the curves of one arm apart, or else the arms."""
    handles = []
    for number, (label, curve_of) in enumerate(curves.items()):
        style = STYLES[number % len(STYLES)] if len(arms) > 1 else "-"
        for place, arm in enumerate(arms):
            values = _together([curve_of(runs[i]) for i in arm.runs])
            if values.empty:
                continue
            colour = f"C{(place if len(arms) > 1 else number) % 10}"
            look = {"color": colour, "linestyle": style, "marker": marker, "markersize": 4}
            axis.plot(values.index, values.mean(axis=1), **look)
            if len(arm.runs) > 1:
                ends = values.min(axis=1), values.max(axis=1)
                axis.fill_between(values.index, *ends, alpha=0.15, color=colour, linewidth=0)
        handles.append(_handle(label, "0.35" if len(arms) > 1 else f"C{number % 10}", 1.5, style))
    if handles:
        axis.legend(handles=handles, frameon=False, fontsize="small", handlelength=3)


def _handle(label: str, colour: str, width: float, style: Any = "-") -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linewidth=width, linestyle=style, label=label)


def _smoothed(name: str, width: int) -> Callable[[Run], pd.DataFrame]:
    """Running mean of a run's figure over the last ``width`` steps that have it."""

    return lambda run: figure_curve(run, name).rolling(width, min_periods=1).mean()

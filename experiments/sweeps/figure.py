"""Figure of a sweep: accuracy of all arms at the end, and its curves, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from experiments.stats import over_runs
from experiments.sweeps.results import Results, spoken_figure, spoken_group
from ssp_env.errors import RunError

SMOOTHED = 5
"""Steps of a running mean, for figures that are noisy from step to step."""
COLUMNS = 3
FEWEST = 3
"""Seeds from which on curves have intervals; those of two reach beyond everything."""
NARROWEST = 0.1
"""Shortest span of the axis of mean accuracy, so that small differences look small."""


def draw(results: Results, out: Path) -> None:
    """Draws the trials that have ended.

    Raises:
        RunError: the file cannot be written.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figures = [figure for figure in results.sweep.figures if figure in results.steps]
    columns = [*results.groups[1:], *figures]
    rows = -(-(1 + len(columns)) // COLUMNS)
    figure, axes = pyplot.subplots(
        rows, COLUMNS, figsize=(13, 3.4 * rows), constrained_layout=True, squeeze=False
    )
    many = matplotlib.colormaps["viridis"](np.linspace(0, 0.95, len(results.arms)))
    few = [f"C{place}" for place in range(10)]
    colours = dict(zip(results.arms, few if len(results.arms) <= 10 else many, strict=False))

    first, *others = axes.flat
    _draw_ends(first, results, colours)
    for axis, column in zip(others, columns, strict=False):
        _draw_curves(axis, results, column, colours)
    for axis in others[len(columns) :]:
        axis.set_visible(False)
    for axis in (first, *others):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(results.sweep.title, fontsize=13)
    try:
        save_figure(figure, out)
    finally:
        pyplot.close(figure)


def save_figure(figure: Any, out: Path) -> None:
    """Writes a figure of matplotlib, in full or not at all.

    Raises:
        RunError: the file cannot be written.
    """
    unfinished = out.with_name(f".unfinished_{out.name}")
    try:
        figure.savefig(unfinished, dpi=110)
        unfinished.replace(out)
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _draw_ends(axis: Any, results: Results, colours: dict[str, Any]) -> None:
    """Mean accuracy at the end: each seed, and the mean with its interval."""
    for place, arm in enumerate(results.arms):
        values = list(results.by_seed(arm))
        if not values:
            continue
        found = over_runs(values)
        axis.plot(values, [place] * len(values), "o", color=colours[arm], alpha=0.35, markersize=5)
        axis.errorbar(
            [found.mean],
            [place],
            xerr=None if found.half is None else [[found.half], [found.half]],
            fmt="D",
            color=colours[arm],
            capsize=3,
            markersize=6,
        )
    low, high = axis.get_xlim()
    lacking = max(0.0, NARROWEST - (high - low)) / 2
    axis.set(xlim=(max(-0.02, low - lacking), min(1.02, high + lacking)))
    axis.set(title="mean accuracy at the end (* baseline)")
    baseline = results.sweep.compared_with
    names = [f"{arm} *" if arm == baseline else arm for arm in results.arms]
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()


def _draw_curves(axis: Any, results: Results, column: str, colours: dict[str, Any]) -> None:
    """One line per arm: the mean over seeds, and its interval where there are several."""
    is_accuracy = column.startswith("accuracy.")
    known = results.steps.dropna(subset=[column])
    for arm in results.arms:
        curves = known[known["arm"] == arm].pivot(index="step", columns="seed", values=column)
        if not is_accuracy:
            curves = curves.rolling(SMOOTHED, min_periods=1).mean()
        mean = curves.mean(axis=1)
        axis.plot(mean.index, mean, color=colours[arm], marker="o" if is_accuracy else None)
        if len(mean) and curves.count(axis=1).min() >= FEWEST:
            found = [over_runs(list(row.dropna())) for _, row in curves.iterrows()]
            low, high = [one.low for one in found], [one.high for one in found]
            axis.fill_between(mean.index, low, high, color=colours[arm], alpha=0.12, linewidth=0)

    if is_accuracy:
        axis.set(title=f"accuracy, {spoken_group(column)}", xlabel="step", ylim=(-0.02, 1.02))
    else:
        axis.set(title=spoken_figure(column), xlabel=f"step (mean of the last {SMOOTHED})")
    axis.xaxis.get_major_locator().set_params(integer=True)

"""The figure of a sweep: accuracy of all arms at the end, and its way there, with intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from experiments.report.figures import figures_of
from experiments.report.runs import mean_interval
from experiments.sweeps.definition import Sweep
from experiments.sweeps.results import Outcome
from experiments.sweeps.tables import estimate, groups_of, of_arm, spoken_figure, spoken_group
from ssp_env.errors import RunError

SMOOTHED = 5
"""Steps of a running mean, for figures that are noisy from step to step."""
COLUMNS = 3
FEWEST = 3
"""Seeds from which on curves have intervals."""
NARROWEST = 0.1
"""What the axis of mean accuracy spans at least, so that small differences look small."""

Value = Callable[[dict[str, Any]], float | None]


def draw(sweep: Sweep, outcomes: Sequence[Outcome], out: Path) -> None:
    """Draws the trials that have ended.

    Raises:
        RunError: the file cannot be written.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot

    ended = [outcome for outcome in outcomes if outcome.ended and outcome.evaluated]
    groups = groups_of(ended)[1:]
    panels = 1 + len(groups) + len(sweep.figures)
    rows = -(-panels // COLUMNS)
    figure, axes = pyplot.subplots(
        rows, COLUMNS, figsize=(13, 3.4 * rows), constrained_layout=True, squeeze=False
    )
    colours = dict(zip(sweep.all_arms(), _colours(len(sweep.all_arms())), strict=True))

    flat = list(axes.flat)
    _draw_ends(flat[0], sweep, ended, colours)
    for axis, group in zip(flat[1:], groups, strict=False):
        _draw_curves(axis, sweep, ended, colours, _accuracy_of(group), marker="o")
        axis.set(title=f"accuracy, {spoken_group(group)}", xlabel="step", ylim=(-0.02, 1.02))
    for axis, name in zip(flat[1 + len(groups) :], sweep.figures, strict=False):
        _draw_curves(axis, sweep, ended, colours, _figure_of(name))
        axis.set(title=spoken_figure(name), xlabel=f"step (mean of the last {SMOOTHED})")
    for axis in flat[panels:]:
        axis.set_visible(False)

    for axis in flat[:panels]:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(sweep.title, fontsize=13)
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


def _draw_ends(axis: Any, sweep: Sweep, ended: Sequence[Outcome], colours: dict[str, Any]) -> None:
    """Mean accuracy at the end: each seed, and the mean with its interval."""
    arms = list(sweep.all_arms())
    for place, arm in enumerate(arms):
        values = list(of_arm(ended, arm, lambda o: o.accuracy["mean"]).values())
        found = estimate(values)
        if found is None:
            continue
        if len(values) > 1:
            axis.plot(
                values, [place] * len(values), "o", color=colours[arm], alpha=0.35, markersize=5
            )
        half = None if found.half is None else [[found.half], [found.half]]
        axis.errorbar(
            [found.mean], [place], xerr=half, fmt="D", color=colours[arm], capsize=3, markersize=6
        )
    axis.set(xlim=_span(*axis.get_xlim()), title="mean accuracy at the end (* baseline)")
    axis.set_yticks(range(len(arms)), [_with_mark(arm, sweep.compared_with) for arm in arms])
    axis.invert_yaxis()


def _span(low: float, high: float) -> tuple[float, float]:
    """An axis of accuracies, neither narrower than is fair nor wider than they can be."""
    lacking = max(0.0, NARROWEST - (high - low)) / 2
    return max(-0.02, low - lacking), min(1.02, high + lacking)


def _draw_curves(
    axis: Any,
    sweep: Sweep,
    ended: Sequence[Outcome],
    colours: dict[str, Any],
    value: Value,
    marker: str | None = None,
) -> None:
    """One line per arm: the mean over seeds, and its interval where there are several."""
    for arm in sweep.all_arms():
        found: dict[int, list[float]] = defaultdict(list)
        for outcome in (outcome for outcome in ended if outcome.trial.arm == arm):
            for step, known in _points(outcome.lines, value, smooth=marker is None):
                found[step].append(known)
        steps = sorted(found)
        means = [float(np.mean(found[step])) for step in steps]
        axis.plot(steps, means, color=colours[arm], marker=marker, markersize=4)

        # Two seeds have intervals that reach beyond everything.
        bands = [mean_interval(found[step]) for step in steps if len(found[step]) >= FEWEST]
        if steps and len(bands) == len(steps):
            low, high = [band[1] for band in bands if band], [band[2] for band in bands if band]
            axis.fill_between(steps, low, high, color=colours[arm], alpha=0.12, linewidth=0)
    axis.xaxis.get_major_locator().set_params(integer=True)


def _points(lines: Sequence[dict[str, Any]], value: Value, smooth: bool) -> list[tuple[int, float]]:
    known = [(line["step"], found) for line in lines if (found := value(line)) is not None]
    if not smooth:
        return known
    values = [found for _, found in known]
    return [
        (step, float(np.mean(values[max(0, i - SMOOTHED + 1) : i + 1])))
        for i, (step, _) in enumerate(known)
    ]


def _accuracy_of(group: str) -> Value:
    return lambda line: line.get("accuracy", {}).get(group)


def _figure_of(name: str) -> Value:
    return lambda line: figures_of(line, [name]).get(name)


def _with_mark(arm: str, baseline: str) -> str:
    return f"{arm} *" if arm == baseline else arm


def _colours(number: int) -> list[Any]:
    """Colours that can be told apart; along a scale where there are more than ten."""
    if number <= 10:
        return [f"C{place}" for place in range(number)]
    return list(matplotlib.colormaps["viridis"](np.linspace(0, 0.95, number)))

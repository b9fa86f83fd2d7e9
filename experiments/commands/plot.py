"""``ssp plot``: rewards, hops, validity and accuracy against steps, a line per arm of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.report.figures import spoken_group
from experiments.report.runs import Arm, Run, arms_of, open_runs
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

Points = dict[int, float]


def run(paths: Sequence[str], *, out: str, smooth: int) -> int:
    """Draws the runs into one picture; see :func:`experiments.cli.plot`."""
    if smooth < 1:
        raise ConfigError("--smooth", smooth, "must be at least 1")
    file, runs = Path(out), open_runs(paths)
    arms = arms_of(runs)

    save_figure(picture(runs, arms, smooth), file)
    lines = f", {len(arms)} lines" if len(arms) < len(runs) else ""
    print(f"wrote {out} ({'1 run' if len(runs) == 1 else f'{len(runs)} runs'}{lines})")
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
    unfinished = out.with_name(f".unfinished_{out.name}")
    try:
        figure.savefig(unfinished, dpi=120)
        unfinished.replace(out)
    except (OSError, ValueError) as error:
        # matplotlib raises a ValueError for an unknown file type.
        raise RunError(f"{out} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def picture(runs: Sequence[Run], arms: Sequence[Arm], smooth: int) -> Any:
    """The picture, as a figure of matplotlib: of each arm the mean, and the range of its runs.

    Args:
        runs: all of them.
        arms: one line each.
        smooth: steps of the running mean.
    """
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2)
    for axis, (title, names) in zip(axes.flat[:3], PANELS.items(), strict=True):
        _panel(axis, runs, arms, {label: _smoothed(name, smooth) for name, label in names.items()})
        running = f", running mean over {smooth} steps" if smooth > 1 else ""
        axis.set(title=title + running, ylim=(0, 1.02 if title in SHARES else None))

    groups = sorted({group for run in runs for line in run.evaluated for group in line["accuracy"]})
    _panel(axes.flat[3], runs, arms, {spoken_group(g): _accuracy(g) for g in groups}, marker="o")
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
    curves: dict[str, Callable[[Run], Points]],
    marker: str | None = None,
) -> None:
    """All curves of a panel. Colours tell the curves of one arm apart, or else the arms."""
    handles = []
    for number, (label, points) in enumerate(curves.items()):
        style = STYLES[number % len(STYLES)] if len(arms) > 1 else "-"
        for place, arm in enumerate(arms):
            found = [points(runs[i]) for i in arm.runs]
            steps = sorted(set[int].intersection(*({*each} for each in found)))
            if not steps:
                continue
            colour = f"C{(place if len(arms) > 1 else number) % 10}"
            values = np.array([[each[step] for step in steps] for each in found])
            look = {"color": colour, "linestyle": style, "marker": marker, "markersize": 4}
            axis.plot(steps, values.mean(axis=0), **look)
            if len(found) > 1:
                ends = values.min(axis=0), values.max(axis=0)
                axis.fill_between(steps, *ends, alpha=0.15, color=colour, linewidth=0)
        handles.append(_handle(label, "0.35" if len(arms) > 1 else f"C{number % 10}", 1.5, style))
    if handles:
        axis.legend(handles=handles, frameon=False, fontsize="small", handlelength=3)


def _handle(label: str, colour: str, width: float, style: Any = "-") -> Any:
    return Line2D([], [], color=colour, linewidth=width, linestyle=style, label=label)


def _smoothed(name: str, width: int) -> Callable[[Run], Points]:
    """Running mean of a run's figure over the last ``width`` steps that have it."""

    def points(run: Run) -> Points:
        known = [(line["step"], line[name]) for line in run.lines if line.get(name) is not None]
        raw = np.array([value for _, value in known])
        return {
            step: float(raw[max(0, i - width + 1) : i + 1].mean())
            for i, (step, _) in enumerate(known)
        }

    return points


def _accuracy(group: str) -> Callable[[Run], Points]:
    """Accuracy of a run, where it was evaluated."""
    return lambda run: {
        line["step"]: line["accuracy"][group] for line in run.evaluated if group in line["accuracy"]
    }

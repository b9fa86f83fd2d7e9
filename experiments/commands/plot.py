"""``ssp plot``: rewards, hops, validity and accuracy against steps, a line per arm of runs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from experiments.report.arms import arm_names, arms
from experiments.report.collect import open_runs
from experiments.report.figures import spoken_group
from ssp_env.errors import ConfigError, RunError

PANELS = (
    ("rewards", (("solver_reward", "solver"), ("proposer_reward", "proposer"))),
    (
        "proposals",
        (
            ("valid_rate", "valid"),
            ("true_share", "true, of the valid"),
            ("ambiguous_share", "ambiguous, of the valid"),
        ),
    ),
    (
        "hops and searches",
        (("question_hops", "hops of valid questions"), ("solver_searches", "solver's searches")),
    ),
)
SHARES = ("rewards", "proposals")
"""Panels whose values lie between 0 and 1."""
STYLES = ("-", "--", ":", "-.")
"""Of the curves of one panel, where colours tell the arms apart."""
GREY = "0.35"

Lines = list[dict[str, Any]]
Points = dict[int, float]


@dataclass(frozen=True)
class _Arm:
    """Runs that are drawn as one line."""

    name: str
    runs: list[Lines]
    colour: str


def run(arguments: Namespace) -> int:
    """Draws the runs into one picture."""
    if arguments.smooth < 1:
        raise ConfigError("--smooth", arguments.smooth, "must be at least 1")

    out, runs = Path(arguments.out), open_runs(arguments.runs)
    groups = arms([run.settings for run in runs])
    drawn = [
        _Arm(name, [runs[place].lines for place in members], f"C{number % 10}")
        for number, (name, members) in enumerate(
            zip(arm_names(groups, [run.key for run in runs]), groups, strict=True)
        )
    ]

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = picture(drawn, arguments.smooth)
    unfinished = out.with_name(f".unfinished_{out.name}")
    try:
        figure.savefig(unfinished, dpi=120)
        unfinished.replace(out)
    except (OSError, ValueError) as error:
        # matplotlib raises a ValueError for an unknown file type.
        raise RunError(f"{out} cannot be written: {error}") from error
    finally:
        pyplot.close(figure)
        if unfinished.is_file():
            unfinished.unlink()

    print(f"wrote {out} ({_told(drawn)})")
    for arm in drawn:
        ends = [lines[-1]["step"] for lines in arm.runs]
        if min(ends) < max(ends):
            print(f"{arm.name} is drawn up to step {min(ends)}, which all of its runs have")

    return 0


def picture(drawn: Sequence[_Arm], smooth: int) -> Any:
    """The picture, as a figure of matplotlib.

    Args:
        drawn: one line each, the mean, with the range of its runs around it.
        smooth: steps of the running mean.
    """
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7.5), constrained_layout=True)
    for axis, (title, curves) in zip(axes.flat[:3], PANELS, strict=True):
        values = [(label, _smoothed(name, smooth)) for name, label in curves]
        _panel(axis, drawn, values)
        running = f", running mean over {smooth} steps" if smooth > 1 else ""
        axis.set(title=title + running, ylim=(0, 1.02 if title in SHARES else None))

    groups = sorted(
        {
            group
            for arm in drawn
            for lines in arm.runs
            for line in lines
            for group in line.get("accuracy", {})
        }
    )
    values = [(spoken_group(group), _accuracy(group)) for group in groups]
    _panel(axes.flat[3], drawn, values, marker="o")
    axes.flat[3].set(title="accuracy on unseen questions", ylim=(0, 1.02))

    for axis in axes.flat:
        axis.set_xlabel("step")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    if len(drawn) > 1:
        _legend_of_arms(figure, drawn)
    elif len(drawn[0].runs) > 1:
        figure.suptitle(_with_number(drawn[0]))
    return figure


def _panel(
    axis: Any,
    drawn: Sequence[_Arm],
    values: Sequence[tuple[str, Callable[[Lines], Points]]],
    marker: str | None = None,
) -> None:
    """All curves of a panel. Colours tell the curves of one arm apart, or else the arms."""
    from matplotlib.lines import Line2D

    handles = []
    for number, (label, points) in enumerate(values):
        several = len(drawn) > 1
        look: dict[str, Any] = {"linestyle": STYLES[number % len(STYLES)] if several else "-"}
        look |= {"marker": marker, "color": f"C{number % 10}"}
        found = [(arm, [points(lines) for lines in arm.runs]) for arm in drawn]
        for arm, of_runs in found:
            _curve(axis, of_runs, **(look | ({"color": arm.colour} if several else {})))

        if any(any(of_runs) for _, of_runs in found):
            shown = look | ({"color": GREY} if several else {})
            handles.append(Line2D([], [], markersize=3, label=label, **shown))
    if handles:
        axis.legend(handles=handles, frameon=False, fontsize="small", handlelength=3)


def _curve(axis: Any, of_runs: Sequence[Points], **look: Any) -> None:
    """The mean of runs, and their range around it, at the steps that all of them have."""
    steps = sorted(set[int].intersection(*({*points} for points in of_runs)))
    if not steps:
        return

    values = np.array([[points[step] for step in steps] for points in of_runs])
    axis.plot(steps, values.mean(axis=0), markersize=4, **look)
    if len(of_runs) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        axis.fill_between(steps, low, high, alpha=0.15, color=look["color"], linewidth=0)


def _legend_of_arms(figure: Any, drawn: Sequence[_Arm]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=arm.colour, linewidth=4, label=_with_number(arm)) for arm in drawn
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)


def _with_number(arm: _Arm) -> str:
    if len(arm.runs) == 1:
        return arm.name
    return f"{arm.name} (mean and range of {len(arm.runs)} runs)"


def _told(drawn: Sequence[_Arm]) -> str:
    number = sum(len(arm.runs) for arm in drawn)
    if number == 1:
        return "1 run"
    if len(drawn) == 1:
        return f"{number} runs: mean and range"
    return f"{number} runs, {len(drawn)} lines: " + ", ".join(map(_with_number, drawn))


def _smoothed(name: str, width: int) -> Callable[[Lines], Points]:
    """Step -> running mean of a run's figure over the last ``width`` steps that have it."""

    def points(lines: Lines) -> Points:
        known = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
        raw = np.array([value for _, value in known])
        return {
            step: float(raw[max(0, i - width + 1) : i + 1].mean())
            for i, (step, _) in enumerate(known)
        }

    return points


def _accuracy(group: str) -> Callable[[Lines], Points]:
    """Step -> accuracy of a run, where it was evaluated."""
    return lambda lines: {
        line["step"]: line["accuracy"][group] for line in lines if group in line.get("accuracy", {})
    }

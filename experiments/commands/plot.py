"""``ssp plot``: rewards, hops, validity and accuracy against steps, mean and range over runs."""

from __future__ import annotations

from argparse import Namespace
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from experiments.run.directory import RunDirectory
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

Lines = list[dict[str, Any]]


def run(arguments: Namespace) -> int:
    """Draws the runs into one picture."""
    if arguments.smooth < 1:
        raise ConfigError("--smooth", arguments.smooth, "must be at least 1")

    out, runs = Path(arguments.out), [RunDirectory(path).read_metrics() for path in arguments.runs]
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7.5), constrained_layout=True)
    for axis, (title, curves) in zip(axes.flat[:3], PANELS, strict=True):
        for name, label in curves:
            _curve(axis, _smoothed(runs, name, arguments.smooth), label)

        axis.set(title=title, xlabel="step", ylim=(0, 1.02 if title in SHARES else None))

    groups = sorted(
        {group for lines in runs for line in lines for group in line.get("accuracy", {})}
    )
    for group in groups:
        _curve(
            axes.flat[3],
            _accuracy(runs, group),
            f"{group} hops" if group.isdecimal() else group,
            marker="o",
        )

    axes.flat[3].set(title="accuracy on unseen questions", xlabel="step", ylim=(0, 1.02))

    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False)

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

    print(f"wrote {out} ({len(runs)} {'run' if len(runs) == 1 else 'runs: mean and range'})")

    return 0


def _smoothed(runs: list[Lines], name: str, width: int) -> dict[int, list[float]]:
    """Step -> one running mean per run, over the last ``width`` steps that have the figure."""
    values: dict[int, list[float]] = defaultdict(list)
    for lines in runs:
        with_figure = [line for line in lines if line.get(name) is not None]
        raw = np.array([line[name] for line in with_figure])
        for i, line in enumerate(with_figure):
            values[line["step"]].append(float(raw[max(0, i - width + 1) : i + 1].mean()))

    return values


def _accuracy(runs: list[Lines], group: str) -> dict[int, list[float]]:
    """Step -> the accuracy of each run that was evaluated there."""
    values: dict[int, list[float]] = defaultdict(list)
    for lines in runs:
        for line in lines:
            if group in line.get("accuracy", {}):
                values[line["step"]].append(line["accuracy"][group])

    return values


def _curve(
    axis: Any, values: dict[int, list[float]], label: str, marker: str | None = None
) -> None:
    steps = sorted(values)
    if not steps:
        return

    (line,) = axis.plot(
        steps, [np.mean(values[s]) for s in steps], label=label, marker=marker, markersize=4
    )

    if max(len(v) for v in values.values()) > 1:
        low, high = [min(values[s]) for s in steps], [max(values[s]) for s in steps]
        axis.fill_between(steps, low, high, alpha=0.15, color=line.get_color(), linewidth=0)

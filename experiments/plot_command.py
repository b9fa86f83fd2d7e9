"""``ssp plot``: rewards, hops and validity against steps, mean and range over runs."""

from __future__ import annotations

from argparse import Namespace
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments.run_directory import RunDirectory
from ssp_env.errors import RunError

PANELS = (
    ("rewards", (("solver_reward", "solver"), ("proposer_reward", "proposer"))),
    ("questions accepted", (("valid_rate", "valid share of proposals"), ("true_share", "true share of accepted"))),
    ("hops and searches", (("question_hops", "hops of accepted questions"), ("solver_searches", "solver's searches"))),
)


def run(arguments: Namespace) -> int:
    """Draws the runs into one picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    runs = [RunDirectory(path).read_metrics() for path in arguments.runs]
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7.5), constrained_layout=True)
    for axis, (title, curves) in zip(axes.flat[:3], PANELS, strict=True):
        for name, label in curves:
            _curve(axis, _series(runs, name, arguments.smooth), label)
        axis.set(title=title, xlabel="step", ylim=(0, None))
        axis.legend(frameon=False)
    for group in sorted(runs[0][0].get("accuracy", {})):
        _curve(axes.flat[3], _accuracy(runs, group), group, marker="o")
    axes.flat[3].set(title="accuracy on unseen questions", xlabel="step", ylim=(0, 1.02))
    axes.flat[3].legend(title="hops", frameon=False)
    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(arguments.out, dpi=120)
    except OSError as error:
        raise RunError(f"{arguments.out} cannot be written: {error}") from error
    print(f"wrote {Path(arguments.out)} ({len(runs)} runs)")
    return 0


def _series(runs: list[list[dict[str, Any]]], name: str, smooth: int) -> dict[int, list[float]]:
    """Step -> one smoothed value a run."""
    values: dict[int, list[float]] = defaultdict(list)
    for lines in runs:
        steps = [line["step"] for line in lines if name in line]
        raw = np.array([line[name] for line in lines if name in line])
        for i, step in enumerate(steps):
            values[step].append(float(raw[max(0, i - smooth + 1) : i + 1].mean()))
    return values


def _accuracy(runs: list[list[dict[str, Any]]], group: str) -> dict[int, list[float]]:
    values: dict[int, list[float]] = defaultdict(list)
    for lines in runs:
        for line in lines:
            if group in line.get("accuracy", {}):
                values[line["step"]].append(line["accuracy"][group])
    return values


def _curve(axis: Any, values: dict[int, list[float]], label: str, marker: str | None = None) -> None:
    steps = sorted(values)
    if not steps:
        return
    (line,) = axis.plot(steps, [np.mean(values[s]) for s in steps], label=label, marker=marker, markersize=4)
    if max(len(v) for v in values.values()) > 1:
        low, high = [min(values[s]) for s in steps], [max(values[s]) for s in steps]
        axis.fill_between(steps, low, high, alpha=0.15, color=line.get_color(), linewidth=0)

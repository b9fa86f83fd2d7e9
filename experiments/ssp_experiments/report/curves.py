"""Curves of runs and of means over seeds: as plain data for the page, and as a picture."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ssp_env.disk import replacing
from ssp_env.errors import RunError
from ssp_experiments.options import plural
from ssp_experiments.report.runs import ACCURACY, MEAN, REASON, Arm, Run, looks_of
from ssp_experiments.stats import over_runs

FEWEST = 3
"""Seeds from which on means have intervals; those of two reach beyond everything."""
DASHES = ("-", "--", ":", "-.")
"""A picture dashes its arms by these, so that curves that coincide are both seen."""
PLOTTED = (
    *("solver_reward", "proposer_reward", "valid_rate", "true_share", "ambiguous_share"),
    *("question_hops", "solver_searches", "seconds.step"),
)
"""Figures that a sweep draws besides accuracy, and that its tables show."""


REWARDS, QUESTIONS, LENGTHS = "Accuracy and rewards", "Questions", "Searches and lengths"
HEALTH, TIME = "Health of learning", "Games and time"
KINDS = (
    (REWARDS, "Unseen questions", "share answered right", r"accuracy\..*"),
    (REWARDS, "What each role is paid", "mean reward", r"(proposer|solver|given)_reward.*"),
    (REWARDS, "Given questions", "share", r"given_(accuracy|uniform|share)"),
    (QUESTIONS, "Proposals that count", "share", r"(valid|verified)_rate|filled_slots"),
    (QUESTIONS, "Why proposals fail", "share of proposals", r"invalid_.*"),
    (QUESTIONS, "What is true of them", "share", r"(true|ambiguous|repeated|unsolved)_share"),
    (QUESTIONS, "Hops of accepted questions", "hops", r"question_hops"),
    (QUESTIONS, "Accepted questions by hops", "share", r"share_\d+hop"),
    (LENGTHS, "Searches", "calls per trajectory", r".*_searches"),
    (LENGTHS, "Length of what is written", "tokens", r"(proposer|solver)_tokens"),
    (LENGTHS, "Out of tokens", "share", r"(proposer|solver)_overlong"),
    (LENGTHS, "Length of questions", "words", r"question_words"),
    (LENGTHS, "Tokens per step", "tokens", r"(policy|all|learner_trained|learner_example)_tokens"),
    (HEALTH, "Entropy", "nats", r".*entropy.*"),
    (HEALTH, "Loss", "weighted sum", r"learner_(.+_)?loss(_.+)?"),
    (HEALTH, "KL", "nats", r"learner_(.+_)?kl(_.+)?"),
    (HEALTH, "Gradient norm", "before clipping", r".*grad_norm.*"),
    (HEALTH, "Engine and learner apart", "nats per token", r".*_gap"),
    (HEALTH, "Skipped and clipped", "share", r"learner_.*(skipped|clip).*"),
    (HEALTH, "", "", r"learner_.*|.*advantage.*"),
    (TIME, "Games per step", "games", r"games|.*_games|void_attempts"),
    (TIME, "Passes through the given questions", "epochs", r"given_epoch"),
    (TIME, "Seconds per step", "seconds", r"seconds\..*"),
    ("Other figures", "", "", r".*"),
)
"""Heading, title, unit and the names that fit, in the order of the page. A figure belongs to the
first; without a title, each has a chart of its own."""

LABELS = {
    "solver_reward_fresh": "solver, new questions",
    "given_reward": "solver, given questions",
    "given_searches": "solver, given questions",
    "given_accuracy": "right answers",
    "given_uniform": "all attempts paid alike",
    "given_share": "of the games that count",
    "given_epoch": "epochs",
    "filled_slots": "filled places of the batch",
    "valid_rate": "valid, of the proposals",
    "verified_rate": "verified, of those that were read",
    "unsolved_share": "solved by nobody, of those that were tried",
    "true_share": "ground truth is right",
    "ambiguous_share": "has other right answers",
    "repeated_share": "nearly repeats another",
    "question_hops": "hops",
    "question_words": "words",
    "all_tokens": "sampled, prompted, retrieved",
    "policy_tokens": "sampled",
    "learner_trained_tokens": "trained on",
    "learner_example_tokens": "of these, examples'",
}


def charts(names: Iterable[str]) -> list[tuple[dict[str, Any], list[str]]]:
    """Deals figures to charts, in the order of the page; each figure is in exactly one.

    A chart has a ``group`` (its heading), ``title`` and ``unit``; ``share`` is whether that is one.
    """
    left, placed = sorted({*names}), []
    for group, title, unit, pattern in KINDS:
        matching = [name for name in left if re.fullmatch(pattern, name)]
        left = [name for name in left if name not in matching]
        about = {"group": group, "title": title, "unit": unit, "share": unit.startswith("share")}
        if matching and title:
            placed.append((about, matching))
        else:
            placed += [({**about, "title": in_words(n).capitalize()}, [n]) for n in matching]
    return placed


def in_words(name: str) -> str:
    """The words for a figure in a legend."""
    if name in LABELS:
        return LABELS[name]
    if match := re.fullmatch(r"share_(\d+)hop|accuracy\.(.*)", name):
        return group_in_words(match[1] or match[2])
    name = re.sub(rf"^({REASON}|learner_|seconds\.)", "", name)  # its heading says that
    name = re.sub(r"^(proposer|solver)_(tokens|searches|overlong|reward)$", r"\1", name)
    name = re.sub(r"[_.]+", " ", name).replace("grad norm", "gradient norm")
    return re.sub(r"\bkl\b", "KL", name)


def group_in_words(group: str) -> str:
    """The words for a group of questions: a number of hops, or a benchmark's name."""
    return plural(int(group), "hop") if group.isdecimal() else group


def titled(name: str) -> str:
    """The title of a figure that has a chart to itself."""
    title, label = str(charts([name])[0][0]["title"]), in_words(name)
    if label.lower() in title.lower():
        return title
    # "Entropy" and "proposer entropy" are said once.
    return label[0].upper() + label[1:] if title.lower() in label.lower() else f"{title}: {label}"


def curve(run: Run, name: str) -> pd.DataFrame:
    """A figure (``y``) by step, where it is known; an accuracy with the ends of its interval
    (``low``, ``high``)."""
    points = run.figure(name).to_frame("y")
    if points.empty or not name.startswith(ACCURACY) or name == MEAN:
        return points
    group = name.removeprefix(ACCURACY)
    ends = {line["step"]: line["interval"].get(group) for line in run.evaluated}
    points[["low", "high"]] = [ends[step] for step in points.index]
    return points


def mean_curve(curves: Sequence[pd.DataFrame], share: bool) -> pd.DataFrame:
    """Means over runs, at the steps that all of them have; of :data:`FEWEST` runs or more with
    their intervals. Those of a share end at 0 and 1."""
    if len(curves) == 1:
        return curves[0]
    # A row per step, a column per run. A mean over fewer runs would jump where one of them ends.
    common = pd.concat([curve["y"] for curve in curves], axis="columns").dropna()
    if len(curves) < FEWEST:
        return common.mean(axis="columns").to_frame("y")
    means = [over_runs(values) for values in common.to_numpy().tolist()]
    rows = [(mean.mean, mean.low, mean.high) for mean in means]
    points = pd.DataFrame(rows, common.index, ["y", "low", "high"])
    if share:
        points[["low", "high"]] = points[["low", "high"]].clip(0.0, 1.0)
    return points


# -- of the page -------------------------------------------------------------------------------


def chart_data(runs: Sequence[Run], arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """All curves that are not always 0, and all accuracies, as plain data.

    A chart of one run has a curve per figure; of several runs, each figure has a chart with a curve
    per run, and one per arm; from :data:`FEWEST` seeds on, with the 95% interval over them.
    """
    drawn, looks = [], looks_of(runs, arms)
    for about, names in charts({name for run in runs for name in run.figures}):
        known = {name: [curve(run, name) for run in runs] for name in names}
        shown = {
            name: curves
            for name, curves in known.items()
            if name.startswith(ACCURACY) or any(c["y"].any() for c in curves)
        }
        if len(runs) == 1 and shown:
            series = [
                (in_words(name), {"colour": i, "dash": i}, shown[name][0])
                for i, name in enumerate(shown)
            ]
            drawn.append({**about, **_plain(series, [])})
        for name, curves in shown.items() if len(runs) > 1 else ():
            series = [(run.key, looks[i], curves[i]) for i, run in enumerate(runs)]
            means = [
                (
                    arm.name,
                    {"colour": place, "dash": place},
                    mean_curve([curves[i] for i in arm.runs], about["share"]),
                )
                for place, arm in enumerate(arms)
                if len(arms) < len(runs)
            ]
            drawn.append({**about, "title": titled(name), **_plain(series, means)})
    return drawn


Curves = Sequence[tuple[str, dict[str, int], pd.DataFrame]]
"""Label, numbers of the colour and of the dashes, and points."""


def _plain(series: Curves, means: Curves) -> dict[str, Any]:
    """Curves over common steps, in six digits; ``None`` where one has no value."""
    steps = sorted({step for *_, points in series for step in points.index.tolist()})

    # More digits would be noise, and most of the page.
    def plain(label: str, look: dict[str, int], points: pd.DataFrame) -> dict[str, Any]:
        columns = {
            name: [float(f"{value:.6g}") if math.isfinite(value) else None for value in column]
            for name, column in points.reindex(steps).items()
        }
        return {"label": label, **look, **columns}

    both = {"series": series, "means": means}
    return {"x": steps, **{kind: [plain(*one) for one in curves] for kind, curves in both.items()}}


# -- pictures ----------------------------------------------------------------------------------


def draw_runs(
    out: Path, runs: Sequence[Run], arms: Sequence[Arm], names: Sequence[str], smooth: int
) -> None:
    """Draws figures, one line per arm: its mean over seeds, up to the last step that all of them
    have. All but accuracies are running means over ``smooth`` steps."""
    figure, axes = panels(len(names))
    for axis, name in zip(axes, names, strict=True):
        is_accuracy = name.startswith(ACCURACY)
        for place, arm in enumerate(arms):
            if not arm.runs:
                continue
            curves = [curve(runs[i], name) for i in arm.runs]
            if not is_accuracy:
                curves = [points.rolling(smooth, min_periods=1).mean() for points in curves]
            about = charts([name])[0][0]
            mean, look = mean_curve(curves, about["share"]), {"color": f"C{place % 10}"}
            marker = "o" if is_accuracy else None
            style = DASHES[place % len(DASHES)]
            axis.plot(mean.index, mean["y"], style, marker=marker, label=arm.name, **look)
            if len(curves) >= FEWEST:
                ends = mean["low"], mean["high"]
                axis.fill_between(mean.index, *ends, alpha=0.12, linewidth=0, **look)

        axis.set_title(titled(name), fontsize="medium")
        axis.set(xlabel="step" if is_accuracy else f"step (mean of the last {smooth})")
        if is_accuracy:
            axis.set(ylim=(-0.02, 1.02))
        axis.xaxis.get_major_locator().set_params(integer=True)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, out)


def panels(count: int) -> tuple[Any, list[Any]]:
    """A figure of matplotlib and its axes, three side by side."""
    from matplotlib.figure import Figure

    rows = -(-count // 3)
    figure = Figure(figsize=(13, 3.4 * rows), layout="constrained")
    axes = [figure.add_subplot(rows, 3, place + 1) for place in range(count)]
    for axis in axes:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, out: Path) -> None:
    """Writes a figure of matplotlib, in full or not at all."""
    try:
        with replacing(out, "wb") as file:
            figure.savefig(file, dpi=120, format=out.suffix.removeprefix(".") or "png")
    except ValueError as error:  # an unknown file type
        raise RunError(f"{out} cannot be written: {error}") from error

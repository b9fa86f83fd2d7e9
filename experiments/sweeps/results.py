"""Results of a sweep: all steps of all trials, and the tables and the figure made of them.

Intervals are Student's t over seeds, 95%. Comparisons are paired: the difference is taken seed by
seed, since trials of one seed play for the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.report.curves import save_figure
from experiments.report.figures import figures_of, spoken_group
from experiments.report.runs import LAST_STEPS
from experiments.stats import over_runs
from experiments.sweeps.definition import ENDED, Paper, Sweep, SweepDirectory, Trial

MEAN = "accuracy.mean"
"""Column of the mean over the groups of questions, as the paper's average over benchmarks."""
NONE = "-"
SMOOTHED = 5
"""Steps of a running mean, for figures that are noisy from step to step."""
FEWEST = 3
"""Seeds from which on curves have intervals; those of two reach beyond everything."""


@dataclass(frozen=True)
class Table:
    """A table as people read it."""

    title: str
    cells: pd.DataFrame
    """Text; the index is the first column."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As Markdown."""
        sides = ("left", *["right"] * len(self.cells.columns))
        made = self.cells.to_markdown(disable_numparse=True, colalign=sides)
        return "\n\n".join([f"## {self.title}", made, *self.notes])


class Results:
    """Trials as they are in their directories.

    Attributes:
        steps: a row per trial and step: ``arm``, ``seed``, ``state``, the settings in which arms
            differ, ``step``, whether it was ``evaluated``, ``accuracy.GROUP``, and all figures of
            ``metrics.jsonl``.
        ends: by arm and seed, the accuracies at the last evaluation of each trial that counts: one
            that has ended, and that no outage has left without a group of questions.
        apart: their differences from the baseline of the same seed.
    """

    def __init__(self, sweep: Sweep, trials: Sequence[Trial], directory: SweepDirectory) -> None:
        self.sweep, self.arms = sweep, list(sweep.all_arms())
        self.states = [(trial, directory.state(trial)) for trial in trials]
        self.steps = _steps(self.states, directory)
        self.groups = [name for name in self.steps if name.startswith("accuracy.")]

        over = self.steps["state"].isin(ENDED)
        ended = self.steps[over & self.steps["evaluated"].astype(bool)]
        last = ended.groupby(["arm", "seed"], sort=False).tail(1).set_index(["arm", "seed"])
        self.ends = last.loc[last[MEAN].notna(), self.groups]
        is_baseline = self.ends.index.get_level_values("arm") == sweep.compared_with
        baseline = self.ends[is_baseline].droplevel("arm")
        self.apart = self.ends.sub(baseline, level="seed").reindex(self.ends.index)

    def tables(self) -> list[Table]:
        """All tables; none where no trial counts."""
        if self.ends.empty:
            return []
        made = [self._accuracies()]
        if len(self.arms) > 1:
            made.append(self._comparisons())
        if self.sweep.figures:
            made.append(self._figures())
        if self.sweep.paper is not None:
            made.append(self._with_paper(self.sweep.paper))
        return made

    def as_data(self) -> dict[str, Any]:
        """By arm and group: values by seed, mean, interval, and difference from the baseline."""

        def estimate(values: pd.Series) -> dict[str, Any] | None:
            if values.empty:
                return None
            found = over_runs(list(values))
            return {"mean": found.mean, "interval": found.interval}

        data: dict[str, Any] = {arm: {} for arm in self.arms}
        for arm, ends in self.ends.groupby("arm", sort=False):
            apart = self.apart.loc[ends.index]
            for column in self.groups:
                values = ends[column].droplevel("arm").dropna()
                data[str(arm)][column.removeprefix("accuracy.")] = {
                    "by_seed": {int(seed): float(value) for seed, value in values.items()},
                    "accuracy": estimate(values),
                    "difference": estimate(apart[column].dropna()),
                }
        return data

    def _accuracies(self) -> Table:
        started = self.steps[(self.steps["step"] == 0) & self.steps["state"].isin(ENDED)]
        base = started.groupby("arm", sort=False)[self.groups].mean().round(9)
        # Arms usually begin with the same policy; whatever the seed, it has no interval.
        if len(base.drop_duplicates()) == 1:
            base = base.head(1).set_axis(["before training"])
        else:
            base = base.set_axis([f"{arm}, before" for arm in base.index])

        counts = self.ends.groupby("arm").size().reindex(self.arms, fill_value=0)
        cells = pd.concat([base.map(_short), _cells(self.ends, self.arms)])
        cells.insert(0, "seeds", [*[NONE] * len(base), *map(str, counts)])
        steps = sorted({t.config.steps for t, state in self.states if state in ENDED})
        title = f"Accuracy on held-out questions after {' or '.join(map(str, steps))} steps"
        return Table(title, self._headed(cells), self._notes())

    def _comparisons(self) -> Table:
        baseline = self.sweep.compared_with
        others = [arm for arm in self.arms if arm != baseline]
        means = self.apart[MEAN].dropna().groupby("arm")
        better = means.agg(lambda found: f"{(found > 0).sum()} of {len(found)}")
        cells = _cells(self.apart, others, sign="+")
        cells.insert(0, "better in", better.reindex(others, fill_value=NONE))
        return Table(f"Against {baseline}, seed by seed", self._headed(cells))

    def _figures(self) -> Table:
        figures = list(self.sweep.figures)
        steps = self.steps[self.steps["step"] > 0].groupby(["arm", "seed"], sort=False)
        known = [figure for figure in figures if figure in self.steps]
        last = steps[known].agg(lambda figure: figure.dropna().tail(LAST_STEPS).mean())
        cells = _cells(last.reindex(index=self.ends.index, columns=figures), self.arms)
        note = "Seconds are longer where trials shared the machine (all but --parallel 1)."
        notes = (note,) if any(figure.startswith("seconds.") for figure in figures) else ()
        title = f"Other figures, mean of the last {LAST_STEPS} steps"
        return Table(title, cells.rename(columns=_words), notes)

    def _with_paper(self, paper: Paper) -> Table:
        """Ours and the paper's: the differences can be compared, the accuracies cannot."""
        baseline = self.sweep.compared_with
        cells = _cells(self.ends[[MEAN]], self.arms).set_axis(["ours"], axis=1)
        cells["difference"] = _cells(self.apart[[MEAN]], self.arms, sign="+")[MEAN]
        cells.loc[baseline, "difference"] = ""
        for place, column in enumerate(paper.columns):
            theirs = {arm: row[place] for arm, row in paper.rows.items()}
            shown = {arm: f"{figure:.1f}" for arm, figure in theirs.items()}
            for arm in theirs.keys() - {baseline} if baseline in theirs else ():
                shown[arm] += f" ({theirs[arm] - theirs[baseline]:+.1f})"
            cells[f"paper: {column}"] = [shown.get(arm, NONE) for arm in self.arms]
        note = f"Paper: {paper.source}; accuracies of 100; in brackets, against {baseline}."
        return Table("Beside the paper", cells, (note,))

    def _headed(self, cells: pd.DataFrame) -> pd.DataFrame:
        heads = {name: spoken_group(name.removeprefix("accuracy.")) for name in self.groups}
        return cells.rename(columns=heads).rename_axis("arm")

    def _notes(self) -> tuple[str, ...]:
        """Trials that are not like the others."""
        notes: dict[str, list[str]] = {}
        for trial, state in self.states:
            note = {
                "begun": "not finished: not in the tables",
                "waiting": "not begun: not in the tables",
                "stopped": "stopped because its figures went wrong: its last evaluation counts",
                "done": "",
            }[state]
            if state in ENDED and (trial.arm, trial.seed) not in self.ends.index:
                note = "an outage hit whole groups at its last evaluation: not in the tables"
            if note:
                notes.setdefault(note, []).append(str(trial))
        return tuple(
            f"{'; '.join(names[:4])}{f' and {len(names) - 4} more' if names[4:] else ''}: {note}."
            for note, names in notes.items()
        )


def _steps(states: Sequence[tuple[Trial, str]], directory: SweepDirectory) -> pd.DataFrame:
    """A row per trial and step; see :class:`Results`."""
    read: list[list[dict[str, Any]]] = []
    for trial, _ in states:
        run = directory.run(trial)
        begun = run.metrics.exists() and b"\n" in run.metrics.read_bytes()
        read.append(run.read_metrics() if begun else [])

    rows = []
    for (trial, state), lines in zip(states, read, strict=True):
        groups = {group for line in lines for group in line.get("accuracy", ())}
        for line in lines:
            accuracy = line.get("accuracy", {})
            # An evaluation that an outage hit lacks groups, so it has no mean.
            whole = bool(groups) and accuracy.keys() == groups
            row = {
                "arm": trial.arm,
                "seed": trial.seed,
                "state": state,
                **{name: str(value) for name, value in trial.settings.items()},
                "step": line["step"],
                "evaluated": "accuracy" in line,
                MEAN: fmean(accuracy.values()) if whole else float("nan"),
                **{f"accuracy.{group}": value for group, value in accuracy.items()},
            }
            rows.append(row)

    settings = dict.fromkeys(name for trial, _ in states for name in trial.settings)
    accuracies = sorted({name for row in rows for name in row if name.startswith("accuracy.")})
    groups_of_all = [MEAN, *(name for name in accuracies if name != MEAN)]
    first = ["arm", "seed", "state", *settings, "step", "evaluated", *groups_of_all]
    steps = pd.DataFrame(rows, columns=first)
    if steps.empty:
        return steps
    figures = figures_of(line for lines in read for line in lines).reset_index(drop=True)
    rest = sorted(figures, key=lambda name: (name.startswith("seconds."), name))
    return steps.join(figures[rest])


def _cells(values: pd.DataFrame, arms: Sequence[str], sign: str = "") -> pd.DataFrame:
    """The mean over seeds and half of its interval, as text, for each arm and column."""

    def text(seeds: pd.Series) -> str:
        known = list(seeds.dropna())
        if not known:
            return NONE
        found = over_runs(known)
        half = "" if found.half is None else f" ±{_short(found.half, 2)}"
        return f"{_short(found.mean, sign=sign)}{half}"

    return values.groupby("arm", sort=False).agg(text).reindex(arms, fill_value=NONE)


def _short(value: float, digits: int = 3, sign: str = "") -> str:
    return NONE if pd.isna(value) else f"{value:{sign}.{1 if abs(value) >= 10 else digits}f}"


def _words(figure: str) -> str:
    return figure.replace("_", " ").replace(".", " ")


# -- the figure --------------------------------------------------------------------------------


def draw(results: Results, out: Path) -> None:
    """Draws the trials that have ended: mean accuracy at the end, and curves of all groups."""
    figures = [figure for figure in results.sweep.figures if figure in results.steps]
    columns = [*results.groups[1:], *figures]
    rows = -(-(1 + len(columns)) // 3)
    figure = Figure(figsize=(13, 3.4 * rows), layout="constrained")
    for place, column in enumerate([MEAN, *columns]):
        axis = figure.add_subplot(rows, 3, place + 1)
        if place:
            _draw_curves(axis, results, column)
        else:
            _draw_ends(axis, results)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(results.sweep.title, fontsize=13)
    save_figure(figure, out)


def _draw_ends(axis: Any, results: Results) -> None:
    """Mean accuracy at the end: each seed, and the mean with its interval."""
    for arm, values in results.ends[MEAN].groupby("arm"):
        found, place = over_runs(list(values)), results.arms.index(str(arm))
        look: dict[str, Any] = {"color": f"C{place % 10}", "markersize": 6}
        axis.plot(values, [place] * len(values), "o", alpha=0.35, **look)
        axis.errorbar([found.mean], [place], xerr=found.half, fmt="D", capsize=3, **look)
    # At least a tenth, so that small differences look small.
    low, high = axis.get_xlim()
    lacking = max(0.0, 0.1 - (high - low)) / 2
    axis.set(xlim=(max(-0.02, low - lacking), min(1.02, high + lacking)))
    axis.set(title="mean accuracy at the end (* baseline)")
    names = [f"{arm} *" if arm == results.sweep.compared_with else arm for arm in results.arms]
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()


def _draw_curves(axis: Any, results: Results, column: str) -> None:
    """One line per arm: the mean over seeds, and its interval where there are several."""
    is_accuracy = column.startswith("accuracy.")
    known = results.steps.dropna(subset=[column])
    for place, arm in enumerate(results.arms):
        curves = known[known["arm"] == arm].pivot(index="step", columns="seed", values=column)
        if not is_accuracy:
            curves = curves.rolling(SMOOTHED, min_periods=1).mean()
        mean, colour = curves.mean(axis=1), f"C{place % 10}"
        axis.plot(mean.index, mean, color=colour, marker="o" if is_accuracy else None)
        if len(mean) and curves.count(axis=1).min() >= FEWEST:
            found = [over_runs(list(row.dropna())) for _, row in curves.iterrows()]
            low, high = [one.low for one in found], [one.high for one in found]
            axis.fill_between(mean.index, low, high, color=colour, alpha=0.12, linewidth=0)

    if is_accuracy:
        group = spoken_group(column.removeprefix("accuracy."))
        axis.set(title=f"accuracy, {group}", xlabel="step", ylim=(-0.02, 1.02))
    else:
        axis.set(title=_words(column), xlabel=f"step (mean of the last {SMOOTHED})")
    axis.xaxis.get_major_locator().set_params(integer=True)

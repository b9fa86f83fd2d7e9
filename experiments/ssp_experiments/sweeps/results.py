"""Results of a sweep: all steps of all trials, and the tables and the figure made of them.

Intervals are Student's t over seeds, 95%. Comparisons are paired: the difference is taken seed by
seed, since trials of one seed play for the same answers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ssp_experiments.report.curves import PLOTTED, draw_runs, in_words
from ssp_experiments.report.runs import ACCURACY, MEAN, Arm, read_run
from ssp_experiments.stats import over_runs
from ssp_experiments.sweeps.definition import ENDED, Sweep, SweepDirectory, Trial

NONE = "-"
LAST_STEPS = 10
"""Steps that other figures are averaged over."""
SMOOTHED = 5
"""Steps of a running mean, for figures that are noisy from step to step."""


@dataclass(frozen=True)
class Table:
    """A table as people read it; its cells are text."""

    title: str
    cells: pd.DataFrame
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
            differ, ``step``, ``accuracy.mean``, ``accuracy.GROUP``, and all figures of
            ``metrics.jsonl``.
        ends: by arm and seed, the accuracies at the last evaluation of each trial that counts: one
            that has ended, and that no outage has left without a group of questions.
        apart: their differences from the baseline of the same seed.
    """

    def __init__(self, sweep: Sweep, trials: Sequence[Trial], directory: SweepDirectory) -> None:
        self.sweep, self.arms = sweep, list(sweep.all_arms())
        self.states = [(trial, directory.state(trial)) for trial in trials]
        self.ended, frames = [], []
        ends: dict[tuple[str, int], pd.Series] = {}
        for trial, state in self.states:
            place = directory.run(trial)
            # Without a whole line of metrics there is nothing to show yet.
            if not place.metrics.exists() or b"\n" not in place.metrics.read_bytes():
                continue
            run = read_run(trial.name, place.path)
            settings = {name: str(value) for name, value in trial.settings.items()}
            head = {"arm": trial.arm, "seed": trial.seed, "state": state, **settings}
            frames.append(run.figures.reset_index().assign(**head))
            if state in ENDED:
                self.ended.append((trial, run))
                last = max(line["step"] for line in run.lines if "accuracy" in line)
                ends[trial.arm, trial.seed] = run.figures.loc[last]

        steps = pd.concat(frames) if frames else pd.DataFrame()
        accuracies = sorted(name for name in steps if name.startswith(ACCURACY))
        self.groups = sorted(accuracies, key=lambda name: name != MEAN)
        varied = dict.fromkeys(name for trial in trials for name in trial.settings)
        first = ["arm", "seed", "state", *varied, "step", *self.groups]
        rest = sorted({*steps} - {*first}, key=lambda name: (name.startswith("seconds."), name))
        self.steps = steps.reindex(columns=[*first, *rest])
        self.figures = [figure for figure in PLOTTED if figure in rest]

        index = pd.MultiIndex.from_tuples(list(ends), names=["arm", "seed"])
        table = pd.DataFrame(list(ends.values()), index, self.groups)
        self.ends = table.dropna(subset=[MEAN]) if self.groups else table
        # d(arm, seed) = accuracy(arm, seed) - accuracy(first arm, seed).
        is_baseline = self.ends.index.get_level_values("arm") == self.arms[0]
        baseline = self.ends[is_baseline].droplevel("arm")
        self.apart = self.ends.sub(baseline, level="seed").reindex(self.ends.index)

    def tables(self) -> list[Table]:
        """All tables; none where no trial counts."""
        if self.ends.empty:
            return []
        compared = [self._comparisons()] if len(self.arms) > 1 else []
        beside = [self._with_paper()] if self.sweep.paper else []
        return [self._accuracies(), *compared, self._figures(), *beside]

    def _accuracies(self) -> Table:
        started = self.steps[(self.steps["step"] == 0) & self.steps["state"].isin(ENDED)]
        # Rounded, so that means of equal numbers are found equal.
        base = started.groupby("arm", sort=False)[self.groups].mean().round(9)
        # Arms usually begin with the same policy; whatever the seed, it has no interval.
        if len(base.drop_duplicates()) == 1:
            base = base.head(1).set_axis(["before training"])
        else:
            base = base.set_axis([f"{arm}, before" for arm in base.index])

        counts = self.ends.groupby("arm").size().reindex(self.arms, fill_value=0)
        cells = pd.concat([base.map(short), _cells(self.ends, self.arms)])
        cells.insert(0, "seeds", [*[NONE] * len(base), *map(str, counts)])
        steps = sorted({trial.config.steps for trial, _ in self.ended})
        title = f"Accuracy on held-out questions after {' or '.join(map(str, steps))} steps"
        return Table(title, cells.rename(columns=in_words).rename_axis("arm"), self._notes())

    def _comparisons(self) -> Table:
        baseline, *others = self.arms
        means = self.apart[MEAN].dropna().groupby("arm")
        better = means.agg(lambda differences: f"{(differences > 0).sum()} of {len(differences)}")
        cells = _cells(self.apart, others, sign="+")
        cells.insert(0, "better in", better.reindex(others, fill_value=NONE))
        title = f"Against {baseline}, seed by seed"
        return Table(title, cells.rename(columns=in_words).rename_axis("arm"))

    def _figures(self) -> Table:
        steps = self.steps[self.steps["step"] > 0].groupby(["arm", "seed"], sort=False)
        last = steps[self.figures].agg(lambda figure: figure.dropna().tail(LAST_STEPS).mean())
        last = last.reindex(self.ends.index)
        cells = _cells(last, self.arms).rename(columns=lambda name: re.sub("[._]", " ", name))
        return Table(f"Other figures, mean of the last {LAST_STEPS} steps", cells)

    def _with_paper(self) -> Table:
        """Ours and the paper's: the differences can be compared, the accuracies cannot."""
        baseline = self.arms[0]
        cells = _cells(self.ends[[MEAN]], self.arms).set_axis(["ours"], axis=1)
        cells["difference"] = _cells(self.apart[[MEAN]], self.arms, sign="+")[MEAN]
        cells.loc[baseline, "difference"] = ""
        for column, theirs in self.sweep.paper.items():
            shown = {arm: f"{figure:.1f}" for arm, figure in theirs.items()}
            for arm in theirs.keys() - {baseline} if baseline in theirs else ():
                shown[arm] += f" ({theirs[arm] - theirs[baseline]:+.1f})"
            cells[f"paper: {column}"] = [shown.get(arm, NONE) for arm in self.arms]
        note = f"The paper's accuracies are of 100; in brackets, against {baseline}."
        return Table("Beside the paper", cells, (note,))

    def _notes(self) -> tuple[str, ...]:
        """Trials that are not like the others."""
        notes: dict[str, list[str]] = {}
        for trial, state in self.states:
            if state not in ENDED:
                note = f"{state}, so not in the tables"
            elif (trial.arm, trial.seed) not in self.ends.index:
                note = "an outage hit whole groups at its last evaluation, so not in the tables"
            elif state == "stopped":
                note = "stopped because its figures went wrong; its last evaluation counts"
            else:
                continue
            notes.setdefault(note, []).append(str(trial))
        return tuple(f"{'; '.join(names)}: {note}." for note, names in notes.items())

    def draw(self, out: Path, names: Sequence[str] = ()) -> None:
        """Draws figures of the trials that have ended: by default, all that the tables show."""
        of_arm = [trial.arm for trial, _ in self.ended]
        arms = [Arm(arm, [i for i, of in enumerate(of_arm) if of == arm]) for arm in self.arms]
        runs = [run for _, run in self.ended]
        draw_runs(out, runs, arms, names or [*self.groups, *self.figures], SMOOTHED)


def _cells(values: pd.DataFrame, arms: Sequence[str], sign: str = "") -> pd.DataFrame:
    """The mean over seeds and half of its interval, as text, for each arm and column."""

    def text(seeds: pd.Series) -> str:
        known = list(seeds.dropna())
        if not known:
            return NONE
        estimate = over_runs(known)
        half = "" if estimate.half is None else f" ±{short(estimate.half, 2)}"
        return f"{short(estimate.mean, sign=sign)}{half}"

    return values.groupby("arm", sort=False).agg(text).reindex(arms, fill_value=NONE)


def short(value: float | None, digits: int = 3, sign: str = "") -> str:
    if value is None or math.isnan(value):
        return NONE
    return f"{value:{sign}.{1 if abs(value) >= 10 else digits}f}"

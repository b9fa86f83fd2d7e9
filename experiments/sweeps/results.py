"""Results of a sweep: one table of all steps of all trials, and what is computed from it.

Intervals are Student's t over seeds, 95%. Comparisons are paired: the difference is taken seed by
seed, since trials of one seed play for the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments.report.figures import NOT_FIGURES, REASON
from experiments.report.runs import LAST_STEPS
from experiments.stats import Estimate, over_runs
from experiments.sweeps.definition import Paper, Sweep, Trial
from experiments.sweeps.directory import ENDED, SweepDirectory

MEAN = "accuracy.mean"
"""Column of the mean over the groups of questions, as the paper's average over benchmarks."""
NONE = "-"


@dataclass(frozen=True)
class Table:
    """A table as people read it."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As Markdown."""
        made = pd.DataFrame(self.rows, columns=list(self.heads)).to_markdown(
            index=False,
            disable_numparse=True,
            colalign=("left", *["right"] * (len(self.heads) - 1)),
        )
        return "\n\n".join([f"## {self.title}", str(made), *self.notes])


class Results:
    """Trials as they are in their directories.

    Attributes:
        steps: a row per trial and step: ``arm``, ``seed``, ``state``, the settings in which arms
            differ, ``step``, whether it was ``evaluated``, ``accuracy.GROUP``, and all figures of
            ``metrics.jsonl``.
        ends: by arm and seed, the row of the last evaluation of each trial that counts: one that
            has ended, and that no outage has left without a group of questions.
    """

    def __init__(self, sweep: Sweep, trials: Sequence[Trial], directory: SweepDirectory) -> None:
        """
        Raises:
            RunError: a trial cannot be read.
        """
        self.sweep, self.arms = sweep, list(sweep.all_arms())
        self.states = [(trial, directory.state(trial)) for trial in trials]
        parts = [_rows(trial, state, directory) for trial, state in self.states]
        frame = pd.concat([part for part in parts if not part.empty] or [pd.DataFrame()])

        # A reason is only written in steps where it occurred.
        if "valid_rate" in frame:
            reasons = [name for name in frame if name.startswith(REASON)]
            proposed = frame["valid_rate"].notna()
            frame.loc[proposed, reasons] = frame.loc[proposed, reasons].fillna(0.0)
        accuracies = sorted(name for name in frame if name.startswith("accuracy.") and name != MEAN)
        self.groups = [MEAN, *accuracies] if accuracies else []
        first = ["arm", "seed", "state", *dict.fromkeys(s for t in trials for s in t.settings)]
        first = [name for name in [*first, "step", "evaluated", *self.groups] if name in frame]
        rest = sorted({*frame} - {*first}, key=lambda name: (name.startswith("seconds."), name))
        self.steps = frame[[*first, *rest]].reset_index(drop=True)

        self.ends = pd.DataFrame()
        if self.groups:
            ended = self.steps[self.steps["evaluated"] & self.steps["state"].isin(ENDED)]
            last = ended.groupby(["arm", "seed"], sort=False).tail(1).set_index(["arm", "seed"])
            self.ends = last[last[MEAN].notna()]

    def by_seed(self, arm: str, column: str = MEAN) -> pd.Series:
        """A figure of the last evaluations of an arm, by seed."""
        if arm not in self.ends.index.get_level_values("arm"):
            return pd.Series(dtype=float)
        return self.ends.loc[arm, column].dropna()

    def apart(self, arm: str, column: str = MEAN) -> pd.Series:
        """Difference from the baseline, by seed, where both have it."""
        return (self.by_seed(arm, column) - self.by_seed(self.sweep.compared_with, column)).dropna()

    def last_steps(self, arm: str, figure: str) -> list[float]:
        """Means of a figure over the last steps that have it, one per trial that counts."""
        if figure not in self.steps:
            return []
        steps = self.steps[self.steps["step"] > 0].set_index(["arm", "seed"])
        own = [(arm, seed) for seed in self.by_seed(arm).index]
        means = [steps.loc[[key], figure].dropna().tail(LAST_STEPS).mean() for key in own]
        return [mean for mean in means if pd.notna(mean)]

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
            made.append(self._beside(self.sweep.paper))
        return made

    def as_data(self) -> dict[str, Any]:
        """By arm and group: values by seed, mean, interval, and difference from the baseline."""
        data: dict[str, Any] = {}
        for arm in self.arms:
            data[arm] = {}
            for column in self.groups:
                values = self.by_seed(arm, column)
                data[arm][column.removeprefix("accuracy.")] = {
                    "by_seed": {int(seed): float(value) for seed, value in values.items()},
                    "accuracy": _data(_estimate(values)),
                    "difference": _data(_estimate(self.apart(arm, column))),
                }
        return data

    def _accuracies(self) -> Table:
        started = self.steps[(self.steps["step"] == 0) & self.steps["state"].isin(ENDED)]
        base = started.groupby("arm", sort=False)[self.groups].mean().round(9)
        # Arms usually begin with the same policy; whatever the seed, it has no interval.
        same = len(base.drop_duplicates()) == 1
        rows = [
            ("before training" if same else f"{arm}, before", NONE, *map(_short, values))
            for arm, values in zip(base.index, base.to_numpy(), strict=True)
        ][: 1 if same else None]
        for arm in self.arms:
            cells = [_text(_estimate(self.by_seed(arm, column))) for column in self.groups]
            rows.append((arm, str(len(self.by_seed(arm))), *cells))

        steps = sorted({t.config.steps for t, state in self.states if state in ENDED})
        title = f"Accuracy on held-out questions after {' or '.join(map(str, steps))} steps"
        return Table(title, ("arm", "seeds", *self._heads()), rows, self._notes())

    def _comparisons(self) -> Table:
        baseline, rows = self.sweep.compared_with, []
        for arm in self.arms:
            if arm != baseline:
                apart = self.apart(arm)
                better = f"{(apart > 0).sum()} of {len(apart)}" if len(apart) else NONE
                cells = [_text(_estimate(self.apart(arm, one)), sign="+") for one in self.groups]
                rows.append((arm, better, *cells))
        heads = ("arm", "better in", *self._heads())
        return Table(f"Against {baseline}, seed by seed", heads, rows)

    def _figures(self) -> Table:
        figures = self.sweep.figures
        rows = [
            (arm, *(_text(_estimate(self.last_steps(arm, figure))) for figure in figures))
            for arm in self.arms
        ]
        timed = any(figure.startswith("seconds.") for figure in figures)
        note = "Seconds are longer where trials shared the machine (all but --parallel 1)."
        title = f"Other figures, mean of the last {LAST_STEPS} steps"
        heads = ("arm", *(spoken_figure(figure) for figure in figures))
        return Table(title, heads, rows, (note,) if timed else ())

    def _beside(self, paper: Paper) -> Table:
        """The paper's figures; the differences can be compared, the accuracies cannot."""
        baseline, rows = self.sweep.compared_with, []
        theirs = paper.rows.get(baseline)
        for arm in self.arms:
            cells = [_text(_estimate(self.by_seed(arm)))]
            cells.append("" if arm == baseline else _text(_estimate(self.apart(arm)), sign="+"))
            for place, figure in enumerate(paper.rows.get(arm, ())):
                known = theirs is not None and arm != baseline
                change = f" ({figure - theirs[place]:+.1f})" if known and theirs else ""
                cells.append(f"{figure:.1f}{change}")
            missing = [NONE] * (2 + len(paper.columns) - len(cells))
            rows.append((arm, *cells, *missing))

        heads = ("arm", "ours", "difference", *(f"paper: {column}" for column in paper.columns))
        note = f"Paper: {paper.source}; accuracies of 100; in brackets, against {baseline}."
        return Table("Beside the paper", heads, rows, (note,))

    def _heads(self) -> list[str]:
        return [spoken_group(column) for column in self.groups]

    def _notes(self) -> tuple[str, ...]:
        """Trials that are not like the others."""
        counting = {*self.ends.index}
        notes: dict[str, list[str]] = {}
        for trial, state in self.states:
            if (trial.arm, trial.seed) in counting:
                note = "stopped because its figures went wrong: its last evaluation counts"
                if state != "stopped":
                    continue
            elif state in ENDED:
                note = "an outage hit whole groups at its last evaluation: not in the tables"
            else:
                known = {"begun": "not finished", "waiting": "not begun"}
                note = f"{known[state]}: not in the tables"
            notes.setdefault(note, []).append(str(trial))
        return tuple(
            f"{'; '.join(names[:4])}{f' and {len(names) - 4} more' if names[4:] else ''}: {note}."
            for note, names in notes.items()
        )


def _rows(trial: Trial, state: str, directory: SweepDirectory) -> pd.DataFrame:
    """The steps of one trial."""
    run = directory.run(trial)
    if not run.metrics.exists() or b"\n" not in run.metrics.read_bytes():
        return pd.DataFrame()

    left_out = NOT_FIGURES - {"step", "accuracy"}
    lines = run.read_metrics(growing=True)
    rows = pd.json_normalize(
        [{name: value for name, value in line.items() if name not in left_out} for line in lines]
    )
    groups = [name for name in rows if name.startswith("accuracy.")]
    # An evaluation that an outage hit lacks groups, so it has no mean.
    rows[MEAN] = rows[groups].mean(axis=1, skipna=False) if groups else float("nan")
    rows["evaluated"] = ["accuracy" in line for line in lines]
    settings = {name: str(value) for name, value in trial.settings.items()}
    return rows.assign(arm=trial.arm, seed=trial.seed, state=state, **settings)


def spoken_group(column: str) -> str:
    """Head of a column of accuracies."""
    group = column.removeprefix("accuracy.")
    return f"{group}-hop" if group.isdecimal() else group


def spoken_figure(figure: str) -> str:
    """Head of a figure of ``metrics.jsonl``."""
    return "seconds per step" if figure == "seconds.step" else re.sub(r"[._]", " ", figure)


def _estimate(values: Sequence[float] | pd.Series) -> Estimate | None:
    return over_runs([float(value) for value in values]) if len(values) else None


def _text(found: Estimate | None, sign: str = "") -> str:
    if found is None:
        return NONE
    half = "" if found.half is None else f" ±{_short(found.half, 2)}"
    return f"{_short(found.mean, sign=sign)}{half}"


def _short(value: float, digits: int = 3, sign: str = "") -> str:
    return NONE if pd.isna(value) else f"{value:{sign}.{1 if abs(value) >= 10 else digits}f}"


def _data(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else {"mean": found.mean, "interval": found.interval}

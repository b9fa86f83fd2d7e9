"""What came out of a sweep, read from its trials' run directories: one row per trial and step."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.report.figures import figures_of
from experiments.report.runs import LAST_STEPS
from experiments.sweeps.directory import SweepDirectory, read_json
from experiments.sweeps.plan import Trial
from experiments.sweeps.reuse import Taken, read_taken
from experiments.sweeps.trial import mean_accuracy
from ssp_env.disk import write_atomically
from ssp_env.errors import RunError
from ssp_env.settings import plain

Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """A trial as it was found."""

    trial: Trial
    state: str
    """One of :data:`experiments.sweeps.directory.STATES`."""
    lines: list[dict[str, Any]]
    """Of its ``metrics.jsonl``; none if it has not begun."""
    summary: dict[str, Any] | None
    """``None`` unless it is done."""
    taken: Taken | None = None
    """Where it was played, if another sweep has played it."""
    at_a_time: int | None = None
    """How many trials shared the machine with it at most, itself included, where that is noted."""

    @property
    def ended(self) -> bool:
        """Whether nothing is left to play."""
        return self.state in ("done", "stopped", "ended early")

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        """The lines of its evaluations; one that an outage hit lacks groups of questions."""
        return [line for line in self.lines if "accuracy" in line]

    @property
    def counts(self) -> bool:
        """Whether its last evaluation may stand beside those of other trials.

        One that fell behind was evaluated at an earlier step, and one whose last evaluation an
        outage hit has no mean over the same groups.
        """
        return self.state in ("done", "stopped") and "mean" in self.accuracy

    @property
    def accuracy(self) -> dict[str, float]:
        """Accuracy at the last evaluation, by group of questions, as far as it was not hit by an
        outage; ``mean`` is over groups, and there if all of them are."""
        return self.accuracy_at(self.evaluated[-1])

    @property
    def base(self) -> dict[str, float]:
        """The same before the first step, which is never without a group."""
        return self.accuracy_at(self.evaluated[0])

    def accuracy_at(self, line: dict[str, Any]) -> dict[str, float]:
        """The same at an evaluation."""
        groups: dict[str, float] = line["accuracy"]
        mean = mean_accuracy(groups)
        if mean is None or groups.keys() != self.evaluated[0]["accuracy"].keys():
            return {**groups}
        return {"mean": mean, **groups}

    def last(self, figure: str) -> float | None:
        """A figure's mean over the last steps that have it."""
        found = [figures_of(line, [figure]).get(figure) for line in self.lines if line["step"]]
        known = [value for value in found if value is not None][-LAST_STEPS:]
        return fmean(known) if known else None


def read_outcomes(directory: SweepDirectory, trials: Sequence[Trial]) -> list[Outcome]:
    """All trials as they are in their directories.

    Raises:
        RunError: one cannot be read.
    """
    found, at_a_time = [], directory.at_a_time()
    for trial in trials:
        state, run = directory.state(trial), directory.run(trial)
        lines = run.read_metrics(growing=True) if _has_lines(run.metrics) else []
        summary = read_json(run.summary) if state == "done" else None
        taken = read_taken(run)
        found.append(Outcome(trial, state, lines, summary, taken, at_a_time.get(trial.name)))
    return found


def rows(name: str, outcomes: Sequence[Outcome]) -> list[Row]:
    """A tidy table: a row per trial and step, a column per figure, all rows with all columns.

    Args:
        name: of the sweep.
        outcomes: trials that have begun, or not.
    """
    settings = list(dict.fromkeys(key for o in outcomes for key in o.trial.settings))
    figures = list(dict.fromkeys(n for o in outcomes for line in o.lines for n in figures_of(line)))
    made = [
        _row(name, settings, outcome, line) | figures_of(line, figures)
        for outcome in outcomes
        for line in outcome.lines
    ]

    # Figures that later steps have, or other arms, get a column too; times come last.
    columns = list(dict.fromkeys(column for row in made for column in row))
    columns.sort(key=lambda column: column.startswith("seconds."))
    return [{column: row.get(column) for column in columns} for row in made]


def write_rows(directory: SweepDirectory, table: Sequence[Row]) -> None:
    """Writes the rows as CSV and as Parquet, each in full or not at all.

    Raises:
        RunError: they cannot be written.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]) if table else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_atomically(directory.csv, text.getvalue())
    _write_parquet(directory.parquet, table)


def _row(name: str, settings: Sequence[str], outcome: Outcome, line: dict[str, Any]) -> Row:
    trial = outcome.trial
    row: Row = {"sweep": name, "arm": trial.arm, "seed": trial.seed, "state": outcome.state}
    row |= {key: _cell(trial.settings.get(key)) for key in settings}
    row["step"] = line["step"]

    accuracy = outcome.accuracy_at(line) if "accuracy" in line else {}
    row |= {f"accuracy.{group}": value for group, value in accuracy.items()}
    return row


def _cell(value: Any) -> Any:
    """A setting as one cell; what an arm does not set is empty, since the preset decides it."""
    value = plain(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _has_lines(metrics: Path) -> bool:
    return metrics.exists() and b"\n" in metrics.read_bytes()


def _write_parquet(path: Path, table: Sequence[Row]) -> None:
    import pyarrow
    from pyarrow import parquet

    # A column whose cells have several types, such as a setting of some arms, becomes text.
    made = {column: [row[column] for row in table] for column in (table[0] if table else ())}
    for column, cells in made.items():
        kinds = {type(cell) for cell in cells if cell is not None}
        if len(kinds) > 1 and kinds != {int, float}:
            made[column] = [None if cell is None else str(cell) for cell in cells]

    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        parquet.write_table(pyarrow.table(made), unfinished)
        unfinished.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)

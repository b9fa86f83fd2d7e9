"""Tables over the trials of a sweep: means with intervals over seeds, and arms against a baseline.

All intervals are Student's t over seeds, 95%. Comparisons are paired: the difference is taken seed
by seed, since trials of one seed play for the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Shown

from experiments.report.figures import spoken
from experiments.report.runs import LAST_STEPS, mean_interval
from experiments.sweeps.definition import Paper, Sweep
from experiments.sweeps.plan import unequal_answers
from experiments.sweeps.results import Outcome

NONE = "-"


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds."""

    mean: float
    half: float | None
    """Half the width of its 95% interval; ``None`` of a single seed."""
    seeds: int

    def __str__(self) -> str:
        half = "" if self.half is None else f" ±{_short(self.half, 2)}"
        return f"{_short(self.mean)}{half}"


@dataclass(frozen=True)
class Table:
    """A table as people read it."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and interval of one value per seed; ``None`` of nothing."""
    if not values:
        return None
    found = mean_interval(values)
    half = None if found is None else found[2] - found[0]
    return Estimate(fmean(values), half, len(values))


def of_arm(
    outcomes: Sequence[Outcome], arm: str, value: Callable[[Outcome], float | None]
) -> dict[int, float]:
    """Seed -> value, of the trials of an arm that have it, and stand beside one another."""
    found = {o.trial.seed: value(o) for o in outcomes if o.trial.arm == arm and o.counts}
    return {seed: known for seed, known in found.items() if known is not None}


def difference(one: dict[int, float], baseline: dict[int, float]) -> Estimate | None:
    """The mean difference over the seeds that both have."""
    return estimate([one[seed] - baseline[seed] for seed in sorted(one.keys() & baseline.keys())])


def make_tables(sweep: Sweep, outcomes: Sequence[Outcome]) -> list[Table]:
    """All tables of a sweep, of the trials that have ended."""
    ended = [o for o in outcomes if o.ended and o.evaluated]
    if not ended:
        return []

    made = [_accuracy_table(sweep, outcomes, ended)]
    if len(sweep.all_arms()) > 1:
        made.append(_comparison_table(sweep, ended))
    if early := [o for o in ended if o.state == "ended early"]:
        made.append(_early_table(early))
    if sweep.figures:
        made.append(_figures_table(sweep, ended))
    if sweep.paper is not None:
        made.append(_paper_table(sweep, sweep.paper, ended))
    return made


def groups_of(outcomes: Sequence[Outcome]) -> list[str]:
    """The groups of questions, and first ``mean``, that over groups."""
    groups = {group for o in outcomes if o.evaluated for group in o.base}
    return ["mean", *sorted(groups - {"mean"})]


def markdown(tables: Sequence[Table]) -> str:
    """The tables as a page."""
    parts = []
    for table in tables:
        lines = [f"## {table.title}", "", *_bars(table.heads), *_bars_of(table.rows)]
        parts.append("\n".join([*lines, *(f"\n{note}" for note in table.notes)]))
    return "\n\n".join(parts) + "\n"


def show(tables: Sequence[Table]) -> None:
    """Prints the tables."""
    console = Console(highlight=False)
    for table in tables:
        shown = Shown(
            title=table.title,
            title_justify="left",
            box=box.SIMPLE_HEAD,
            padding=(0, 0),
            show_edge=False,
        )
        for place, head in enumerate(table.heads):
            shown.add_column(head, justify="right" if place else "left")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown, "")
        for note in table.notes:
            console.print(note, markup=False)


# -- within ------------------------------------------------------------------------------------


def _accuracy_table(sweep: Sweep, outcomes: Sequence[Outcome], ended: Sequence[Outcome]) -> Table:
    groups = groups_of(ended)
    rows = _before(sweep, ended, groups)
    for arm in sweep.all_arms():
        values = [of_arm(ended, arm, lambda o, g=group: o.accuracy.get(g)) for group in groups]  # type: ignore[misc]
        seeds = str(len(values[0]))
        rows.append(_row(arm, seeds, [estimate([*found.values()]) for found in values]))

    heads = ("arm", "seeds", "mean", *map(spoken_group, groups[1:]))
    title = f"Accuracy on held-out questions after {_steps(ended)} steps"
    return Table(title, heads, rows, _notes(outcomes))


def _comparison_table(sweep: Sweep, ended: Sequence[Outcome]) -> Table:
    baseline, groups, rows = sweep.compared_with, groups_of(ended), []
    for arm in sweep.all_arms():
        if arm == baseline:
            continue
        cells, better = [], NONE
        for group in groups:
            one, other = (
                of_arm(ended, name, lambda o, g=group: o.accuracy.get(g))  # type: ignore[misc]
                for name in (arm, baseline)
            )
            found = difference(one, other)
            cells.append(_signed(found))
            if group == "mean" and found is not None:
                won = sum(one[seed] > other[seed] for seed in one.keys() & other.keys())
                better = f"{won} of {found.seeds}"
        rows.append((arm, better, *cells))

    heads = ("arm", "better in", "mean", *map(spoken_group, groups[1:]))
    return Table(f"Against {baseline}, seed by seed", heads, rows)


def _early_table(early: Sequence[Outcome]) -> Table:
    """Trials that fell behind, each at the step at which it was evaluated last."""
    groups, rows = groups_of(early), []
    for outcome in early:
        cells = (outcome.accuracy.get(group) for group in groups)
        shown = (NONE if value is None else _short(value) for value in cells)
        rows.append((str(outcome.trial), str(outcome.evaluated[-1]["step"]), *shown))
    heads = ("trial", "step", "mean", *map(spoken_group, groups[1:]))
    note = "Fell behind, and are not in the other tables."
    return Table("Ended early, at their last evaluations", heads, rows, (note,))


def _figures_table(sweep: Sweep, ended: Sequence[Outcome]) -> Table:
    rows = []
    for arm in sweep.all_arms():
        values = [of_arm(ended, arm, lambda o, f=figure: o.last(f)) for figure in sweep.figures]  # type: ignore[misc]
        rows.append((arm, *(_text(estimate([*found.values()])) for found in values)))
    heads = ("arm", *(spoken_figure(figure) for figure in sweep.figures))
    timed = any(figure.startswith("seconds.") for figure in sweep.figures)
    notes = _timing([o for o in ended if o.counts]) if timed else ()
    last = min(LAST_STEPS, max(o.trial.config.steps for o in ended))
    over = "the last step" if last == 1 else f"mean of the last {last} steps"
    return Table(f"Other figures, {over}", heads, rows, notes)


def _paper_table(sweep: Sweep, paper: Paper, ended: Sequence[Outcome]) -> Table:
    """Ours beside the paper's; the differences can be compared, the accuracies cannot."""
    baseline, rows = sweep.compared_with, []
    base = of_arm(ended, baseline, lambda o: o.accuracy["mean"])
    theirs = paper.rows.get(baseline)

    for arm in sweep.all_arms():
        values = of_arm(ended, arm, lambda o: o.accuracy["mean"])
        ours = _text(estimate([*values.values()]))
        apart = _signed(difference(values, base)) if arm != baseline else ""
        cells: list[str] = []
        for place, figure in enumerate(paper.rows.get(arm, ())):
            change = (
                "" if theirs is None or arm == baseline else f" ({figure - theirs[place]:+.1f})"
            )
            cells.append(f"{figure:.1f}{change}")
        rows.append((arm, ours, apart, *(cells or [NONE] * len(paper.columns))))

    heads = ("arm", "ours", "difference", *(f"paper: {column}" for column in paper.columns))
    note = f"Paper: {paper.source}; accuracies of 100; in brackets, against {baseline}."
    return Table("Beside the paper", heads, rows, (note,))


def _timing(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """What seconds cannot be compared with, if trials did not have the machine for themselves."""
    notes = []
    most = max((o.at_a_time or 1 for o in outcomes), default=1)
    if most > 1:
        notes.append(f"up to {most} trials shared the machine")
    if taken := sum(o.taken is not None for o in outcomes):
        notes.append(f"{taken} were played by other sweeps")
    if unknown := sum(o.at_a_time is None and o.taken is None for o in outcomes):
        notes.append(f"of {unknown} it is not known what they shared the machine with")
    if not notes:
        return ()
    return (
        f"Seconds are not those of a trial that has the machine for itself: {', '.join(notes)}.",
    )


def _notes(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """What a reader has to know of trials that are not like the others."""
    counting = [o for o in outcomes if o.counts]
    voids = [o for o in outcomes if o.state in ("done", "stopped") and not o.counts]
    stopped = [o for o in counting if o.state == "stopped"]
    groups = (
        (stopped, "stopped because its figures went wrong: its last evaluation counts"),
        (voids, "an outage hit whole groups at its last evaluation: not in the tables"),
        (_in_state(outcomes, "begun"), "not finished: not in the tables"),
        (_in_state(outcomes, "waiting"), "not begun: not in the tables"),
    )
    notes = [_note(found, what) for found, what in groups if found]
    unequal = unequal_answers([o.trial for o in outcomes])
    return (*notes, *([unequal] if unequal else ()), *_taken(outcomes))


def _in_state(outcomes: Sequence[Outcome], state: str) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.state == state]


def _note(found: Sequence[Outcome], what: str) -> str:
    names = "; ".join(str(outcome.trial) for outcome in found[:4])
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return f"{names}{more}: {what}."


def _taken(outcomes: Sequence[Outcome]) -> list[str]:
    """Which arms another sweep has played."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for outcome in outcomes:
        if outcome.taken:
            place = (outcome.trial.arm, outcome.taken.sweep)
            seeds.setdefault(place, []).append(outcome.trial.seed)
    return [
        f"{arm}, seeds {', '.join(map(str, which))}: played by the sweep {sweep}, with the same "
        "settings."
        for (arm, sweep), which in seeds.items()
    ]


def _row(arm: str, seeds: str, values: Sequence[Estimate | None]) -> tuple[str, ...]:
    return arm, seeds, *map(_text, values)


def _before(sweep: Sweep, ended: Sequence[Outcome], groups: Sequence[str]) -> list[tuple[str, ...]]:
    """The base policy: one row, unless arms begin with different ones."""
    by_arm = {arm: [o.base for o in ended if o.trial.arm == arm] for arm in sweep.all_arms()}
    names = {"before training": by_arm}
    if any(base != ended[0].base for bases in by_arm.values() for base in bases):
        names = {f"{arm}, before": {arm: bases} for arm, bases in by_arm.items() if bases}

    rows = []
    for name, bases in names.items():
        known = [base for found in bases.values() for base in found]
        # Whatever the seed, it is the same policy, so there is no interval over seeds.
        means = [fmean(base[group] for base in known if group in base) for group in groups]
        rows.append(_row(name, NONE, [Estimate(mean, None, 1) for mean in means]))
    return rows


def _steps(ended: Sequence[Outcome]) -> str:
    steps = sorted({o.trial.config.steps for o in ended})
    return " or ".join(map(str, steps))


def spoken_group(group: str) -> str:
    return f"{group}-hop" if group.isdecimal() else group


def spoken_figure(figure: str) -> str:
    known = {
        "seconds.step": "seconds per step",
        "true_share": "true share",
        "ambiguous_share": "ambiguous share",
        "valid_rate": "valid rate",
        "question_hops": "hops",
        "solver_reward": "solver's reward",
        "proposer_reward": "proposer's reward",
        "solver_searches": "solver's searches",
        "proposer_searches": "proposer's searches",
    }
    return known.get(figure) or spoken(figure)


def _short(value: float, digits: int = 3) -> str:
    """Three digits or so; accuracies without the leading 0."""
    if abs(value) >= 10:
        return f"{value:.1f}"
    text = f"{value:.{digits}f}"
    return f"{value:.2f}" if not text.lstrip("-").startswith("0.") else text.replace("0.", ".", 1)


def _signed(found: Estimate | None) -> str:
    if found is None:
        return NONE
    return f"{'+' if found.mean >= 0 else ''}{found}"


def _text(found: Estimate | None) -> str:
    return NONE if found is None else str(found)


def _bars(heads: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|---" + "|--:" * (len(heads) - 1) + "|"]


def _bars_of(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]


def as_data(sweep: Sweep, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """By arm and group: mean, interval, seeds, and the difference from the baseline."""
    ended = [o for o in outcomes if o.ended and o.evaluated]
    data: dict[str, Any] = {}
    for arm in sweep.all_arms():
        data[arm] = {}
        for group in groups_of(ended):
            one, other = (
                of_arm(ended, name, lambda o, g=group: o.accuracy.get(g))  # type: ignore[misc]
                for name in (arm, sweep.compared_with)
            )
            data[arm][group] = {
                "by_seed": one,
                "accuracy": _data(estimate([*one.values()])),
                "difference": _data(difference(one, other)),
            }
    return data


def left_out(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """By name, the trials of which the tables have no accuracy, and what is known of them."""
    return {
        o.trial.name: {
            "state": o.state,
            "step": o.evaluated[-1]["step"] if o.evaluated else None,
            "accuracy": o.accuracy if o.evaluated else {},
        }
        for o in outcomes
        if not o.counts
    }


def _data(found: Estimate | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    return {"mean": round(found.mean, 6), "half": found.half and round(found.half, 6)}

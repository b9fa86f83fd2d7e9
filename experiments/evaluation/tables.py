"""Evaluations as tables on the terminal, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from experiments.evaluation.scores import (
    JUDGES,
    Answered,
    Row,
    closed_book,
    paired,
    table,
    void_groups,
    void_reasons,
)
from ssp_env.commands.base import plural
from ssp_env.game.outcome import BUDGET_PROMPT


@dataclass(frozen=True)
class Evaluated:
    """A policy's answers, or those that a file holds."""

    name: str
    results: list[Answered]
    judge: str
    """Name of the judge whose verdicts come first."""
    fingerprint: dict[str, Any] | str
    """In full, or its hash from a file."""
    asked: str = "unseen questions"
    """Name of the questions."""

    @property
    def hash(self) -> str:
        """Hash of the fingerprint."""
        held = self.fingerprint
        return held if isinstance(held, str) else str(held["hash"])


def as_data(evaluated: Sequence[Evaluated], seed: int) -> dict[str, Any]:
    """Everything that is printed, and more, as plain data."""
    data: dict[str, Any] = {"evaluations": []}
    for one in evaluated:
        judges = dict.fromkeys((one.judge, *JUDGES))
        held = {
            "policy": one.name,
            "fingerprint": one.fingerprint,
            "rows": [row.as_dict() for j in judges for row in table(one.results, j, seed)],
            "void_groups": void_groups(one.results),
            "void_reasons": void_reasons(one.results),
        }
        if memory := closed_book(one.results):
            held["closed_book"] = memory
        data["evaluations"].append(held)

    if len(evaluated) == 2:
        first, second = evaluated
        data["comparison"] = [
            {
                "group": group,
                "questions": found.difference.count,
                "difference": found.difference.mean,
                "interval": found.difference.interval,
                "better": found.better,
                "worse": found.worse,
                "p_value": found.p_value,
            }
            for group, found in paired(first.results, second.results, _shared(first, second), seed)
        ]
    return data


def show(one: Evaluated, seed: int) -> None:
    """Prints an evaluation: a row per group, with all judges side by side."""
    console = Console(highlight=False)
    title = f"accuracy on {one.asked}, judge {one.judge}: {one.name}"
    # Not the table's own title, which would be cut into lines where a path is long.
    console.print(title, style="italic", markup=False, soft_wrap=True)
    rows = table(one.results, one.judge, seed)
    if rows:
        console.print(_table_of(one, rows, seed))
    _show_outages(console, one, rows)

    text = f"fingerprint: {one.hash}"
    if not isinstance(one.fingerprint, str):
        held, retriever = one.fingerprint, one.fingerprint["retriever"]
        where = retriever.get("server") or f"{held['corpus']['passages']:,} passages"
        text += (
            f" ({retriever['class']} over {where}, top_k {held['top_k']}, max_searches "
            f"{held['max_searches']}, judge {held['judge']}, prompts {held['prompts']['name']})"
        )
    console.print(text, soft_wrap=True)


def _table_of(one: Evaluated, rows: Sequence[Row], seed: int) -> Table:
    k, memory = rows[0].attempts, closed_book(one.results)
    others = {
        judge: {row.group: row.average.mean for row in table(one.results, judge, seed)}
        for judge in JUDGES
        if judge != one.judge
    }
    many = {f"pass@{k}": f"pass@{k}", f"maj@{k}": f"majority@{k}"} if k > 1 else {}
    average = f"avg@{k}" if k > 1 else "pass@1"
    heads = ["group", "count", average, "95% interval", *many, *others, "F1"]
    made = _empty_table([*heads, *(["closed book"] if memory else []), "searches"])

    for row in rows:
        figures = [
            *(row.others[name].mean for name in many.values()),
            *(values[row.group] for values in others.values()),
            row.others["f1"].mean,
            *([memory.get(row.group)] if memory else []),
        ]
        made.add_row(
            row.group,
            str(row.average.count),
            f"{row.average.mean:.3f}",
            f"{row.average.low:.2f} to {row.average.high:.2f}",
            *("-" if figure is None else f"{figure:.3f}" for figure in figures),
            f"{row.searches:.2f}",
        )
    return made


def _show_outages(console: Console, one: Evaluated, rows: Sequence[Row]) -> None:
    for group, size in void_groups(one.results).items():
        are = "its one question is" if size == 1 else f"all {size} questions are"
        console.print(f"[yellow]group {group} is not in the table: {are} void")
    if not rows:
        return

    whole = rows[-1]
    if whole.void:
        spoken = {BUDGET_PROMPT: "a prompt longer than game.max_prompt_tokens"}
        reasons = void_reasons(one.results)
        why = ", ".join(f"{count} by {spoken.get(why, why)}" for why, count in reasons.items())
        low, high = whole.bounds
        what = f"{plural(whole.void, 'void question')} ({why})"
        console.print(f"{what}: {low:.3f} if all were wrong, {high:.3f} if right", soft_wrap=True)
    if whole.lost:
        are = "is" if whole.lost == 1 else "are"
        console.print(f"{plural(whole.lost, 'attempt')} at other questions {are} void")


def show_comparison(first: Evaluated, second: Evaluated, seed: int) -> None:
    """Prints two evaluations against each other."""
    judge = _shared(first, second)
    heads = ("group", "questions", "difference", "95% interval", "better", "worse", "p")
    made = _empty_table(heads)
    made.title = f"the second against the first, question by question ({judge})"
    for group, found in paired(first.results, second.results, judge, seed):
        apart = found.difference
        made.add_row(
            group,
            str(apart.count),
            f"{apart.mean:+.3f}",
            f"{apart.low:+.2f} to {apart.high:+.2f}",
            str(found.better),
            str(found.worse),
            "<.001" if found.p_value < 0.001 else f"{found.p_value:.3f}",
        )

    console = Console(highlight=False)
    console.print("", made)
    if first.hash != second.hash:
        console.print("[yellow]the two were not played by the same rules: see the fingerprints")


def _empty_table(heads: Sequence[str]) -> Table:
    """A table that leaves room for its cells where a terminal has 80 columns."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 0), show_edge=False, title_justify="left")
    for place, head in enumerate(heads):
        made.add_column(head, justify="right" if place else "left")
    return made


def _shared(first: Evaluated, second: Evaluated) -> str:
    """The judge that two are compared by: their own where it is the same, else the rules'."""
    return first.judge if first.judge == second.judge else "lenient"

"""Evaluations as people read them, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from experiments.evaluation.gain import gains
from experiments.evaluation.results import (
    Answered,
    Row,
    memory,
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
    """Whose verdicts come first."""
    basis: dict[str, Any] | str
    """The fingerprint: in full, or its hash from a file."""
    asked: str = "unseen questions"
    """Which questions, in words."""

    @property
    def memory(self) -> dict[str, float] | None:
        """Accuracy without search, by group; ``None`` if that was not asked."""
        return memory(self.results)


def as_data(evaluated: Sequence[Evaluated], seed: int) -> dict[str, Any]:
    """Everything that is printed, and more, as plain data."""
    data: dict[str, Any] = {
        "evaluations": [
            {
                "policy": one.name,
                "fingerprint": one.basis,
                "rows": [
                    row.as_dict()
                    for judge in dict.fromkeys((one.judge, "lenient", "exact"))
                    for row in table(one.results, judge, seed)
                ],
                "void_groups": void_groups(one.results),
                "void_reasons": void_reasons(one.results),
                **({"closed_book": one.memory} if one.memory is not None else {}),
            }
            for one in evaluated
        ]
    }
    if len(evaluated) == 2:
        first, second = evaluated
        data["comparison"] = [
            {
                "group": group,
                "questions": found.difference.count,
                "difference": found.difference.mean,
                "interval": [found.difference.low, found.difference.high],
                "better": found.better,
                "worse": found.worse,
                "p_value": found.p_value,
            }
            for group, found in paired(first.results, second.results, _shared(first, second), seed)
        ]
        if split := gains(first.results, second.results, _shared(first, second), seed):
            data["gain"] = [{"group": group, **gain.as_dict()} for group, gain in split]
    return data


def show(one: Evaluated, seed: int) -> None:
    """Prints an evaluation: a row per group, with every judge side by side."""
    rows = table(one.results, one.judge, seed)
    others = {
        judge: {row.group: row.average.mean for row in table(one.results, judge, seed)}
        for judge in ("lenient", "exact")
        if judge != one.judge
    }

    console = Console(highlight=False)
    title = f"accuracy on {one.asked}, judge {one.judge}: {one.name}"
    # Not the table's own title, which would be cut into lines where a path is long.
    console.print(title, style="italic", markup=False, soft_wrap=True)
    if rows:
        made = _table(None, _titles(one, rows, [*others]))
        for row in rows:
            made.add_row(*_cells(one, row, others))
        console.print(made)
    _show_outages(console, one, rows)
    _show_basis(one.basis)


def _show_outages(console: Console, one: Evaluated, rows: Sequence[Row]) -> None:
    reasons = void_reasons(one.results)
    why = ", ".join(f"{count} by {_REASONS.get(why, why)}" for why, count in reasons.items())
    if rows and (whole := rows[-1]).void:
        low, high = whole.bounds
        what = f"{plural(whole.void, 'void question')} ({why})"
        console.print(f"{what}: {low:.3f} if all were wrong, {high:.3f} if right", soft_wrap=True)
    for group, size in void_groups(one.results).items():
        console.print(
            f"[yellow]group {group} is not in the table: "
            f"{'its one question is' if size == 1 else f'all {size} questions are'} void"
        )
    if rows and (whole := rows[-1]).lost:
        are = "is" if whole.lost == 1 else "are"
        console.print(f"{plural(whole.lost, 'attempt')} at other questions {are} void")


_REASONS = {BUDGET_PROMPT: "a prompt longer than game.max_prompt_tokens"}
"""What kept questions from being answered, in words; services have their own names."""


def _table(title: str | None, heads: Sequence[str], left: Sequence[int] = (0,)) -> Table:
    """A table that leaves room for its cells where a terminal has 80 columns.

    Args:
        title: of it all; ``None`` for none.
        heads: of its columns.
        left: the places of columns of words.
    """
    made = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0),
        show_edge=False,
    )
    for place, head in enumerate(heads):
        made.add_column(head, justify="left" if place in left else "right")
    return made


def _titles(one: Evaluated, rows: Sequence[Row], others: Sequence[str]) -> list[str]:
    k = rows[0].attempts
    many = [f"pass@{k}", f"maj@{k}"] if k > 1 else []
    memory = ["closed book"] if one.memory is not None else []
    average = f"avg@{k}" if k > 1 else "pass@1"
    heads = ["group", "count", average, "95% interval", *many]
    return [*heads, *others, "F1", *memory, "searches"]


def _cells(one: Evaluated, row: Row, others: dict[str, dict[str, float]]) -> list[str]:
    average = row.average
    many = [row.passed[row.attempts].mean, row.voted.mean] if row.voted is not None else []
    memory = [one.memory.get(row.group)] if one.memory is not None else []
    figures = [*many, *(values[row.group] for values in others.values()), row.f1.mean, *memory]
    return [
        row.group,
        str(average.count),
        f"{average.mean:.3f}",
        f"{average.low:.2f} to {average.high:.2f}",
        *("-" if figure is None else f"{figure:.3f}" for figure in figures),
        f"{row.searches:.2f}",
    ]


def _shared(first: Evaluated, second: Evaluated) -> str:
    """The judge that two are compared by: their own where it is the same, else the rules'."""
    return first.judge if first.judge == second.judge else "lenient"


def show_comparison(first: Evaluated, second: Evaluated, seed: int) -> None:
    """Prints two evaluations against each other."""
    judge = _shared(first, second)
    made = _table(
        f"the second against the first, question by question ({judge})",
        ("group", "questions", "difference", "95% interval", "better", "worse", "p"),
    )

    for group, found in paired(first.results, second.results, judge, seed):
        d = found.difference
        interval = f"{d.low:+.2f} to {d.high:+.2f}"
        counts = (str(found.better), str(found.worse), _p_value(found.p_value))
        made.add_row(group, str(d.count), f"{d.mean:+.3f}", interval, *counts)

    console = Console(highlight=False)
    console.print("", made)
    if _hash(first.basis) != _hash(second.basis):
        console.print("[yellow]the two were not played by the same rules: see the fingerprints")


def _p_value(value: float) -> str:
    return "<.001" if value < 0.001 else f"{value:.3f}"


def show_gains(first: Evaluated, second: Evaluated, seed: int) -> None:
    """Prints what the gain is made of, where both were asked without search as well."""
    split = gains(first.results, second.results, _shared(first, second), seed)
    if not split:
        return

    heads = ("group", "part", "gain", "95% interval", "share", "first", "second")
    made = _table("what the gain is made of", heads, left=(0, 1, 4))
    made.caption = "known without search; found, of the rest; right there, where it was found"
    made.caption_justify = "left"

    for group, gain in split:
        for part, one in {**gain.parts, "together": gain.total}.items():
            name, field = _SHOWN[part]
            levels = [getattr(shares, field) for shares in (gain.first, gain.second)]
            cells = ("-" if level is None else f"{level:.3f}" for level in levels)
            interval = f"{one.low:+.2f} to {one.high:+.2f}"
            made.add_row(group, part, f"{one.mean:+.3f}", interval, name, *cells)
        made.add_section()
    Console(highlight=False).print("", made)


_SHOWN = {
    "memory": ("known", "known"),
    "search": ("found", "found"),
    "reasoning": ("right there", "right_found"),
    "together": ("right", "accuracy"),
}
"""By part: the share that shows it best, in words and as a field."""


def _hash(basis: dict[str, Any] | str) -> str:
    return basis if isinstance(basis, str) else str(basis["hash"])


def _show_basis(basis: dict[str, Any] | str) -> None:
    """What the accuracies rest on besides the policy; two of them compare if this is the same."""
    text = f"fingerprint: {_hash(basis)}"
    if not isinstance(basis, str):
        retriever = basis["retriever"]
        where = retriever.get("server") or f"{basis['corpus']['passages']:,} passages"
        parts = [
            f"{retriever['class']} over {where}",
            f"top_k {basis['top_k']}",
            f"max_searches {basis['max_searches']}",
            f"judge {basis['judge']}",
            f"prompts {basis['prompts']['name']}",
        ]
        text += f" ({', '.join(parts)})"
    Console().print(text, highlight=False, soft_wrap=True)

"""``ssp questions``: the questions of a run as a data set, and what they were like."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.questions.insight import Window, topics, windows
from experiments.questions.ledger import Entry, games_of, ledger
from ssp_env.disk import finished_in_full
from ssp_env.errors import ConfigError

_ROWS = {
    "written": "questions written",
    "accepted": "accepted",
    "repeated": "written before",
    "alike": "or nearly so",
    "precision": "precision of the gate",
    "recall": "recall of the gate",
    "ambiguous": "accepted: ambiguous",
    "wrong": "accepted: wrong",
    "hops": "accepted: hops",
    "solve_rate": "accepted: solve rate",
}
"""What the figures of a window are called."""

_COLUMNS = 8
"""Windows that a run is cut into where nobody says how long they are."""


def run(arguments: Namespace) -> int:
    """Writes the ledger, if asked to, and prints the figures."""
    if arguments.window is not None and arguments.window < 1:
        raise ConfigError("--window", arguments.window, "must be at least 1")

    games = list(games_of(arguments.run))
    entries = ledger(games, arguments.run)
    kept = [entry for entry in entries if arguments.all or entry["accepted"]]

    steps = max((step for step, _ in games), default=1)
    by_step, by_hops = windows(games, arguments.window or -(-steps // _COLUMNS))
    subjects = topics([entry["question"] for entry in kept])

    if arguments.out:
        with finished_in_full(Path(arguments.out)) as file:
            file.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in kept)

    if arguments.json:
        figures = {
            "run": str(arguments.run),
            "questions": len(entries),
            "accepted": sum(entry["accepted"] for entry in entries),
            "windows": [window.as_dict() for window in by_step],
            "hops": {hops: window.as_dict() for hops, window in by_hops.items()},
            "topics": [{"words": words, "share": share} for words, share in subjects],
        }
        print(json.dumps(figures, indent=2))
    else:
        named = {f"{window.first_step}-{window.last_step}": window for window in by_step}
        lengths = {_plural(hops): window for hops, window in by_hops.items()}
        _show({"by step": named, "by length": lengths}, entries, subjects)
        if arguments.out:
            print(f"{len(kept)} questions are in {arguments.out}")
    return 0


def _show(
    tables: dict[str, dict[str, Window]],
    entries: list[Entry],
    subjects: list[tuple[list[str], float]],
) -> None:
    console = Console(highlight=False)
    for title, columns in tables.items():
        if columns:
            console.print(_table(title, columns))

    accepted = [entry for entry in entries if entry["accepted"]]
    console.print(f"{len(entries)} different questions, {len(accepted)} of them accepted")
    for words, share in subjects:
        console.print(f"  {share:4.0%}  {', '.join(words)}")


def _table(title: str, columns: dict[str, Window]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column()
    for name in columns:
        table.add_column(name, justify="right")

    figures = [window.as_dict() for window in columns.values()]
    for name, meaning in _ROWS.items():
        table.add_row(meaning, *(_cell(values[name]) for values in figures))
    return table


def _plural(hops: int) -> str:
    return f"{hops} hop" if hops == 1 else f"{hops} hops"


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"

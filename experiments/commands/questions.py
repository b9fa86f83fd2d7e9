"""``ssp questions``: the questions of a run, as a data set and in figures."""

from __future__ import annotations

from json import dumps
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.questions.figures import MEANINGS, Figures, by_hops, by_step, topics, written
from experiments.questions.ledger import games_of, ledger
from ssp_env.disk import replacing
from ssp_env.errors import ConfigError

_COLUMNS = 8
"""Columns of a run's table where nobody says how many steps each has."""


def run(directory: str, *, out: str | None, all: bool, window: int | None, json: bool) -> int:
    """Writes the ledger, if asked to, and prints the figures."""
    if window is not None and window < 1:
        raise ConfigError("--window", window, "must be at least 1")

    games = list(games_of(directory))
    entries = ledger(games, directory)
    kept = [entry for entry in entries if all or entry["accepted"]]
    accepted = sum(entry["accepted"] for entry in entries)

    steps, asked = max((step for step, _ in games), default=1), written(games)
    windows = by_step(asked, window or -(-steps // _COLUMNS))
    lengths = by_hops(asked)
    subjects = topics([entry["question"] for entry in kept])

    if out:
        with replacing(Path(out)) as file:
            file.writelines(dumps(entry, ensure_ascii=False) + "\n" for entry in kept)

    if json:
        figures = {
            "run": directory,
            "questions": len(entries),
            "accepted": accepted,
            "windows": windows,
            "hops": lengths,
            "topics": [{"words": words, "share": share} for words, share in subjects],
        }
        print(dumps(figures, indent=2))
        return 0

    _show("by step", {f"{each['first_step']}-{each['last_step']}": each for each in windows})
    _show("by length", {f"{n} hop{'s'[: n != 1]}": each for n, each in lengths.items()})
    print(f"{len(entries)} different questions, {accepted} of them accepted")
    for words, share in subjects:
        print(f"  {share:4.0%}  {', '.join(words)}")
    if out:
        print(f"{len(kept)} questions are in {out}")
    return 0


def _show(title: str, columns: dict[str, Figures]) -> None:
    if not columns:
        return
    table = Table("", title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right")
    for name, meaning in MEANINGS.items():
        values = (column[name] for column in columns.values())
        shown = ("-" if v is None else str(v) if isinstance(v, int) else f"{v:.2f}" for v in values)
        table.add_row(meaning, *shown)
    Console(highlight=False).print(table)

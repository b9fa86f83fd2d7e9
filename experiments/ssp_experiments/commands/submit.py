"""``ssp submit``: a finished run's row of the leaderboard, with the line that plays it again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml

from ssp_env.errors import RunError
from ssp_experiments.commands.cards import table
from ssp_experiments.commands.questions import games_of
from ssp_experiments.config import RunConfig, make_config, nearest_preset
from ssp_experiments.run.rundir import CHANGEABLE, RunDirectory

COLUMNS = (
    "recipe",
    "world",
    "seed",
    "games",
    "accuracy by group",
    "mean",
    "false",
    "commit",
    "line",
)
"""Of a row. ``false`` is the share of wrong questions among the valid ones, as far as the world
knows: what the gate lets through, and cheats live on."""


def run(path: Path, name: str, out: Path | None) -> int:
    """Prints the row of a run, and adds it to a page."""
    row = row_of(RunDirectory(path), name)
    *head, line = table(COLUMNS, [[str(row[column]) for column in COLUMNS]]).splitlines()
    print(line)
    if out is not None:
        lines = [line] if out.exists() else [*head, line]
        with out.open("a", encoding="utf-8") as page:
            page.writelines(f"{text}\n" for text in lines)
    return 0


def row_of(directory: RunDirectory, name: str) -> dict[str, Any]:
    """The row of a finished run.

    Raises:
        RunError: if it is not finished, or was played with changes that no commit has.
    """
    summary = directory.read_summary()
    if summary is None:
        raise RunError(f"{directory.path} holds no finished run: finish it with --resume")
    if "+changes" in (commit := summary["git_commit"] or "unknown"):
        raise RunError(f"{directory.path} was played with changes: commit them and play it again")

    games = [game for _, game in games_of(directory.path)]
    valid = [game for game in games if game.origin == "proposed" and game.outcome == "valid"]
    known = [game.truly_correct for game in valid if game.truly_correct is not None]
    accuracy = summary["accuracy"]["final"]
    return {
        "recipe": name,
        "world": summary["world"],
        "seed": summary["seed"],
        "games": len(games),
        "accuracy by group": ", ".join(f"{g}: {share:.3f}" for g, share in accuracy.items()),
        "mean": f"{sum(accuracy.values()) / len(accuracy):.3f}",
        "false": f"{known.count(False) / len(known):.3f}" if known else "-",
        "commit": commit[:10],
        "line": f"`{command_of(make_config(directory.read_config()))}`",
    }


def command_of(config: RunConfig) -> str:
    """The command line that plays a run with these settings: a preset, and what differs."""
    preset, changes = nearest_preset(config)
    words = [
        f"--set {shlex.quote(f'{name}={_written(value)}')}"
        for name, value in changes.items()
        if name == "steps" or not (CHANGEABLE.fullmatch(name) or "://" in str(value))
    ]
    return " ".join(["ssp train", "--preset", preset, *words])


def _written(value: Any) -> str:
    """A value as ``--set`` reads it, on one line."""
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()

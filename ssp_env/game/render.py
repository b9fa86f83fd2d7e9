"""A game as text: who wrote what, what was found, how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ssp_env.game.game import Game
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules

STYLES = {"prompt": "dim", "policy": "bold", "environment": "cyan"}

# Tokens and documents may spell escape sequences, which a terminal would obey.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render_ansi(game: Game, rules: Rules) -> str:
    """The game as plain text."""
    return "\n".join(line.plain for line in _lines(record_game(game, rules)))


def render_human(game: Game, rules: Rules, console: Console | None = None) -> None:
    """Prints the game with colours: prompts dim, the policy's words bold, observations cyan."""
    console = console if console is not None else Console()
    for line in _lines(record_game(game, rules)):
        console.print(line)


def _lines(record: GameRecord) -> Iterator[Text]:
    yield Text(f"answer: {_visible(record.answer)}", style="bold magenta")
    attempt = 0
    for trajectory in record.trajectories:
        attempt += trajectory.role == "solver"
        name = f"{trajectory.role} {attempt}" if trajectory.role == "solver" else trajectory.role
        line = Text(f"{name:<11}", style="bold yellow")
        for segment in trajectory.segments:
            line.append(f" {_visible(segment.text)}", style=STYLES[segment.by])
        if trajectory.verdict is not None:
            line.append("  right" if trajectory.verdict["correct"] else "  wrong", style="bold green")
        yield line
    if record.verification is not None:
        yield Text(f"verified: {record.verification['correct']} ({_visible(record.verification['detail'])})")
    reason = f" ({record.reason})" if record.reason else ""
    rewards = f"; proposer {record.proposer_reward}, solver {record.solve_rate}" if record.outcome == "valid" else ""
    yield Text(f"outcome: {record.outcome}{reason}{rewards}", style="bold")


def _visible(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)

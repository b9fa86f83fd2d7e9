"""A game as text: who wrote what, what was found, how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord, SegmentRecord, TrajectoryRecord, record_game
from ssp_env.game.rules import Rules

STYLES = {"prompt": "dim", "policy": "bold", "environment": "cyan"}

# Tokens and documents may spell escape sequences, which a terminal would obey, and answers hold
# half a surrogate pair.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def render_ansi(game: Game, rules: Rules) -> str:
    """The game as plain text."""
    return "\n".join(line.plain for line in _lines(record_game(game, rules)))


def render_human(game: Game, rules: Rules, console: Console | None = None) -> None:
    """Prints the game with colours: prompts dim, the policy's words bold, observations cyan."""
    console = console if console is not None else Console()
    for line in _lines(record_game(game, rules)):
        console.print(line)


class LiveView:
    """Prints a game while it is played: each time, only what is new."""

    def __init__(self, rules: Rules, console: Console | None = None) -> None:
        """
        Args:
            rules: what the games are played by.
            console: where to print; the terminal when not given.
        """
        self._rules, self._console = rules, console
        self._game: Game | None = None
        self._shown: list[int] = []
        self._checked = 0

    def show(self, game: Game) -> None:
        """Prints what was written since the last time, and the ending once there is one."""
        # Not kept: an env is copied and sent to other processes, which a console cannot be.
        console = self._console if self._console is not None else Console()

        record = record_game(game, self._rules)

        if game is not self._game:
            self._game, self._shown, self._checked = game, [], 0
            console.print(_heading(record))

        self._shown += [0] * (len(record.trajectories) - len(self._shown))

        # Verification and closed-book gate are not segments: their verdicts get lines of their own.
        checks = list(_checks(record))
        for line in checks[self._checked :]:
            console.print(line)
        self._checked = len(checks)

        for i, (name, trajectory) in enumerate(record.named().items()):
            new = trajectory.segments[self._shown[i] :]
            if new:
                console.print(_line(name, new))
            self._shown[i] = len(trajectory.segments)

        if game.outcome is not Outcome.PENDING:
            for name, trajectory in record.named().items():
                if trajectory.verdict is not None or trajectory.outage is not None:
                    console.print(_judged(Text(f"{name:<11}", style="bold yellow"), trajectory))
            console.print(_ending(record))


def _lines(record: GameRecord) -> Iterator[Text]:
    yield _heading(record)

    solved = False
    for name, trajectory in record.named().items():
        if trajectory.role == "solver" and not solved:
            solved = True
            yield from _checks(record)
        yield _judged(_line(name, trajectory.segments), trajectory)

    # A game that failed before the attempts shows its checks at the end.
    if not solved:
        yield from _checks(record)
    yield _ending(record)


def _heading(record: GameRecord) -> Text:
    return Text(f"answer: {visible(record.answer)}", style="bold magenta")


def _line(name: str, segments: tuple[SegmentRecord, ...]) -> Text:
    line = Text(f"{name:<11}", style="bold yellow")
    for segment in segments:
        if segment.tokens:
            line.append(f" {visible(segment.text)}", style=STYLES[segment.by])
    return line


def _judged(line: Text, trajectory: TrajectoryRecord) -> Text:
    if trajectory.outage is not None:
        line.append("  void", style="bold yellow")
    elif trajectory.verdict is not None:
        right = trajectory.verdict.correct
        line.append("  right" if right else "  wrong", style="bold green" if right else "bold red")
    return line


def _checks(record: GameRecord) -> Iterator[Text]:
    for name, verdict in (
        ("verified", record.verification),
        ("known without search", record.closed_book),
    ):
        if verdict is not None:
            detail = f" ({visible(verdict.detail)})" if verdict.detail else ""
            yield Text(f"{name}: {'yes' if verdict.correct else 'no'}{detail}")


def _ending(record: GameRecord) -> Text:
    reason = f" ({record.reason})" if record.reason else ""

    rewards = ""
    if record.outcome == "valid":
        rewards = f"; proposer {record.proposer_reward}, solver {record.solver_reward}"

    return Text(f"outcome: {record.outcome}{reason}{rewards}", style="bold")


def visible(text: str) -> str:
    """The text without anything that a terminal would obey or could not show."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)

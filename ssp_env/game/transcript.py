"""A game as text: authors and texts, documents that were found, verdicts, rewards, outcome.

The one rendering, for ``env.render()``, ``ssp replay`` and the terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import PROMPT, GameRecord, SegmentRecord, TrajectoryRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.judge.base import Verdict
from ssp_env.types import Document

if TYPE_CHECKING:
    from rich.console import Console

OUTCOME_STYLES = {"valid": "bold green", "invalid": "bold red", "void": "bold yellow"}
_STYLES = {"prompt": "dim", "policy": "bold", "environment": "cyan", "retry": "yellow"}
_NAMED = 10
"""Right answers that are named; a question about a nation has hundreds."""

# Tokens and documents may spell escape sequences, which a terminal would obey, and answers hold
# half a surrogate pair.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def visible(text: str) -> str:
    """The text without anything that a terminal would obey or could not show."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


class Line(NamedTuple):
    """A line of a transcript; its text may hold line breaks."""

    text: str
    style: str = ""
    indent: int = 0

    def plain(self) -> str:
        return "\n".join(" " * self.indent + line for line in visible(self.text).split("\n"))

    def print(self, console: Console) -> None:
        # Imported here: it would slow down `import ssp_env`.
        from rich.padding import Padding
        from rich.text import Text

        if console.is_terminal:
            text = Text(visible(self.text), self.style)
            console.print(Padding(text, (0, 0, 0, self.indent)))
        else:
            console.print(Text(self.plain(), self.style), soft_wrap=True)


def render_ansi(game: Game, rules: Rules) -> str:
    return "\n".join(line.plain() for line in transcript(record_game(game, rules)))


class LiveView:
    """Prints a game while it is played: each time, only what is new."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._game: Game | None = None
        self._shown: Counter[Line] = Counter()

    def show(self, game: Game) -> None:
        """Prints the lines that were not there the last time."""
        from rich.console import Console

        # A line that comes later may stand before some that were shown: checks, for one.
        lines = transcript(record_game(game, self._rules))
        if game.outcome is Outcome.PENDING:
            lines.pop()
        shown = self._shown if game is self._game else Counter()
        self._game, self._shown = game, Counter(lines)

        # Not kept: an env is copied and sent to other processes, which a console cannot be.
        console = Console()
        # Counters keep the order of lines, and how often each is there.
        for line in (self._shown - shown).elements():
            line.print(console)


def transcript(record: GameRecord) -> list[Line]:
    """The lines of a game; while it goes on, lines are only added to it, before the last one."""
    aliases = f" (or: {', '.join(record.aliases)})" if record.aliases else ""
    lines = [Line(f"answer: {record.answer}{aliases}", "bold magenta")]
    if record.origin != "proposed":
        lines.append(Line(f"question: {record.question}  ({record.origin})", "bold"))

    known: SegmentRecord | None = None
    for name, trajectory in record.named().items():
        if name == "solver 1":
            lines += _checks(record)
        lines += _play(name, trajectory, known)
        known = trajectory.segments[0]
    # A game that failed before the attempts shows its checks at the end.
    if not record.attempts:
        lines += _checks(record)

    rewards = (("proposer", record.proposer_reward), ("solver", record.solver_reward))
    paid = ", ".join(f"{role} {reward:g}" for role, reward in rewards if reward is not None)
    reason = f" ({record.reason})" if record.reason else ""
    style = OUTCOME_STYLES.get(record.outcome, "bold")
    if (outage := record.outage) is not None:
        calls = "" if outage.calls is None else f" [calls: {outage.calls}]"
        lines.append(Line(f"the {outage.service} failed: {outage.what}{calls}", style))
    return [*lines, Line(f"outcome: {record.outcome}{reason}{'; ' if paid else ''}{paid}", style)]


def _play(name: str, trajectory: TrajectoryRecord, known: SegmentRecord | None) -> Iterator[Line]:
    yield Line(name, "bold yellow")

    searches = iter(trajectory.searches)
    for segment in trajectory.segments:
        if segment.by == "environment" and (search := next(searches, None)) is not None:
            yield Line(f"found: {_named(search.documents)}", "dim cyan", 4)
        if segment == known:
            yield Line("(the same prompt)", _STYLES[PROMPT], 4)
        elif segment.tokens:
            yield Line(segment.text, _STYLES[segment.by], 4)
    # An observation that did not fit is not a segment, but it was searched for.
    for search in searches:
        yield Line(f"found, but not shown: {_named(search.documents)}", "dim cyan", 4)

    if trajectory.ending not in (None, "action"):
        yield Line(f"{name} ended by {trajectory.ending}", "bold yellow")
    if (outage := trajectory.outage) is not None:
        yield Line(f"{name}: void ({outage.service}: {outage.what})", "bold yellow")
    elif trajectory.verdict is not None:
        paid = "" if trajectory.reward is None else f", paid {trajectory.reward:g}"
        style = "bold green" if trajectory.verdict.correct else "bold red"
        yield Line(f"{name}: {_word(trajectory.verdict)}{paid}", style)


def _checks(record: GameRecord) -> Iterator[Line]:
    if record.origin == "proposed" and record.question is not None:
        yield Line(f"question: {record.question}{_known(record)}", "bold")

    if record.verification is not None:
        yield Line(f"verification: {_word(record.verification)}", "bold")
        origins = {n.document.id: f"noise, {n.origin}" for n in record.noise}
        read = (f"{d} ({origins.get(d, 'evidence')})" for d in record.materials or ())
        yield Line(f"read: {', '.join(read) or 'nothing'}", "dim cyan", 4)

    if record.closed_book is not None:
        yield Line(f"from memory: {_word(record.closed_book)}", "bold")


def _word(verdict: Verdict) -> str:
    detail = f" ({verdict.detail})" if verdict.detail else ""
    return f"{'right' if verdict.correct else 'wrong'}{detail}"


def _named(documents: Iterable[Document]) -> str:
    """Documents by their titles and, where these are others, ids.

    >>> _named([Document("4", "Graz", "", 5.0), Document("Rebeban", "Rebeban", "")])
    'Graz [4] (5), Rebeban'
    """
    shown = []
    for document in documents:
        name = document.title or document.id
        name += "" if name == document.id else f" [{document.id}]"
        shown.append(name if document.score is None else f"{name} ({document.score:.3g})")
    return ", ".join(shown) or "nothing"


def _known(record: GameRecord) -> str:
    """Hops and right answers of the question in its world."""
    if record.hops is None or record.right_answers is None:
        return ""
    hops = "1 hop" if record.hops == 1 else f"{record.hops} hops"
    # The answer of the game comes first, if it is one of them.
    right = sorted(record.right_answers, key=lambda answer: answer != record.answer)
    named = ", ".join(right[:_NAMED]) or "nothing"
    more = f" and {len(right) - _NAMED} more" if len(right) > _NAMED else ""
    return f"  ({hops}; right in this world: {named}{more})"

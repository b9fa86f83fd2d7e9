"""A recorded game as people read one: who wrote what, what was found, what it was worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ssp_env.game.record import POLICY, PROMPT, GameRecord, SegmentRecord, TrajectoryRecord
from ssp_env.game.render import STYLES, visible
from ssp_env.judge.base import Verdict
from ssp_env.types import Document

INDENT = 4
_OUTCOMES = {"valid": "bold green", "invalid": "bold red", "void": "bold yellow"}
_NAMED = 10
"""Right answers that are named; a question about a nation has hundreds."""


def show_game(console: Console, title: str, record: GameRecord) -> None:
    """Prints a game in full.

    Args:
        console: with colours where it is a terminal.
        title: which game it is, for the first line.
        record: the game.
    """
    write(console, title, "dim")
    aliases = f" (or: {', '.join(record.aliases)})" if record.aliases else ""
    write(console, f"answer: {record.answer}{aliases}", "bold magenta")
    if record.origin != "proposed":
        write(console, f"question: {record.question}  ({record.origin})", "bold")

    known_prompt: SegmentRecord | None = None
    for name, trajectory in record.named().items():
        if name == "solver 1":
            _show_checks(console, record)
        _show_play(console, name, trajectory, known_prompt)
        known_prompt = trajectory.segments[0]
    if not record.attempts:
        _show_checks(console, record)

    _show_end(console, record)


def write(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Prints text that may hold anything, wrapped on a terminal and in one line elsewhere."""
    ready = Text(visible(text), style)
    if console.is_terminal:
        console.print(Padding(ready, (0, 0, 0, indent)))
    else:
        ready.plain = "\n".join(" " * indent + line for line in ready.plain.split("\n"))
        console.print(ready, soft_wrap=True)


def summary_line(record: GameRecord) -> Text:
    """A game in one line: outcome, reason, right attempts, rewards, question and answer."""
    right = sum(a.verdict is not None and a.verdict.correct for a in record.attempts)
    counted = sum(attempt.outage is None for attempt in record.attempts)
    solved = f"{right}/{counted}" if record.attempts else ""
    paid = "" if record.proposer_reward is None else f"{record.proposer_reward:.2f}"

    line = Text(f"{record.outcome:<8}", _OUTCOMES.get(record.outcome, ""))
    line.append(f" {record.reason or '':<16} {solved:>6} {paid:>8}  ", "default")
    question = record.question or "(no question)"
    line.append(visible(f"{question} -> {record.answer}").replace("\n", " "), "default")
    return line


HEADING = f"{'outcome':<8} {'reason':<16} {'solved':>6} {'proposer':>8}  question -> answer"
"""Names the columns of :func:`summary_line`."""


def _show_play(
    console: Console, name: str, trajectory: TrajectoryRecord, known: SegmentRecord | None
) -> None:
    verdict = _word(trajectory.verdict)
    if (outage := trajectory.outage) is not None:
        verdict = f": void ({outage.service}: {outage.what})"
    paid = "" if trajectory.reward is None else f", paid {trajectory.reward:g}"
    ending = "" if trajectory.ending in (None, "action") else f" (ended by {trajectory.ending})"
    write(console, f"{name}{verdict}{paid}{ending}", "bold yellow")

    searches = iter(trajectory.searches)
    for segment in trajectory.segments:
        if not segment.tokens:
            continue
        if segment == known:
            write(console, "(the same prompt)", STYLES[PROMPT], INDENT)
            continue
        if segment.by not in (PROMPT, POLICY) and (search := next(searches, None)) is not None:
            write(console, f"found: {_named(search.documents)}", "dim cyan", INDENT)
        write(console, segment.text, STYLES[segment.by], INDENT)

    # An observation that did not fit is not a segment, but it was searched for.
    for search in searches:
        write(console, f"found, but not shown: {_named(search.documents)}", "dim cyan", INDENT)


def _word(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    detail = f" ({verdict.detail})" if verdict.detail else ""
    return f": {'right' if verdict.correct else 'wrong'}{detail}"


def _named(documents: Iterable[Document]) -> str:
    shown = [d.id if d.score is None else f"{d.id} ({d.score:.3g})" for d in documents]
    return ", ".join(shown) or "nothing"


def _show_checks(console: Console, record: GameRecord) -> None:
    if record.origin == "proposed" and record.question is not None:
        write(console, f"question: {record.question}{_known(record)}", "bold")

    if record.verification is not None:
        write(console, f"verification{_word(record.verification)}", "bold")
        origins = {n.document.id: f"noise, {_origin(n.origin, record)}" for n in record.noise}
        read = (f"{d} ({origins.get(d, 'evidence')})" for d in record.materials or ())
        write(console, f"read: {', '.join(read) or 'nothing'}", "dim cyan", INDENT)

    if record.closed_book is not None:
        write(console, f"from memory{_word(record.closed_book)}", "bold")


def _origin(origin: str, record: GameRecord) -> str:
    """Where noise came from; a game by its number in the step, not in its runner's part of it."""
    name, _, slot = origin.partition(" ")
    if name == "game" and slot.isdecimal():
        return f"game {record.first_slot + int(slot)}"
    return origin


def _known(record: GameRecord) -> str:
    """What the world knows of the question."""
    if record.hops is None or record.right_answers is None:
        return ""
    hops = "1 hop" if record.hops == 1 else f"{record.hops} hops"
    # The answer of the game comes first, if it is one of them.
    right = sorted(record.right_answers, key=lambda answer: answer != record.answer)
    named = ", ".join(right[:_NAMED]) or "nothing"
    more = f" and {len(right) - _NAMED} more" if len(right) > _NAMED else ""
    return f"  ({hops}; right in this world: {named}{more})"


def _show_end(console: Console, record: GameRecord) -> None:
    for line in _end(record):
        write(console, line, _OUTCOMES.get(record.outcome, "bold"))


def _end(record: GameRecord) -> Iterator[str]:
    rewards = (("proposer", record.proposer_reward), ("solver", record.solver_reward))
    paid = ", ".join(f"{role} {reward}" for role, reward in rewards if reward is not None)
    reason = f" ({record.reason})" if record.reason else ""
    yield f"outcome: {record.outcome}{reason}{'; ' if paid else ''}{paid}"

    if record.outage is not None:
        calls = record.outage.calls
        counted = "" if calls is None else f" [{calls} {'call' if calls == 1 else 'calls'}]"
        yield f"the {record.outage.service} failed: {record.outage.what}{counted}"

"""``ssp replay``: prints games of a run or a file, replays them offline, rescores them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.text import Text

from ssp_env.errors import ConfigError, DataError, SSPError, one_of
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord, TrajectoryRecord
from ssp_env.game.transcript import OUTCOME_STYLES, Line, transcript, visible
from ssp_env.judge.base import Judge
from ssp_env.judge.judges import BY_RULES
from ssp_env.replay.files import SavedGame, read_games
from ssp_env.replay.play import NO_TOKENS
from ssp_env.replay.play import replay as play_again
from ssp_env.replay.rescore import Rescored, rescore

IN_FULL = 3
"""Up to this many games are printed in full."""
HEADING = f"{'outcome':<8} {'reason':<16} {'solved':>6} {'proposer':>8}  question -> answer"
_AT_ONCE = 256
"""Games that a judge sees together."""


@Parameter(name="*")
@dataclass(frozen=True)
class Chosen:
    """Games that are shown; all of them, if nothing is said."""

    step: str | None = None
    """Only of this step, such as 80, or of these, such as 1-20."""
    outcome: Literal["valid", "invalid", "void"] | None = None
    """Only these."""
    reason: str | None = None
    """Only those that failed for it, such as spoiler or search."""
    slot: int | None = None
    """Only this number within its step."""
    game: int | None = None
    """Only this game of the path, from 1."""

    def steps(self) -> range | None:
        """The steps that are asked for; ``None`` for all."""
        if self.step is None:
            return None
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", self.step)
        if match is None:
            fix = "give a step, such as 80, or a range of them, such as 1-20"
            raise SSPError(f"--step {self.step}: {fix}")
        return range(int(match[1]), int(match[2] or match[1]) + 1)


def replay(
    path: Path,
    /,
    *,
    chosen: Chosen = Chosen(),
    limit: Annotated[int, Parameter(validator=Number(gte=0))] = 20,
    full: bool = False,
    check: bool = False,
    judge: str | None = None,
    tokenizer: str | None = None,
) -> int:
    """Prints, replays and rescores the games of a run or of a file.

    Up to three games are printed in full and replayed; more are listed, one per line.

    Exit status: 0 if every replayed game is identical, 1 if one differs, 2 for a mistake.

    Args:
        path: A run directory, or a file of games.
        limit: Show at most this many games (default: 20; 0: all of them).
        full: Print in full, even if more than three.
        check: Replay all of them and show only what differs.
        judge: Also rescore all of them with this judge: lenient, exact or f1.
        tokenizer: Directory of the tokenizer that was played with.
    """
    console, most = Console(), limit or None
    if judge is not None:
        one_of("judge", judge, tuple(BY_RULES))

    counts = _Counts(console, tokenizer)
    if check:
        for found in _games(path, chosen):
            counts.add(found)
        least = 1
    else:
        games = _games(path, chosen)
        first = list(islice(games, IN_FULL + 1))
        games = chain(first, games)
        if len(first) > IN_FULL and not full:
            _list(console, games, most)
        else:
            for found in islice(games, most):
                _print(counts, found)
        least = 2

    counts.show(least)
    if judge is not None:
        _rescore(console, judge, BY_RULES[judge](), _games(path, chosen), most)
    return 1 if counts.differing else 0


# -- which games -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A game, and where it was found."""

    number: int
    step: int | None
    game: SavedGame

    @property
    def place(self) -> str:
        """Place in words."""
        step = "" if self.step is None else f"step {self.step}, "
        return f"game {self.number}: {step}slot {self.game.record.slot}"


def _games(path: Path, chosen: Chosen) -> Iterator[_Found]:
    """The games that are asked for, one after the other.

    Raises:
        SSPError: there is no game at all, or none that is asked for.
    """
    steps, number, count = chosen.steps(), 0, 0
    files = _files(path)
    for file, step in files:
        for game in read_games(file):
            number += 1
            record = game.record
            if (
                (steps is None or step in steps)
                and chosen.outcome in (None, record.outcome)
                and chosen.reason in (None, record.reason)
                and chosen.slot in (None, record.slot)
                and chosen.game in (None, number)
            ):
                count += 1
                yield _Found(number, step, game)

    if number == 0:
        raise DataError(path, "holds no game")
    if count == 0:
        held = [step for _, step in files if step is not None]
        unknown = steps is not None and held and not any(step in steps for step in held)
        there = f"; it has steps {held[0]} to {held[-1]}" if unknown else ""
        raise SSPError(f"{path} holds {number} games, but none that is asked for{there}")


def _files(path: Path) -> list[tuple[Path, int | None]]:
    """The files of games behind a path, with their steps, in order."""
    if not path.is_dir():
        return [(path, _step_of(path))]

    folder = path / "games" if (path / "games").is_dir() else path
    files = [(file, step) for file in folder.iterdir() if (step := _step_of(file)) is not None]
    if not files:
        raise DataError(path, "holds no games: name a run directory or a file of games")
    return [*sorted(files, key=lambda pair: pair[1])]


def _step_of(file: Path) -> int | None:
    match = re.fullmatch(r"step_(\d+)\.jsonl(\.gz)?", file.name)
    return int(match[1]) if match else None


# -- what to do with them ----------------------------------------------------------------------


def _list(console: Console, games: Iterator[_Found], most: int | None) -> None:
    """Prints one line per game."""
    console.print(Text(f"{'game':>6} {'step':>5} {'slot':>5} {HEADING}", "bold"))
    shown = 0
    for found in islice(games, most):
        step = "" if found.step is None else str(found.step)
        line = Text(f"{found.number:>6} {step:>5} {found.game.record.slot:>5} ")
        line.append_text(_summary(found.game.record))
        if console.is_terminal:
            console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            console.print(line, soft_wrap=True)
        shown += 1

    total = shown + sum(1 for _ in games)
    hint = "" if shown == total else "; --limit 0 lists all"
    _write(console, f"{shown} of {total} games{hint}; --game N prints one in full", "bold")


def _print(counts: _Counts, found: _Found) -> None:
    """Prints a game in full, and how it comes out when it is replayed."""
    console, saved, rules = counts.console, found.game, found.game.rules
    about = f"world {rules.parts.world}, weights of step {saved.record.weights_version}"
    _write(console, f"{found.place}; {about}, ssp-env {rules.package}", "dim")
    for line in transcript(saved.record):
        line.print(console)

    if not rules.tokens:
        _write(console, f"not replayed: {NO_TOKENS}", "yellow")
    else:
        try:
            if counts.add(found):
                _write(console, "replayed: identical to the record", "bold green")
        except ConfigError as error:
            # The games of a model can be read where its tokenizer is not.
            if error.field != "tokenizer" or counts.tokenizer is not None:
                raise
            _write(console, f"not replayed: {error.fix} (--tokenizer DIR)", "yellow")
    console.print()


def _write(console: Console, text: str, style: str = "") -> None:
    Line(text, style).print(console)


def _summary(record: GameRecord) -> Text:
    """A game in one line, with the columns of :data:`HEADING`."""
    right = sum(map(_right, record.attempts))
    counted = sum(attempt.outage is None for attempt in record.attempts)
    solved = f"{right}/{counted}" if record.attempts else ""
    paid = "" if record.proposer_reward is None else f"{record.proposer_reward:.2f}"

    line = Text(f"{record.outcome:<8}", OUTCOME_STYLES.get(record.outcome, ""))
    line.append(f" {record.reason or '':<16} {solved:>6} {paid:>8}  ", "default")
    question = record.question or "(no question)"
    line.append(visible(f"{question} -> {record.answer}").replace("\n", " "), "default")
    return line


class _Counts:
    """Replays games, and counts those that differ."""

    def __init__(self, console: Console, tokenizer: str | None) -> None:
        self.console, self.tokenizer = console, tokenizer
        self.games = self.differing = 0
        self._own_code: dict[str, None] = {}

    def add(self, found: _Found) -> bool:
        """Replays a game and prints what differs; returns whether it is identical."""
        replayed = play_again(found.game, self.tokenizer)
        self.games += 1
        self.differing += not replayed.identical
        self._own_code.update(dict.fromkeys(replayed.as_saved))
        for difference in replayed.differences:
            _write(self.console, f"{found.place} differs: {difference}", "bold red")
        return replayed.identical

    def show(self, least: int) -> None:
        """Prints the counts, if at least so many games were replayed."""
        if self._own_code:
            names = ", ".join(self._own_code)
            _write(self.console, f"not checked, since it is code of your own: {names}", "yellow")
        if self.games >= least:
            same = self.games - self.differing
            _write(self.console, f"{same} of {self.games} games are identical", "bold")


# -- another judge -----------------------------------------------------------------------------


def _rescore(
    console: Console, name: str, judge: Judge, games: Iterator[_Found], most: int | None
) -> None:
    """Rescores the games in parts, so that any number of them can be."""
    tally = _Tally()
    while part := list(islice(games, _AT_ONCE)):
        rescored = rescore([found.game for found in part], judge)
        for found, one in zip(part, rescored, strict=True):
            if one.before.record.outcome is Outcome.VALID:
                tally.add(one)
            if one.changed and (most is None or tally.changed_games <= most):
                _write(console, f"{name}: {found.place}: {_change(one)}")
    _write(console, f"{name}: {tally}", "bold")


@dataclass
class _Tally:
    """Changes by another judge, in valid games."""

    games: int = 0
    changed_games: int = 0
    verdicts: int = 0
    changed: int = 0
    before: float = 0.0
    after: float = 0.0
    """Sums of the solver's mean rewards."""

    def add(self, one: Rescored) -> None:
        then, now = one.before.record, one.after.record
        self.games += 1
        self.changed_games += one.changed
        self.verdicts += sum(attempt.outage is None for attempt in then.attempts)
        pairs = zip(then.attempts, now.attempts, strict=True)
        self.changed += sum(_right(before) != _right(after) for before, after in pairs)
        self.before += then.solver_reward or 0.0
        self.after += now.solver_reward or 0.0

    def __str__(self) -> str:
        if not self.games:
            return "nothing to rescore, since no game is valid"
        means = f"{self.before / self.games:.3f} -> {self.after / self.games:.3f}"
        changed = f"{self.changed} of {self.verdicts} verdicts change"
        return f"{changed} in {self.games} valid games; mean solver reward {means}"


def _change(one: Rescored) -> str:
    then, now = one.before.record, one.after.record
    if now.outcome is Outcome.VOID:
        return f"void: {now.outage.what if now.outage else now.reason}"
    pairs = zip(then.attempts, now.attempts, strict=True)
    words = [f"{_word(before)} -> {_word(after)}" for before, after in pairs]
    paid = f"proposer {then.proposer_reward} -> {now.proposer_reward}"
    return f"{', '.join(words)}; {paid}, solver {then.solver_reward} -> {now.solver_reward}"


def _right(attempt: TrajectoryRecord) -> bool:
    return attempt.verdict is not None and attempt.verdict.correct


def _word(attempt: TrajectoryRecord) -> str:
    if attempt.outage is not None:
        return "void"
    return "right" if _right(attempt) else "wrong"

"""``ssp replay``: prints games of a run or a file, replays them offline, rescores them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.text import Text

from ssp_env.errors import DataError, SSPError
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import TrajectoryRecord
from ssp_env.game.transcript import OUTCOME_STYLES, Line, transcript, visible
from ssp_env.judge.base import Judge
from ssp_env.judge.judges import open_judge
from ssp_env.replay.files import SavedGame, read_games
from ssp_env.replay.known import Known
from ssp_env.replay.play import replay as play_again
from ssp_env.replay.play import rescore

IN_FULL = 3
"""Up to this many games are printed in full."""
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
    index: int | None = None
    """Only this number within its step."""
    game: int | None = None
    """Only this game of the path, from 1."""

    def steps(self) -> range | None:
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
        check: Replay all of them and show only what differs, also from what their world and run
            know of them.
        judge: Also rescore all of them with this judge: lenient, exact, f1, or MODULE:NAME, one of
            your own.
        tokenizer: Directory of the tokenizer that was played with.
    """
    console, most = Console(), limit or None
    judging = None if judge is None else open_judge(judge)
    games = _games(path, chosen)
    # One more than is printed in full tells whether there are more, without reading all.
    first = [] if check else list(islice(games, IN_FULL + 1))
    games = chain(first, games)
    status = 0
    if len(first) > IN_FULL and not full:
        _list(console, games, most)
    else:
        known = Known(path) if check else None
        status = _replay(console, games if check else islice(games, most), tokenizer, known)
    if judge is not None and judging is not None:
        _rescore(console, judge, judging, _games(path, chosen), most)
    return status


# -- which games -------------------------------------------------------------------------------


class _Found(NamedTuple):
    number: int
    step: int | None
    game: SavedGame

    @property
    def place(self) -> str:
        step = "" if self.step is None else f"step {self.step}, "
        return f"game {self.number}: {step}index {self.game.record.index}"


def _games(path: Path, chosen: Chosen) -> Iterator[_Found]:
    """The games that are asked for, one after the other."""
    steps, number, count = chosen.steps(), 0, 0
    files = _files(path)
    every = ((step, game) for file, step in files for game in read_games(file))
    for number, (step, game) in enumerate(every, 1):
        record = game.record
        if (
            (steps is None or step in steps)
            and chosen.outcome in (None, record.outcome)
            and chosen.reason in (None, record.reason)
            and chosen.index in (None, record.index)
            and chosen.game in (None, number)
        ):
            count += 1
            yield _Found(number, step, game)

    if number == 0:
        raise DataError(path, "holds no game")
    if count == 0:
        numbered = [step for _, step in files if step is not None]
        there = f" of steps {numbered[0]} to {numbered[-1]}" if numbered else ""
        wanted = ", ".join(f"{n} {value}" for n, value in vars(chosen).items() if value is not None)
        raise SSPError(f"{path} holds {number} games{there}, but none with {wanted}")


def _files(path: Path) -> list[tuple[Path, int | None]]:
    """The files of a run or a folder, by step; a file may be of no step."""

    def step_of(file: Path) -> int | None:
        match = re.fullmatch(r"step_(\d+)\.jsonl(\.gz)?", file.name)
        return int(match[1]) if match else None

    if not path.is_dir():
        return [(path, step_of(path))]
    folder = path / "games" if (path / "games").is_dir() else path
    files = [(file, step) for file in folder.iterdir() if (step := step_of(file)) is not None]
    if not files:
        raise DataError(path, "holds no games: name a run directory or a file of games")
    return [*sorted(files, key=lambda pair: pair[1])]


# -- printing and replaying --------------------------------------------------------------------


def _list(console: Console, games: Iterator[_Found], most: int | None) -> None:
    heading = f"{'game':>6} {'step':>5} {'index':>5} {'outcome':<8} {'reason':<16} {'solved':>6} "
    console.print(Text(f"{heading}{'proposer':>8}  question -> answer", "bold"))
    shown = 0
    for number, step, game in islice(games, most):
        shown, record = shown + 1, game.record
        # Void attempts do not count in what was solved.
        words = [_word(attempt) for attempt in record.attempts]
        solved = f"{words.count('right')}/{len(words) - words.count('void')}" if words else ""
        paid = "" if record.proposer_reward is None else f"{record.proposer_reward:.2f}"

        line = Text(f"{number:>6} {'' if step is None else step:>5} {record.index:>5} ")
        line.append(f"{record.outcome:<8}", OUTCOME_STYLES[record.outcome])
        line.append(f" {record.reason or '':<16} {solved:>6} {paid:>8}  ")
        question = visible(f"{record.question or '(no question)'} -> {record.answer}")
        line.append(question.replace("\n", " "))
        if console.is_terminal:
            console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            console.print(line, soft_wrap=True)

    total = shown + sum(1 for _ in games)
    hint = "" if shown == total else "; --limit 0 lists all"
    Line(f"{shown} of {total} games{hint}; --game N prints one in full", "bold").print(console)


def _replay(
    console: Console, games: Iterator[_Found], tokenizer: str | None, known: Known | None
) -> int:
    """Replays games and prints what differs; all of them, unless they are only checked, against
    what is ``known`` of their world and run as well."""
    replayed = differing = unknown = 0
    check = known is not None
    own_code: dict[str, str] = {}
    for listed in games:
        if not check:
            record, rules = listed.game.record, listed.game.rules
            about = f"world {rules.parts.world}, weights of step {record.weights_version}"
            heading = Line(f"{listed.place}; {about}, ssp-env {rules.package}", "dim")
            for line in (heading, *transcript(record)):
                line.print(console)
        try:
            world = None if known is None else known.world(listed.game)
            outcome = play_again(listed.game, tokenizer, world)
        except SSPError as error:
            # A game can be read where it has no tokens, or its tokenizer is elsewhere.
            if check or tokenizer is not None:
                raise
            Line(f"not replayed: {error} (--tokenizer DIR)", "yellow").print(console)
            continue

        replayed += 1
        own_code |= outcome.as_saved
        others = [*outcome.differences, *_other_version(listed, known)]
        differing += bool(others)
        unknown += check and world is None
        for difference in others:
            Line(f"{listed.place} differs: {difference}", "bold red").print(console)
        if outcome.identical and not check:
            Line("replayed: identical to the record\n", "bold green").print(console)

    if own_code:
        names = ", ".join(f"{part} ({name})" for part, name in own_code.items())
        Line(f"not checked, since it is code of your own: {names}", "yellow").print(console)
    if unknown:
        what = f"the world of {unknown} games is not known: hops, right answers, groups"
        print(f"ssp: not checked, since {what}", file=sys.stderr)
    if replayed:
        Line(f"{replayed - differing} of {replayed} games are identical", "bold").print(console)
    return 1 if differing else 0


def _other_version(listed: _Found, known: Known | None) -> Iterator[str]:
    """The difference between a game's weights and those that played its step, if there is one."""
    saved = listed.game.record.weights_version
    played = saved if known is None else known.version(listed.step)
    if played not in (None, saved):
        yield f"game: weights_version: saved {saved}, its step was played by {played}"


# -- another judge -----------------------------------------------------------------------------


def _rescore(
    console: Console, name: str, judge: Judge, games: Iterator[_Found], most: int | None
) -> None:
    """Rescores the games in parts, so that any number of them can be; prints what changes."""
    valid = shown = verdicts = changed = 0
    before = after = 0.0
    while part := list(islice(games, _AT_ONCE)):
        for listed, one in zip(part, rescore([listed.game for listed in part], judge), strict=True):
            then, now = one.before.record, one.after.record
            if then.outcome is not Outcome.VALID:
                continue

            pairs = [*zip(map(_word, then.attempts), map(_word, now.attempts), strict=True)]
            valid += 1
            verdicts += sum(old != "void" for old, _ in pairs)
            changed += sum(old != new for old, new in pairs)
            before += then.solver_reward or 0.0
            after += now.solver_reward or 0.0
            if one.changed and (most is None or shown < most):
                shown += 1
                words = ", ".join(f"{old} -> {new}" for old, new in pairs)
                paid = f"proposer {then.proposer_reward} -> {now.proposer_reward}"
                paid += f", solver {then.solver_reward} -> {now.solver_reward}"
                Line(f"{name}: {listed.place}: {words}; {paid}").print(console)

    text = f"{changed} of {verdicts} verdicts change in {valid} valid games"
    if valid:
        text += f"; mean solver reward {before / valid:.3f} -> {after / valid:.3f}"
    Line(f"{name}: {text}", "bold").print(console)


def _word(attempt: TrajectoryRecord) -> str:
    if attempt.outage is not None:
        return "void"
    return "right" if attempt.right else "wrong"

"""``ssp replay``: prints games of a run or a file, replays them offline, rescores them."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ssp_env.commands.base import Command
from ssp_env.errors import ConfigError, DataError, SSPError
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord, TrajectoryRecord
from ssp_env.game.transcript import OUTCOME_STYLES, Line, transcript, visible
from ssp_env.judge.base import Judge
from ssp_env.judge.judges import BY_RULES
from ssp_env.replay.files import SavedGame, read_games
from ssp_env.replay.header import SavedRules
from ssp_env.replay.play import NO_TOKENS, Difference, replay
from ssp_env.replay.rescore import Rescored, rescore
from ssp_env.tokenizers import HuggingFaceTokenizer, Tokenizer

IN_FULL = 3
"""Up to this many games are printed in full."""
LISTED = 20
"""Of more, this many are listed unless ``--limit`` says otherwise."""
HEADING = f"{'outcome':<8} {'reason':<16} {'solved':>6} {'proposer':>8}  question -> answer"
_AT_ONCE = 256
"""Games that a judge sees together."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a run directory, or a file of games")

    chosen = parser.add_argument_group("which games (all of them, if not said)")
    chosen.add_argument("--step", metavar="N[-M]", help="only of this step, or of these steps")
    chosen.add_argument("--outcome", choices=["valid", "invalid", "void"], help="only these")
    chosen.add_argument(
        "--reason", metavar="CODE", help="only those that failed for it, such as spoiler or search"
    )
    chosen.add_argument("--slot", type=int, metavar="N", help="only this number within its step")
    chosen.add_argument("--game", type=int, metavar="N", help="only the N-th game of PATH, from 1")

    done = parser.add_argument_group("what to do with them")
    done.add_argument(
        "--limit", type=int, metavar="N", help=f"show at most N (default: {LISTED}; 0: all of them)"
    )
    done.add_argument(
        "--full", action="store_true", help=f"print in full, even if more than {IN_FULL}"
    )
    done.add_argument(
        "--check", action="store_true", help="replay all of them and show only what differs"
    )
    done.add_argument(
        "--judge", choices=sorted(BY_RULES), help="also rescore all of them with this judge"
    )
    done.add_argument(
        "--tokenizer", metavar="DIR", help="directory of the tokenizer that was played with"
    )
    parser.epilog = f"""\
Up to {IN_FULL} games are printed in full and replayed; more are listed, one per line.
  ssp replay runs/tiny-seed0                           what is there
  ssp replay runs/tiny-seed0 --step 80 --slot 3        one game in full
  ssp replay runs/tiny-seed0 --outcome void --full     the games that an outage hit
  ssp replay runs/tiny-seed0 --check                   does every game come out as it was written?

exit status: 0 if every replayed game is identical, 1 if one differs, 2 for a mistake"""


def _run(arguments: Namespace) -> int:
    console, judge = Console(), None
    tokenizers = _Tokenizers(arguments.tokenizer)
    if arguments.judge is not None:
        judge = BY_RULES[arguments.judge]()

    limit = LISTED if arguments.limit is None else arguments.limit
    if limit < 0:
        raise SSPError(f"--limit {limit}: give 0 (all) or more")

    if arguments.check:
        status = _check(console, _chosen(arguments), tokenizers)
    else:
        status = _show(console, arguments, limit or None, tokenizers)
    if judge is not None:
        _rescore(console, arguments.judge, judge, _chosen(arguments), limit or None)
    return status


# -- which games -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A game, and where it was found."""

    number: int
    step: int | None
    game: SavedGame

    @property
    def place(self) -> str:
        step = "" if self.step is None else f"step {self.step}, "
        return f"game {self.number}: {step}slot {self.game.record.slot}"


def _chosen(arguments: Namespace) -> Iterator[_Found]:
    """The games that a command line asks for, one after the other.

    Raises:
        SSPError: there is no game at all, or none that is asked for.
    """
    steps, number, count = _steps(arguments.step), 0, 0
    files = _files(Path(arguments.path))
    for path, step in files:
        for game in read_games(path):
            number += 1
            found = _Found(number, step, game)
            if _fits(found, steps, arguments):
                count += 1
                yield found

    if number == 0:
        raise DataError(arguments.path, "holds no game")
    if count == 0:
        held = [step for _, step in files if step is not None]
        unknown = steps is not None and held and not any(step in steps for step in held)
        there = f"; it has steps {held[0]} to {held[-1]}" if unknown else ""
        raise SSPError(f"{arguments.path} holds {number} games, but none that is asked for{there}")


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


def _steps(text: str | None) -> range | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is None:
        raise SSPError(f"--step {text}: give a step, such as 80, or a range of them, such as 1-20")
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def _fits(found: _Found, steps: range | None, arguments: Namespace) -> bool:
    record = found.game.record
    return (
        (steps is None or found.step in steps)
        and arguments.outcome in (None, record.outcome)
        and arguments.reason in (None, record.reason)
        and arguments.slot in (None, record.slot)
        and arguments.game in (None, found.number)
    )


# -- what to do with them ----------------------------------------------------------------------


def _show(
    console: Console, arguments: Namespace, limit: int | None, tokenizers: _Tokenizers
) -> int:
    games = _chosen(arguments)
    first = list(islice(games, IN_FULL + 1))
    if len(first) <= IN_FULL or arguments.full:
        return _show_in_full(console, islice(chain(first, games), limit), tokenizers)

    console.print(Text(f"{'game':>6} {'step':>5} {'slot':>5} {HEADING}", "bold"))
    shown = 0
    for found in islice(chain(first, games), limit):
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
    return 0


def _show_in_full(console: Console, games: Iterable[_Found], tokenizers: _Tokenizers) -> int:
    counts = _Counts()
    for found in games:
        saved, rules = found.game, found.game.rules
        about = f"world {rules.parts.world}, weights of step {saved.record.weights_version}"
        _write(console, f"{found.place}; {about}, ssp-env {rules.package}", "dim")
        for line in transcript(saved.record):
            line.print(console)

        if (why := tokenizers.missing(rules)) is not None:
            _write(console, f"not replayed: {why}", "yellow")
        else:
            result = counts.add(saved, tokenizers)
            if not result:
                _write(console, "replayed: identical to the record", "bold green")
            for difference in result:
                _write(console, f"differs: {difference}", "bold red")
        counts.show_own_code(console)
        console.print()

    return counts.show(console, least=2)


def _check(console: Console, games: Iterable[_Found], tokenizers: _Tokenizers) -> int:
    counts = _Counts()
    with Console(stderr=True).status("replaying"):
        for found in games:
            saved = found.game
            if (why := tokenizers.missing(saved.rules)) is not None:
                raise SSPError(f"{found.place}: {why}")
            for difference in counts.add(saved, tokenizers):
                _write(console, f"{found.place} differs: {difference}", "bold red")

    counts.show_own_code(console)
    return counts.show(console, least=1)


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


@dataclass
class _Counts:
    """Number of games that were replayed, and of those that differ."""

    games: int = 0
    differing: int = 0
    own_code: dict[str, None] = field(default_factory=dict)
    """Code of the user's own, which was not checked."""

    def add(self, saved: SavedGame, tokenizers: _Tokenizers) -> tuple[Difference, ...]:
        replayed = replay(saved, tokenizers.of(saved.rules))
        self.games += 1
        self.differing += not replayed.identical
        self.own_code.update(dict.fromkeys(replayed.as_saved))
        return replayed.differences

    def show_own_code(self, console: Console) -> None:
        if self.own_code:
            names = ", ".join(self.own_code)
            _write(console, f"not checked, since it is code of your own: {names}", "yellow")
            self.own_code.clear()

    def show(self, console: Console, least: int) -> int:
        if self.games >= least:
            same = self.games - self.differing
            _write(console, f"{same} of {self.games} games are identical", "bold")
        return 1 if self.differing else 0


class _Tokenizers:
    """Opens what games were played with, once per header."""

    def __init__(self, directory: str | None) -> None:
        self._given = None if directory is None else HuggingFaceTokenizer.load(directory)
        self._rules: SavedRules | None = None
        self._opened: Tokenizer | str = ""

    def missing(self, rules: SavedRules) -> str | None:
        """Reason for which games with this header cannot be replayed; ``None`` if they can.

        Raises:
            ConfigError: another tokenizer was given.
        """
        if not rules.tokens:
            return NO_TOKENS
        if rules is not self._rules:
            self._rules, self._opened = rules, self._open(rules)
        return self._opened if isinstance(self._opened, str) else None

    def of(self, rules: SavedRules) -> Tokenizer:
        """The tokenizer of games that can be replayed."""
        assert self.missing(rules) is None
        assert not isinstance(self._opened, str)
        return self._opened

    def _open(self, rules: SavedRules) -> Tokenizer | str:
        try:
            return rules.tokenizer.open(self._given)
        except ConfigError as error:
            if self._given is not None:
                raise
            return f"{error.fix} (--tokenizer DIR)"


# -- another judge -----------------------------------------------------------------------------


def _rescore(
    console: Console, name: str, judge: Judge, games: Iterator[_Found], limit: int | None
) -> None:
    """Rescores the games in parts, so that any number of them can be."""
    tally = _Tally()
    while part := list(islice(games, _AT_ONCE)):
        rescored = rescore([found.game for found in part], judge)
        for found, one in zip(part, rescored, strict=True):
            if one.before.record.outcome is Outcome.VALID:
                tally.add(one)
            if one.changed and (limit is None or tally.changed_games <= limit):
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


COMMAND = Command("replay", "print, replay and rescore the games of a run", _configure, _run)

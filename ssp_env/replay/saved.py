"""Files of games: what training, evaluation and :func:`save_games` write, and `ssp replay` reads.

A file is JSON lines, plain or gzip. A header line says what games were played by; it holds for all
games that follow it, one per line, until the next header. So files can be joined by ``cat``, and
are read and written game by game."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

from ssp_env.errors import DataError, UsageError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.replay.codec import Reader, plain
from ssp_env.replay.header import SavedRules, read_header
from ssp_env.replay.lines import line_of, record_of

_GZIP = b"\x1f\x8b"
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""A surrogate pair in two halves, which JSON would read back as one character."""
_NEITHER = "is neither a game nor a header of games: a JSON object is wanted"


@dataclass(frozen=True)
class SavedGame:
    """A game that is over, and what it was played by. Make one with :func:`save_game`."""

    rules: SavedRules
    record: GameRecord

    def to_text(self) -> str:
        """The lines of a file that holds this game alone."""
        return "".join(game_lines([self]))

    @classmethod
    def from_text(cls, text: str, path: str | Path = "saved game") -> SavedGame:
        """The one game among the lines of a file.

        Args:
            text: as :meth:`to_text` gave it.
            path: what errors call it.

        Raises:
            DataError: a field that is missing or wrong, or not exactly one game.
        """
        rows = enumerate(text.encode("utf-8", "backslashreplace").splitlines(True), start=1)
        return _only(path, [line.game() for line in _scan(str(path), rows)])

    def write(self, path: str | Path) -> None:
        """Writes it to a file of its own; gzip if the name ends in ``.gz``.

        Raises:
            DataError: the file cannot be written.
        """
        write_games([self], path)

    @classmethod
    def read(cls, path: str | Path) -> SavedGame:
        """Reads a file that holds one game.

        Raises:
            DataError: as :func:`read_games` does, or the file does not hold exactly one.
        """
        return _only(path, list(read_games(path)))


def save_game(game: Game, rules: Rules, weights_version: int = 0) -> SavedGame:
    """A game that is over, ready to be written.

    Args:
        game: any outcome but pending, from any round.
        rules: what it was played by.
        weights_version: which weights the policy had.

    Raises:
        UsageError: the game goes on.
    """
    _check_over(game)
    return SavedGame(SavedRules.of(rules), record_game(game, rules, weights_version))


def save_games(
    games: Iterable[Game], rules: Rules, path: str | Path, *, tokens: bool = True
) -> None:
    """Writes games that are over to a file; gzip if its name ends in ``.gz``.

    Args:
        games: any outcome but pending.
        rules: what they were played by.
        path: the file; it is replaced.
        tokens: write token ids and log-probabilities; without them games are read, printed and
            rescored, but not replayed.

    Raises:
        UsageError: a game that goes on. Nothing is written then.
        DataError: the file cannot be written.
    """
    games = list(games)
    for game in games:
        _check_over(game)

    header = SavedRules.of(rules)
    saved = (SavedGame(header, record_game(game, rules)) for game in games)
    write_games(saved, path, tokens=tokens)


def write_games(games: Iterable[SavedGame], path: str | Path, *, tokens: bool = True) -> None:
    """Writes saved games to a file; gzip if its name ends in ``.gz``.

    Args:
        games: taken one after the other.
        path: the file; it is replaced.
        tokens: as for :func:`save_games`.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        with _opened_to_write(Path(path)) as file:
            for line in game_lines(games, tokens=tokens):
                file.write(line.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise DataError(path, f"cannot be written ({error.strerror or error})") from error


def game_lines(games: Iterable[SavedGame], *, tokens: bool = True) -> Iterator[str]:
    """The lines of a file of games, line ends included.

    A lone surrogate is left as it is: encode with ``errors="backslashreplace"``, which makes it
    JSON's own escape.
    """
    header: SavedRules | None = None

    for game in games:
        rules = game.rules if tokens or not game.rules.tokens else replace(game.rules, tokens=False)
        if header is None or (rules is not header and rules != header):
            header = rules
            yield _json(header)
        yield _json(line_of(game.record, header))


def read_games(path: str | Path) -> Iterator[SavedGame]:
    """Reads games one after the other, plain or gzip.

    Raises:
        DataError: a file that cannot be read, or a field that is missing or wrong; names file, line
            and field.
    """
    for line in scan_games(path):
        yield line.game()


def scan_games(path: str | Path) -> Iterator[GameOnLine]:
    """As :func:`read_games`, but leaves it to the caller which games are read in full.

    Raises:
        DataError: a file that cannot be read, a line that is not JSON, or a header that is wrong.
    """
    with _opened_to_read(Path(path)) as file:
        yield from _scan(str(path), enumerate(file, start=1))


@dataclass(frozen=True)
class GameOnLine:
    """A game in a file, of which only the little is read that games are chosen by."""

    rules: SavedRules
    outcome: str
    reason: str | None
    slot: int
    row: dict[str, Any]
    """The plain data of the line, unchecked; :meth:`game` is what checks it."""
    _reader: Reader

    def game(self) -> SavedGame:
        """The whole game.

        Raises:
            DataError: a field that is missing, unknown or wrong.
        """
        return SavedGame(self.rules, record_of(self.row, self.rules, self._reader))


# -- within ------------------------------------------------------------------------------------


def _check_over(game: Game) -> None:
    """
    Raises:
        UsageError: the game goes on.
    """
    if game.outcome is Outcome.PENDING:
        raise UsageError(f"game {game.slot} goes on; a game is saved when it is over")


def _only(path: str | Path, games: list[SavedGame]) -> SavedGame:
    if len(games) != 1:
        raise DataError(path, f"holds {len(games)} games, not one; read_games() reads them all")
    return games[0]


def _json(value: Any) -> str:
    """One line of JSON for a dataclass.

    ``plain`` makes JSON of everything, but looks at every value on its own. Nearly all games hold
    nothing that JSON has no word for, and are written in a fifth of the time without it."""
    try:
        text = _dumped(value)
    except ValueError:  # a number that is not finite
        return f"{_dumped(plain(value))}\n"
    return f"{text if _HALVES.search(text) is None else _dumped(plain(value))}\n"


def _dumped(value: Any) -> str:
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_mapping
    )


def _as_mapping(value: Any) -> Any:
    """What :mod:`json` does not know by itself."""
    kind: type[Any] = type(value)
    if is_dataclass(kind):
        return {name: getattr(value, name) for name in _names(kind)}
    return plain(value)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


@contextmanager
def _opened_to_write(path: Path) -> Iterator[IO[bytes]]:
    with open(path, "wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # Neither a name nor a time in it: the same games give the same file.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as zipped:
            yield cast(IO[bytes], zipped)


@contextmanager
def _opened_to_read(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open(path, "rb") as raw:
            zipped = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            if not zipped:
                yield raw
                return
            with gzip.open(raw) as file:
                yield cast(IO[bytes], file)
    except EOFError:
        raise DataError(path, "is cut off: its end is missing") from None
    except (OSError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(path, f"cannot be read: {why}") from error


def _scan(path: str, lines: Iterable[tuple[int, bytes]]) -> Iterator[GameOnLine]:
    header: SavedRules | None = None

    for number, line in lines:
        if not line.strip():
            continue

        reader = Reader(path, number)
        row = _row(path, number, line)
        if "format" in row:
            header = read_header(row, reader)
        elif header is None:
            raise reader.wrong("format", "is missing: a file of games begins with a header line")
        else:
            yield _brief(header, row, reader)


def _row(path: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except UnicodeDecodeError:
        raise DataError(path, "not UTF-8", number) from None
    except json.JSONDecodeError as error:
        what = f"not JSON ({error.msg} at column {error.colno})"
        if not line.endswith(b"\n"):
            what = "cut off: its writer was stopped, or the file was not copied in full"
        raise DataError(path, what, number) from None
    except RecursionError:
        raise DataError(path, "cannot be read: it is nested too deeply", number) from None

    if not isinstance(row, dict):
        raise DataError(path, _NEITHER, number)
    return row


def _brief(rules: SavedRules, row: dict[str, Any], reader: Reader) -> GameOnLine:
    start = row.get("start")
    slot = start.get("slot") if isinstance(start, dict) else None

    match slot, row.get("first_slot"), row.get("outcome"), row.get("reason"):
        case int(slot), int(first), str(outcome), (str() | None) as reason:
            return GameOnLine(rules, outcome, reason, first + slot, row, reader)

    record_of(row, rules, reader)  # it says what is wrong
    raise AssertionError("a line is refused for what games cannot be chosen by")

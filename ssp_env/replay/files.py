"""Files of games: what training, evaluation and :func:`save_games` write, and `ssp replay` reads.

A file is JSON lines, plain or gzip. A header line says what games were played by; it holds for all
games that follow it, one per line, until the next header. So files can be joined by ``cat``, and
are read and written game by game. Each line ends with a digest of itself and of its header, so that
reading notices what was altered, even where nothing follows from it in a replay.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ssp_env.errors import DataError, UsageError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.replay.header import FORMAT, SavedRules

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

LONGEST_LINE = 32 << 20
"""Bytes of the longest line that is read, decompressed."""
_HEADER = re.compile(rb'\s*\{\s*"format"\s*:\s*([^,}]*)')
_DIGEST = re.compile(rb',\s*"digest"\s*:\s*"([^"]*)"\s*\}\s*$')


@dataclass(frozen=True)
class SavedGame:
    """A game that is over, and what it was played by. Make one with :func:`save_game`."""

    rules: SavedRules
    record: GameRecord


# -- writing -----------------------------------------------------------------------------------


def save_game(game: Game, rules: Rules) -> SavedGame:
    """A game that is over, whatever its outcome, with the rules that it was played by."""
    if game.outcome is Outcome.PENDING:
        raise UsageError(f"game {game.slot} goes on; a game is saved when it is over")
    return SavedGame(SavedRules.of(rules), record_game(game, rules))


def save_games(
    games: Iterable[Game], rules: Rules, path: str | Path, *, tokens: bool = True
) -> None:
    """Writes games that are over to a file; see :func:`write_games`."""
    write_games([save_game(game, rules) for game in games], path, tokens=tokens)


def write_games(games: Iterable[SavedGame], path: str | Path, *, tokens: bool = True) -> None:
    """Writes saved games to a file; gzip if its name ends in ``.gz``.

    Args:
        games: taken one after the other.
        path: the file; it is replaced.
        tokens: write token ids and log-probabilities; without them games are read, printed and
            judged anew, but not replayed.
    """
    with open(path, "wb") as raw:
        lines = (line.encode() for line in game_lines(games, tokens=tokens))
        if not str(path).endswith(".gz"):
            raw.writelines(lines)
            return
        # Neither a name nor a time in it: the same games give the same file.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as zipped:
            zipped.writelines(lines)


def game_lines(games: Iterable[SavedGame], *, tokens: bool = True) -> Iterator[str]:
    """The lines of a file of games, line ends included."""
    header: SavedRules | None = None
    header_json = b""

    for game in games:
        bare = not (tokens and game.rules.tokens)
        rules = replace(game.rules, tokens=False) if bare else game.rules
        if header is None or (rules is not header and rules != header):
            header, header_json = rules, _json(rules)
            yield f"{header_json.decode()}\n"

        line = _json(game.record.without_tokens() if bare else game.record)
        yield f'{line[:-1].decode()},"digest":"{_digest(header_json, line)}"}}\n'


def _digest(header: bytes, line: bytes) -> str:
    return blake2b(header + b"\n" + line, digest_size=16).hexdigest()


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _json(value: GameRecord | SavedRules) -> bytes:
    adapter: TypeAdapter[Any] = _adapter(type(value))  # type: ignore[arg-type]
    try:
        return adapter.dump_json(value, warnings=False)
    except ValueError:
        # Lone surrogates are no UTF-8: they are written as tokenizers read them, as question marks.
        from pydantic_core import to_json

        return to_json(_utf8(adapter.dump_python(value, warnings=False)), inf_nan_mode="constants")


def _utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_utf8(key): _utf8(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_utf8(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


# -- reading -----------------------------------------------------------------------------------


def read_games(path: str | Path) -> Iterator[SavedGame]:
    """Reads games one after the other, plain or gzip.

    Raises:
        DataError: a file that cannot be read, or a line that is wrong or was altered.
    """
    with _opened(Path(path)) as file:
        # A few bytes of gzip can be gigabytes of text: no more than one line is ever held.
        lines = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
        yield from parse_games(lines, path)


def parse_games(lines: Iterable[bytes], path: str | Path) -> Iterator[SavedGame]:
    """The games of a file's lines; see :func:`read_games`."""
    rules: SavedRules | None = None
    header = b""

    for number, line in enumerate(lines, start=1):
        if len(line) > LONGEST_LINE:
            raise DataError(path, f"is longer than {LONGEST_LINE >> 20} MB: no game is", number)
        if not line.strip():
            continue

        if (named := _HEADER.match(line)) is not None:
            if named[1].strip() != str(FORMAT).encode():
                what = f"field 'format' is {named[1].decode('utf-8', 'replace')}, but this "
                what += f"version of ssp-env reads {FORMAT}: use the version that wrote it"
                raise DataError(path, what, number)
            rules = _read(SavedRules, line, path, number)
            header = _json(rules)
            continue
        if rules is None:
            what = "field 'format' is missing: a file of games begins with a header line"
            raise DataError(path, what, number)

        digest = _DIGEST.search(line)
        body = line if digest is None else line[: digest.start()] + b"}"
        record = _read(GameRecord, body, path, number)
        if digest is None or digest[1].decode() != _digest(header, _json(record)):
            what = "field 'digest' does not fit: this line or its header was altered"
            raise DataError(path, what, number)
        yield SavedGame(rules, record)


def _read(kind: type[T], line: bytes, path: str | Path, number: int) -> T:
    from pydantic import ValidationError

    try:
        value: T = _adapter(kind).validate_json(line, strict=True)  # type: ignore[arg-type]
        return value
    except ValidationError as error:
        first = error.errors()[0]
    if first["type"] != "json_invalid":
        what = f"field {'.'.join(map(str, first['loc']))!r}: {first['msg']}"
    elif line.rstrip().endswith(b"}"):
        what = f"not JSON ({first['msg']})"
    else:
        what = "cut off: its writer was stopped, or the file was not copied in full"
    raise DataError(path, what, number)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open(path, "rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
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

"""Files of games: what training, evaluation and :func:`save_games` write, and `ssp replay` reads.

A file is JSON lines, plain or gzip. A header line says what games were played by; it holds for all
games that follow it, one per line, until the next header. So files can be joined by ``cat``. Each
line ends with a digest of itself and of its header, so that reading notices what was altered."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from ssp_env.disk import open_maybe_gzip, replacing
from ssp_env.errors import ConfigError, DataError, UsageError
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import LINE, GameRecord, record_game
from ssp_env.game.rewards import PROPOSER_REWARDS
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import (
    BPETokenizer,
    ByteTokenizer,
    HuggingFaceTokenizer,
    Tokenizer,
    WordTokenizer,
)
from ssp_env.version import __version__

T = TypeVar("T")

FORMAT = 6
"""Version of the format. It goes up whenever a field comes, goes or changes its meaning."""
LONGEST_LINE = 32 << 20
"""Bytes of the longest line that is read, decompressed."""
_HEADER = re.compile(rb'\s*\{\s*"format"\s*:\s*([^,}]*)')
_DIGEST = re.compile(rb',\s*"digest"\s*:\s*"([^"]*)"\s*\}\s*$')


# -- the rules of games ------------------------------------------------------------------------

_KINDS = {
    ByteTokenizer: "bytes",
    BPETokenizer: "bpe",
    WordTokenizer: "words",
    HuggingFaceTokenizer: "transformers",
}


@dataclass(frozen=True)
class SavedTokenizer:
    """A tokenizer by name, by its vocabulary, or by its directory."""

    kind: str
    """``bytes``, ``bpe``, ``words``, ``transformers``, or the class of a tokenizer of your own."""
    vocab_size: int
    sha256: str
    """Over the bytes behind every id, and the end and padding ids."""
    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """Tags that are single tokens of ``words``."""
    directory: str | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> SavedTokenizer:
        kind = _KINDS.get(type(tokenizer), dotted(tokenizer))
        kept: Any = tokenizer
        size, digest = tokenizer.vocab_size, _sha256(kept)
        if kind == "words":
            assert isinstance(tokenizer, WordTokenizer)
            return cls(kind, size, digest, tokenizer.words, tokenizer.tags)
        if isinstance(tokenizer, HuggingFaceTokenizer) and (name := tokenizer.inner.name_or_path):
            return cls(kind, size, digest, directory=str(Path(name).resolve()))
        return cls(kind, size, digest)

    def open(self, given: Tokenizer | str | Path | None = None) -> Tokenizer:
        """The tokenizer, ready for use. ``given`` is it, or its directory: needed where the
        header cannot say what it is made of, and refused if it is another one."""
        saved = f"{self.kind}, {self.vocab_size} tokens"
        saved += f", from {self.directory}" if self.directory else ""
        if given is None and self.directory and Path(self.directory, "tokenizer.json").is_file():
            given = self.directory

        if isinstance(given, str | Path):
            tokenizer: Tokenizer = HuggingFaceTokenizer.load(given)
        elif given is not None:
            tokenizer = given
        elif self.kind in ("bytes", "bpe", "words"):
            tokenizer = _packaged(self.kind, self.words, self.tags)
        else:
            fix = f"give the one that the game was played with: {saved}"
            raise ConfigError("tokenizer", None, fix)

        other = SavedTokenizer.of(tokenizer)
        if (self.kind, self.sha256) != (other.kind, other.sha256):
            fix = f"the game was played with another one: {saved}"
            raise ConfigError("tokenizer", given or other.kind, fix)
        return tokenizer


# Kept, since the games of a file share a tokenizer.
@lru_cache(maxsize=4)
def _packaged(kind: str, words: tuple[str, ...], tags: tuple[str, ...]) -> Tokenizer:
    if kind == "words":
        return WordTokenizer(words, tags)
    return ByteTokenizer() if kind == "bytes" else BPETokenizer()


@lru_cache(maxsize=4)
def _sha256(tokenizer: Any) -> str:
    # With their lengths, since pieces alone could be cut up in another way.
    lengths = json.dumps([tokenizer.eos_id, tokenizer.pad_id, *map(len, tokenizer.pieces)])
    return hashlib.sha256(lengths.encode() + b"".join(tokenizer.pieces)).hexdigest()


@dataclass(frozen=True)
class SavedParts:
    """Names of the code that took part. Its results are saved; the code is not."""

    world: str
    retriever: str
    judge: str
    verifier: str | None
    """``None``: the policy itself."""
    noise: str
    filters: dict[str, str]
    proposer_reward: str
    """A name of the config, or a function of your own."""
    solver_reward: str


@dataclass(frozen=True)
class SavedRules:
    """The header line of a file: it holds for all games that follow."""

    __pydantic_config__ = LINE

    format: int
    package: str
    tokens: bool
    """True if the games hold token ids and log-probabilities, without which none is replayed."""
    config: GameConfig
    parts: SavedParts
    prompts: dict[str, str]
    """The prompt set itself, so that it need not lie anywhere when a game is replayed."""
    frame: tuple[str, str]
    """Text of the chat template around a prompt."""
    tokenizer: SavedTokenizer
    fingerprint: str | None
    """Hash of all that a result depends on (:mod:`ssp_env.game.rules`), where it is known."""

    @classmethod
    def of(cls, rules: Rules) -> SavedRules:
        return cls(
            format=FORMAT,
            package=__version__,
            tokens=True,
            config=rules.config,
            parts=SavedParts(
                world=rules.world.name,
                retriever=dotted(rules.retriever),
                judge=dotted(rules.judge),
                verifier=None if rules.verifier is None else dotted(rules.verifier),
                noise=dotted(rules.noise),
                filters={code: dotted(rule) for code, rule in rules.filters.items()},
                proposer_reward=name_of(rules.proposer_reward),
                solver_reward=dotted(rules.solver_reward),
            ),
            prompts=dict(rules.prompts.texts),
            frame=rules.prompts.frame,
            tokenizer=SavedTokenizer.of(rules.tokenizer),
            fingerprint=None,
        )


def name_of(part: Any) -> str:
    """The name that the config has for a proposer reward; the dotted one of anything else."""
    shipped = [name for name, reward in PROPOSER_REWARDS.items() if reward is part]
    return shipped[0] if shipped else dotted(part)


def dotted(part: Any) -> str:
    """Module and name of a function, or of the class of an object."""
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{named.__qualname__}"


@dataclass(frozen=True)
class SavedGame:
    """A game that is over, and what it was played by. Make one with :func:`save_game`."""

    rules: SavedRules
    record: GameRecord


# -- writing -----------------------------------------------------------------------------------


def save_game(game: Game, rules: Rules) -> SavedGame:
    """A game that is over, whatever its outcome, with the rules that it was played by."""
    if game.outcome is Outcome.PENDING:
        raise UsageError(f"game {game.index} goes on; a game is saved when it is over")
    return SavedGame(SavedRules.of(rules), record_game(game, rules))


def save_games(
    games: Iterable[Game], rules: Rules, path: str | Path, *, tokens: bool = True
) -> None:
    """Writes games that are over to a file; see :func:`write_games`."""
    write_games([save_game(game, rules) for game in games], path, tokens=tokens)


def write_games(games: Iterable[SavedGame], path: str | Path, *, tokens: bool = True) -> None:
    """Writes saved games, one after the other, to a file; gzip if its name ends in ``.gz``.

    Without ``tokens`` (ids and log-probabilities) games are read and judged anew, not replayed."""
    with replacing(Path(path), "wb") as raw:
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
        # Most games have the very object of the one before, which is compared in no time.
        if header is None or (rules is not header and rules != header):
            header, header_json = rules, _json(rules)
            yield f"{header_json.decode()}\n"

        line = _json(game.record.without_tokens() if bare else game.record)
        # The digest goes before the closing brace, as the last field of the line.
        yield f'{line[:-1].decode()},"digest":"{_digest(header_json, line)}"}}\n'


def _digest(header: bytes, line: bytes) -> str:
    return hashlib.blake2b(header + b"\n" + line, digest_size=16).hexdigest()


_adapter: Any = cache(TypeAdapter)


def _json(value: GameRecord | SavedRules) -> bytes:
    adapter: TypeAdapter[Any] = _adapter(type(value))
    try:
        return adapter.dump_json(value, by_alias=True, warnings=False)
    except ValueError:
        # Lone surrogates are no UTF-8: they are written as tokenizers read them, as question marks.
        # NumPy's numbers become Python's.
        plain: Any = adapter.dump_python(value, by_alias=True, warnings=False)
        text = json.dumps(plain, ensure_ascii=False, default=np.generic.item)
        plain = adapter.validate_json(text.encode("utf-8", "replace"))
        return adapter.dump_json(plain, by_alias=True)


# -- reading -----------------------------------------------------------------------------------


def read_games(path: str | Path) -> Iterator[SavedGame]:
    """Reads games one after the other, plain or gzip; ``DataError`` for a line that is wrong or
    was altered."""
    with open_maybe_gzip(path) as file:
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
            header = line.strip()
            continue
        if rules is None:
            what = "field 'format' is missing: a file of games begins with a header line"
            raise DataError(path, what, number)

        # The digest is of the line without it, and of the header that holds for it.
        digest = _DIGEST.search(line)
        body = line if digest is None else line[: digest.start()] + b"}"
        record = _read(GameRecord, body, path, number)
        if digest is None or digest[1] != _digest(header, body).encode():
            what = "field 'digest' does not fit: this line or its header was altered"
            raise DataError(path, what, number)
        yield SavedGame(rules, record)


def _read(kind: type[T], line: bytes, path: str | Path, number: int) -> T:
    try:
        value: T = _adapter(kind).validate_json(line, strict=True)
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

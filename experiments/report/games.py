"""Games for the page: a light row of each for the list, and all of a step's games as one chunk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssp_env.errors import DataError, SSPError
from ssp_env.game.record import GameRecord
from ssp_env.replay import SavedGame, SavedRules, read_games
from ssp_env.settings import plain
from ssp_env.tokenizers.base import Tokenizer

FIRST_WORDS = 110
"""Characters of a question in the list."""
ROW = (
    "slot",
    "outcome",
    "reason",
    "origin",
    "hops",
    "proposer_reward",
    "solve_rate",
    "right",
    "judged",
    "answer",
    "question",
)
"""The columns of the list. ``right`` of the ``judged`` attempts were right."""
_PACKED = ("ids", "logprobs")


@dataclass(frozen=True)
class StepFile:
    """The file with the games of one step."""

    step: int
    path: Path

    @property
    def version(self) -> str:
        """Changes when the file does, as after a resume that played the step again.

        Raises:
            DataError: the file is gone.
        """
        try:
            found = self.path.stat()
        except OSError as error:
            raise DataError(self.path, f"cannot be read: {error.strerror or error}") from error
        return f"{found.st_mtime_ns:x}-{found.st_size:x}"


def step_files(folder: Path) -> list[StepFile]:
    """The files of games in a folder, step by step; none if there is no such folder."""
    if not folder.is_dir():
        return []
    found = (
        (re.fullmatch(r"step_(\d+)\.jsonl(\.gz)?", path.name), path) for path in folder.iterdir()
    )
    files = [StepFile(int(match[1]), path) for match, path in found if match]
    return sorted(files, key=lambda file: file.step)


def rows(games: Iterable[GameRecord]) -> list[list[Any]]:
    """A row of the list for each game, with the columns of :data:`ROW`."""
    return [_row(game) for game in games]


def read_step(file: StepFile) -> list[SavedGame]:
    """All games of a step.

    Raises:
        DataError: a field that is missing or wrong, or another version; names file and line.
    """
    return list(read_games(file.path))


def chunk(saved: Sequence[SavedGame], tokens: bool) -> dict[str, Any]:
    """The games of a step as a page needs them.

    Args:
        saved: the games.
        tokens: also token ids, log-probabilities and the text of each token.

    Returns:
        ``rules``, the headers that the games name by their place; ``games``; ``pieces``, the text
        of each token id; and ``untold``, why there are no such texts.
    """
    headers: dict[int, int] = {}
    rules: list[dict[str, Any]] = []
    games = []

    for game in saved:
        place = headers.setdefault(id(game.rules), len(rules))
        if place == len(rules):
            rules.append(_rules(game.rules))
        row = game.to_data() if tokens else _without_tokens(game.to_data())
        games.append({**row, "slot": game.record.slot, "rules": place})

    pieces, untold = _pieces(saved) if tokens else ({}, None)
    return {"rules": rules, "games": games, "pieces": pieces, "untold": untold}


def holds(game: SavedGame, text: str) -> bool:
    """True if a game's texts hold this one, in whatever case: written, found or said."""
    return text.casefold() in "\n".join(_texts(_without_tokens(game.to_data()))).casefold()


# -- within ------------------------------------------------------------------------------------


def _row(game: GameRecord) -> list[Any]:
    verdicts = [attempt.verdict for attempt in game.attempts if attempt.verdict is not None]
    return [
        game.slot,
        game.outcome.value,
        game.reason,
        game.origin,
        game.hops,
        game.proposer_reward,
        game.solve_rate,
        sum(verdict.correct for verdict in verdicts),
        sum(attempt.outage is None for attempt in game.attempts),
        game.answer,
        (game.question or "")[:FIRST_WORDS],
    ]


def _rules(rules: SavedRules) -> dict[str, Any]:
    header = plain(rules.config)
    kept = ("tags", "attempts", "proposer_reward", "invalid_reward", "max_searches", "top_k")
    return {
        **{name: header[name] for name in kept},
        "parts": plain(rules.parts),
        "package": rules.package,
        "tokens": rules.tokens,
    }


def _without_tokens(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_tokens(item) for name, item in value.items() if name not in _PACKED}
    if isinstance(value, list):
        return [_without_tokens(item) for item in value]
    return value


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _pieces(saved: Sequence[SavedGame]) -> tuple[dict[int, str], str | None]:
    """The text of every token id of the games, or why it is not known."""
    headers = {id(game.rules): game.rules for game in saved if game.rules.tokens}
    used: set[int] = set()
    for game in saved:
        if game.rules.tokens:
            used.update(*(play.ids for play in game.record.trajectories))

    if not used:
        return {}, "the run recorded no tokens (record_tokens: false)"
    if len({rules.tokenizer for rules in headers.values()}) > 1:
        return {}, "the games of this step have several tokenizers"
    rules = next(iter(headers.values()))
    tokenizer = _opened(rules)
    if isinstance(tokenizer, str):
        return {}, tokenizer
    return {i: tokenizer.pieces[i].decode("utf-8", "replace") for i in sorted(used)}, None


def _opened(rules: SavedRules) -> Tokenizer | str:
    try:
        return rules.tokenizer.open()
    except SSPError as error:
        return str(error)

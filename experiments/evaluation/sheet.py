"""The file of an evaluation, written chunk by chunk, so that one that was stopped goes on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiments.evaluation.answers import CHUNK
from experiments.evaluation.results import outage_of
from ssp_env.disk import unwritten, write_atomically
from ssp_env.errors import RunError
from ssp_env.game.record import GameRecord
from ssp_env.replay import read_games
from ssp_env.replay.files import SavedGame, game_lines
from ssp_env.replay.header import SavedRules
from ssp_env.types import Question

_HEADER = '{"format":'
"""How the header line of games begins."""


class Sheet:
    """``FILE.1f3a90c2.part`` while questions are being answered, ``FILE`` when all are.

    Every chunk begins with the header of the games (``ssp replay`` reads several), so that a chunk
    that was cut short can be told and dropped.
    """

    def __init__(self, path: Path, header: SavedRules, tokens: bool, made_by: Sequence[object]):
        """
        Args:
            path: the finished file.
            header: what the games are played by, with the fingerprint.
            tokens: whether token ids are written.
            made_by: what decides the answers besides: weights, attempts, limits, temperature, seed.
                Another evaluation has another unfinished file.
        """
        name = hashlib.sha256(repr((header.fingerprint, *made_by)).encode()).hexdigest()[:8]
        self.path, self.part = path, path.with_name(f"{path.name}.{name}.part")
        self._header, self._tokens = header, tokens

    def begun(self, questions: Sequence[Question]) -> list[GameRecord]:
        """The games of an evaluation that was stopped; what comes after its last chunk is dropped.

        So is all from the first chunk on that an outage has taken questions from: they are asked
        again.

        Args:
            questions: what is to be asked.

        Raises:
            RunError: they are of another evaluation.
            DataError: a damaged line.
        """
        if not self.part.exists():
            return []

        lines = _whole_chunks(self.part.read_text(encoding="utf-8").splitlines(True))
        write_atomically(self.part, "".join(lines))
        records = [saved.record for saved in read_games(self.part)] if lines else []

        # Answered again from the first chunk that an outage has hit.
        void = next((i for i, record in enumerate(records) if outage_of(record)), len(records))
        chunks = void // CHUNK
        write_atomically(self.part, "".join(lines[: chunks * (CHUNK + 1)]))
        records = records[: chunks * CHUNK]

        asked = [question.text for question in questions[: len(records)]]
        if [record.question for record in records] != asked:
            fix = "remove it, or choose another --out"
            raise RunError(f"{self.part} is about other questions; {fix}")
        return records

    @contextmanager
    def open(self) -> Iterator[Sheet]:
        """Makes sure that it can be written to, and gives it its name at the end.

        Raises:
            RunError: it cannot be written.
        """
        try:
            with open(self.part, "a", encoding="utf-8"):
                pass
            yield self
            self.part.replace(self.path)
        except OSError as error:
            raise unwritten(self.path, error) from error

    def write(self, records: Iterable[GameRecord]) -> None:
        """Adds a chunk, and returns when it is on disk.

        Raises:
            OSError: it cannot be written.
        """
        games = (SavedGame(self._header, record) for record in records)
        with open(self.part, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(game_lines(games, tokens=self._tokens))
            file.flush()
            os.fsync(file.fileno())


def _whole_chunks(lines: Sequence[str]) -> list[str]:
    """The lines of all chunks that are complete."""
    kept: list[str] = []
    chunk: list[str] = []
    for line in lines:
        if not line.endswith("\n"):
            break
        if line.startswith(_HEADER):
            chunk = []
        chunk.append(line)
        if len(chunk) == CHUNK + 1:
            kept += chunk
    return kept

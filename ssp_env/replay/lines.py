"""A game as one line of a file, and back.

A line is a :class:`GameLine`: the record of the game, in which every passage, prompt and
observation is written once and then named by its place in a table, and token ids and
log-probabilities are packed (base64 of little-endian numbers)."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Any

import numpy as np

from ssp_env.errors import UsageError
from ssp_env.game.noise import NoiseDocument
from ssp_env.game.outcome import Ending, Outage, Outcome
from ssp_env.game.record import (
    ENVIRONMENT,
    POLICY,
    PROMPT,
    GameRecord,
    GameResult,
    SegmentRecord,
    TrajectoryRecord,
)
from ssp_env.game.trajectory import SearchRecord
from ssp_env.judge.base import Verdict
from ssp_env.replay.codec import Reader
from ssp_env.replay.header import SavedRules
from ssp_env.types import Document, Role

SMALL_VOCABULARY = 1 << 16
"""Ids of vocabularies up to this size are packed as 16-bit numbers, those of others as 32-bit."""

_ORDER = (Role.PROPOSER, Role.VERIFIER, Role.CLOSED_BOOK, Role.SOLVER)


@dataclass(frozen=True)
class GivenLine:
    """A prompt or an observation, in the table that trajectories point into."""

    text: str
    tokens: int
    ids: str | None
    """Packed."""


@dataclass(frozen=True)
class WrittenLine:
    """What the policy wrote between two of those."""

    text: str
    tokens: int
    ids: str | None
    """Packed."""
    logprobs: str | None
    """Packed: as float32 where that loses nothing, else as float64."""


@dataclass(frozen=True)
class DocumentLine:
    """A passage, in the table that searches and noise point into."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class SearchLine:
    """A search call."""

    query: str
    found: tuple[int, ...]
    """Places in the table of passages, best first."""
    scores: tuple[float | None, ...] | None
    """Of each of them; ``None`` where the retriever gave none."""


@dataclass(frozen=True)
class NoiseLine:
    """A noise document."""

    document: int
    """Its place in the table of passages."""
    score: float | None
    origin: str


@dataclass(frozen=True)
class TrajectoryLine:
    """A trajectory: ``given[0]``, ``wrote[0]``, ``given[1]``, ``wrote[1]`` and so on."""

    role: Role
    given: tuple[int, ...]
    """Places in the table of prompts and observations; the first is the prompt."""
    wrote: tuple[WrittenLine, ...]
    searches: tuple[SearchLine, ...]
    ending: Ending | None
    result: str | None
    verdict: Verdict | None
    reward: float | None
    outage: Outage | None


@dataclass(frozen=True, kw_only=True)
class GameLine(GameResult):
    """All that is written of a game."""

    noise: tuple[NoiseLine, ...]
    trajectories: tuple[TrajectoryLine, ...]
    given: tuple[GivenLine, ...]
    """Every prompt and observation once."""
    documents: tuple[DocumentLine, ...]
    """Every passage that was found or drawn as noise, once."""


_SHARED = [f.name for f in fields(GameResult)]


# -- writing -----------------------------------------------------------------------------------


def line_of(record: GameRecord, rules: SavedRules) -> GameLine:
    """The line of a game.

    Raises:
        UsageError: a document whose id is not a string, which could not be read back.
    """
    writer = _Writer(rules)
    plays = tuple(writer.trajectory(t) for t in record.trajectories)
    noise = tuple(writer.noise(item) for item in record.noise)

    return GameLine(
        **{name: getattr(record, name) for name in _SHARED},
        noise=noise,
        trajectories=plays,
        given=tuple(writer.given),
        documents=tuple(DocumentLine(d.id, d.title, d.text) for d in writer.documents),
    )


class _Writer:
    """Collects the two tables of a line."""

    def __init__(self, rules: SavedRules) -> None:
        self._tokens, self._kind = rules.tokens, "H" if _ids_dtype(rules) == "<u2" else "I"
        self.given: dict[GivenLine, int] = {}
        self.documents: dict[Document, int] = {}

    def trajectory(self, trajectory: TrajectoryRecord) -> TrajectoryLine:
        segments = trajectory.segments
        given = [GivenLine(s.text, s.tokens, self._packed(s)) for s in segments[::2]]
        return TrajectoryLine(
            role=trajectory.role,
            given=tuple(self.given.setdefault(line, len(self.given)) for line in given),
            wrote=tuple(self._wrote(segment) for segment in segments[1::2]),
            searches=tuple(self._search(search) for search in trajectory.searches),
            ending=trajectory.ending,
            result=trajectory.result,
            verdict=trajectory.verdict,
            reward=trajectory.reward,
            outage=trajectory.outage,
        )

    def noise(self, item: NoiseDocument) -> NoiseLine:
        return NoiseLine(self._place(item.document), item.document.score, item.origin)

    def _search(self, search: SearchRecord) -> SearchLine:
        scores = tuple(document.score for document in search.documents)
        known = any(score is not None for score in scores)
        found = tuple(self._place(document) for document in search.documents)
        return SearchLine(search.query, found, scores if known else None)

    def _place(self, document: Document) -> int:
        if not isinstance(document.id, str):
            what = f"a document whose id is {document.id!r}, which is not a string"
            raise UsageError(f"the retriever gave {what}")
        return self.documents.setdefault(document, len(self.documents))

    def _wrote(self, segment: SegmentRecord) -> WrittenLine:
        logprobs = None
        if self._tokens and segment.logprobs is not None:
            exact = list(segment.logprobs)
            short = array("f", exact)
            logprobs = _pack(short if short.tolist() == exact else array("d", exact))
        return WrittenLine(segment.text, segment.tokens, self._packed(segment), logprobs)

    def _packed(self, segment: SegmentRecord) -> str | None:
        if not self._tokens or segment.ids is None:
            return None
        return _pack(array(self._kind, segment.ids))


def _ids_dtype(rules: SavedRules) -> str:
    return "<u2" if rules.tokenizer.vocab_size <= SMALL_VOCABULARY else "<u4"


def _pack(numbers: array[Any]) -> str:
    # array, not NumPy: most segments are a few tokens, for which NumPy takes three times as long.
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode("ascii")


# -- reading -----------------------------------------------------------------------------------


def record_of(row: dict[str, Any], rules: SavedRules, reader: Reader) -> GameRecord:
    """The game of a line.

    Raises:
        DataError: a field that is missing, unknown or wrong; names file, line and field.
    """
    line = reader.read(GameLine, row)
    if min(line.start.slot, line.first_slot, *line.start.seed, 0) < 0:
        place = f"{list(line.start.seed)}, {line.start.slot}"
        raise reader.wrong("start", f"has a negative seed or slot: {place}")

    roles = [t.role for t in line.trajectories]
    in_order = roles == sorted(roles, key=_ORDER.index)
    if not in_order or any(roles.count(role) > 1 for role in _ORDER[:-1]):
        what = f"are not in the order of play, each role but the solver once: {', '.join(roles)}"
        raise reader.wrong("trajectories", what)
    if line.outcome is Outcome.PENDING or any(t.ending is None for t in line.trajectories):
        raise reader.wrong("outcome", "is that of a game that goes on: only others are saved")
    if line.outcome is Outcome.VALID and Role.SOLVER not in roles:
        raise reader.wrong("trajectories", "hold no attempt to solve, in a valid game")

    tables = _Tables(line, rules, reader)
    return GameRecord(
        **{name: getattr(line, name) for name in _SHARED},
        noise=tuple(tables.noise()),
        trajectories=tuple(tables.trajectories()),
    )


class _Tables:
    """Puts back what a line's trajectories name by its place."""

    def __init__(self, line: GameLine, rules: SavedRules, reader: Reader) -> None:
        self._line, self._rules, self._reader = line, rules, reader
        self._ids = [
            self._ids_of(entry.ids, entry.tokens, f"given[{i}]")
            for i, entry in enumerate(line.given)
        ]

    def noise(self) -> Iterator[NoiseDocument]:
        for i, item in enumerate(self._line.noise):
            document = self._document(item.document, item.score, f"noise[{i}].document")
            yield NoiseDocument(document, item.origin)

    def trajectories(self) -> Iterator[TrajectoryRecord]:
        for i, t in enumerate(self._line.trajectories):
            field = f"trajectories[{i}]"
            searches = (
                self._search(search, f"{field}.searches[{j}]")
                for j, search in enumerate(t.searches)
            )
            yield TrajectoryRecord(
                role=t.role,
                segments=tuple(self._segments(t, field)),
                searches=tuple(searches),
                ending=t.ending,
                result=t.result,
                verdict=t.verdict,
                reward=t.reward,
                outage=t.outage,
            )

    def _segments(self, trajectory: TrajectoryLine, field: str) -> Iterator[SegmentRecord]:
        given, wrote = trajectory.given, trajectory.wrote
        if not 0 <= len(given) - len(wrote) <= 1 or not given:
            what = f"has {len(given)} entries for {len(wrote)} in 'wrote', which take turns"
            raise self._reader.wrong(f"{field}.given", what)

        for i, (place, own) in enumerate(zip_longest(given, wrote)):
            entry = self._entry(self._line.given, place, f"{field}.given[{i}]")
            by = ENVIRONMENT if i else PROMPT
            yield SegmentRecord(by, entry.text, entry.tokens, self._ids[place])
            if own is not None:
                yield self._written(own, f"{field}.wrote[{i}]")

    def _written(self, own: WrittenLine, field: str) -> SegmentRecord:
        ids = self._ids_of(own.ids, own.tokens, field)
        logprobs = None

        if self._rules.tokens:
            data = self._bytes(own.logprobs, f"{field}.logprobs")
            kinds = {4 * own.tokens: "<f4", 8 * own.tokens: "<f8"}
            if len(data) not in kinds:
                what = f"holds {len(data)} bytes for {own.tokens} tokens, not 4 or 8 for each"
                raise self._reader.wrong(f"{field}.logprobs", what)
            logprobs = tuple(np.frombuffer(data, kinds[len(data)]).astype(float).tolist())
        elif own.logprobs is not None:
            raise self._reader.wrong(f"{field}.logprobs", "is there, though the header denies it")

        return SegmentRecord(POLICY, own.text, own.tokens, ids, logprobs)

    def _search(self, search: SearchLine, field: str) -> SearchRecord:
        scores: Sequence[float | None] = search.scores or [None] * len(search.found)
        if len(scores) != len(search.found):
            what = f"has {len(scores)} entries for {len(search.found)} documents"
            raise self._reader.wrong(f"{field}.scores", what)

        pairs: Iterable[tuple[int, float | None]] = zip(search.found, scores, strict=True)
        documents = (self._document(place, s, f"{field}.found") for place, s in pairs)
        return SearchRecord(search.query, tuple(documents))

    def _document(self, place: int, score: float | None, field: str) -> Document:
        entry = self._entry(self._line.documents, place, field)
        return Document(entry.id, entry.title, entry.text, score)

    def _entry(self, table: Sequence[Any], place: int, field: str) -> Any:
        if not 0 <= place < len(table):
            raise self._reader.wrong(field, f"points to entry {place} of a table of {len(table)}")
        return table[place]

    def _ids_of(self, packed: str | None, tokens: int, field: str) -> tuple[int, ...] | None:
        field = f"{field}.ids"
        if not self._rules.tokens:
            if packed is not None:
                raise self._reader.wrong(field, "is there, though the header denies it")
            return None

        data, kind = self._bytes(packed, field), np.dtype(_ids_dtype(self._rules))
        if tokens < 0 or len(data) != tokens * kind.itemsize:
            what = f"holds {len(data)} bytes for {tokens} tokens, not {kind.itemsize} for each"
            raise self._reader.wrong(field, what)

        ids: list[int] = np.frombuffer(data, kind).tolist()
        size = self._rules.tokenizer.vocab_size
        if ids and max(ids) >= size:
            i = next(i for i, token in enumerate(ids) if token >= size)
            what = f"holds {ids[i]} at place {i}, outside the vocabulary of {size}"
            raise self._reader.wrong(field, what)
        return tuple(ids)

    def _bytes(self, packed: str | None, field: str) -> bytes:
        if packed is None:
            raise self._reader.wrong(field, "is missing, though the header promises it")
        try:
            return base64.b64decode(packed, validate=True)
        except ValueError as error:
            raise self._reader.wrong(field, f"is not base64: {error}") from None

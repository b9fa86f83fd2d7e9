"""The document that a game is saved as: all that is needed to play it again, and what came of
it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ssp_env.errors import DataError, UsageError
from ssp_env.game.config import GameConfig
from ssp_env.game.filters import FILTERS, Filter
from ssp_env.game.game import Attempt, Game, Start
from ssp_env.game.legal import Grammar
from ssp_env.game.noise import NoiseDocument
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.rewards import PROPOSER_REWARDS, ProposerReward, SolverReward, right_answer
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import SearchRecord, Trajectory
from ssp_env.judge.base import Judge, Verdict
from ssp_env.replay.codec import Reader, plain
from ssp_env.replay.tokenizer import SavedTokenizer
from ssp_env.search.corpus import read_jsonl
from ssp_env.types import Role
from ssp_env.version import __version__

FORMAT = 1
"""Version of the document. It goes up whenever a field comes, goes or changes its meaning."""


@dataclass(frozen=True)
class SavedPrompts:
    """The prompt set itself, so that it need not lie anywhere when the game is replayed."""

    texts: dict[str, str]
    frame: tuple[str, str]


@dataclass(frozen=True)
class SavedParts:
    """Names of the code that took part. What it said is saved; the code is not."""

    world: str
    grammar: bool
    """Whether the world's grammar takes part in masks of legal moves."""
    retriever: str
    judge: str
    verifier: str | None
    """``None``: the policy itself."""
    noise: str
    filters: dict[str, str]
    """Function by reason code, in order."""
    proposer_reward: str
    """A name of the config, or a function of the user's own."""
    solver_reward: str

    @classmethod
    def of(cls, rules: Rules) -> SavedParts:
        """The parts of some rules."""
        return cls(
            world=rules.world.name,
            grammar=isinstance(rules.world, Grammar),
            retriever=_dotted(rules.retriever),
            verifier=None if rules.verifier is None else _dotted(rules.verifier),
            noise=_dotted(rules.noise),
            filters={code: _dotted(rule) for code, rule in rules.filters.items()},
            **cls.scorers(rules.judge, rules.proposer_reward, rules.solver_reward),
        )

    @staticmethod
    def scorers(
        judge: Judge | None,
        proposer_reward: ProposerReward | None,
        solver_reward: SolverReward | None,
    ) -> dict[str, Any]:
        """The names of those that are given, by field."""
        given = {"judge": judge, "proposer_reward": proposer_reward, "solver_reward": solver_reward}
        names: dict[str, Any] = {
            field: _dotted(part) for field, part in given.items() if part is not None
        }
        for name, shipped in PROPOSER_REWARDS.items():
            if shipped is proposer_reward:
                names["proposer_reward"] = name
        return names

    def shipped_filter(self, code: str) -> Filter | None:
        """The package's own filter of this name; ``None`` if it is code of the user's own."""
        shipped = FILTERS.get(code)
        return shipped if shipped is not None and _dotted(shipped) == self.filters[code] else None

    @property
    def pays_solver_itself(self) -> bool:
        """Whether the solver was paid by a function of the user's own."""
        return self.solver_reward != _dotted(right_answer)

    @property
    def pays_proposer_itself(self) -> bool:
        """Whether the proposer was paid by a function of the user's own."""
        return self.proposer_reward not in PROPOSER_REWARDS


@dataclass(frozen=True)
class SavedTrajectory:
    """One trajectory: its tokens, and what the game made of them."""

    role: Role
    ids: tuple[int, ...]
    runs: tuple[int, ...]
    """The loss mask as lengths of runs: the prompt, then by turns the policy's tokens and the
    environment's."""
    logprobs: tuple[float, ...]
    """Of the policy's tokens, in order."""
    searches: tuple[SearchRecord, ...]
    ending: Ending
    result: str | None

    @classmethod
    def of(cls, trajectory: Trajectory) -> SavedTrajectory:
        """A trajectory that has ended.

        Raises:
            UsageError: a document that could not be read back.
        """
        assert trajectory.ending is not None, "all trajectories of a game that is over have ended"
        for document in (
            document for search in trajectory.searches for document in search.documents
        ):
            if not isinstance(document.id, str):
                raise UsageError(
                    f"the retriever gave a document whose id is {document.id!r}, which is no string"
                )
        mask = trajectory.mask
        runs = [len(list(run)) for _, run in groupby(mask)]
        return cls(
            role=trajectory.role,
            ids=tuple(int(token) for token in trajectory.ids),
            runs=(0, *runs) if mask and mask[0] else tuple(runs),
            logprobs=tuple(p for p, mine in zip(trajectory.logprobs, mask, strict=True) if mine),
            searches=tuple(trajectory.searches),
            ending=trajectory.ending,
            result=trajectory.result,
        )

    @property
    def mask(self) -> bytes:
        """One byte a token: 1 on those that the policy wrote."""
        return b"".join(bytes([i % 2]) * run for i, run in enumerate(self.runs))

    @property
    def own(self) -> list[int]:
        """The policy's tokens, in order."""
        return [token for token, mine in zip(self.ids, self.mask, strict=True) if mine]


@dataclass(frozen=True)
class SavedAttempt:
    """One solver trajectory, how it was judged and what it was paid."""

    trajectory: SavedTrajectory
    verdict: Verdict | None
    reward: float | None


@dataclass(frozen=True)
class SavedGame:
    """A game that is over, as one JSON document. Make one with :func:`save_game`."""

    format: int
    package: str
    """Version of the package that saved it."""
    start: Start
    outcome: Outcome
    reason: str | None
    question: str | None
    solve_rate: float | None
    proposer_reward: float | None
    solver_reward: float | None
    verification: Verdict | None
    closed_book_verdict: Verdict | None
    proposer: SavedTrajectory | None
    verifier: SavedTrajectory | None
    closed_book: SavedTrajectory | None
    attempts: tuple[SavedAttempt, ...]
    evidence: tuple[str, ...]
    """Ids of what the proposer retrieved, each passage once."""
    noise: tuple[NoiseDocument, ...]
    materials: tuple[str, ...] | None
    """Ids of what verification read, in its order; ``None`` if nothing was verified."""
    config: GameConfig
    parts: SavedParts
    prompts: SavedPrompts
    tokenizer: SavedTokenizer

    def to_json(self) -> str:
        """The document, on one line, in ASCII."""
        return json.dumps(plain(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str, path: str | Path = "saved game") -> SavedGame:
        """Reads a document.

        Args:
            text: what :meth:`to_json` gave.
            path: what errors call it.

        Raises:
            DataError: not JSON, a field that is missing or wrong, or a format that this version
                does not know.
        """
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(
                path, f"not JSON ({error.msg} at column {error.colno})", error.lineno
            ) from None
        return _of_row(row, Reader(str(path)))

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
        games = list(read_games(path))
        if len(games) != 1:
            raise DataError(path, f"holds {len(games)} games, not one; read_games() reads them all")
        return games[0]

    def trajectories(self) -> dict[str, SavedTrajectory]:
        """All of them by name, in the order of play: ``proposer``, ``verifier``, ``closed_book``,
        ``solver 1`` ..."""
        first = {
            "proposer": self.proposer,
            "verifier": self.verifier,
            "closed_book": self.closed_book,
        }
        attempts = {
            f"solver {i}": attempt.trajectory for i, attempt in enumerate(self.attempts, start=1)
        }
        return {name: t for name, t in first.items() if t is not None} | attempts


def save_game(game: Game, rules: Rules) -> SavedGame:
    """A game that is over, as a document.

    Args:
        game: any outcome but pending, from any round.
        rules: what it was played by.

    Raises:
        UsageError: the game goes on.
    """
    return _save([game], rules)[0]


def save_games(games: Iterable[Game], rules: Rules, path: str | Path) -> None:
    """Writes games to a file, one JSON document a line; gzip if the name ends in ``.gz``.

    Raises:
        UsageError: a game that goes on. Nothing is written then.
        DataError: the file cannot be written.
    """
    write_games(_save(games, rules), path)


def write_games(games: Iterable[SavedGame], path: str | Path) -> None:
    """Writes saved games to a file, one a line; gzip if the name ends in ``.gz``.

    Raises:
        DataError: the file cannot be written.
    """
    data = "".join(f"{game.to_json()}\n" for game in games).encode("ascii")
    if str(path).endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise DataError(path, f"cannot be written ({error.strerror or error})") from error


def read_games(path: str | Path) -> Iterator[SavedGame]:
    """Reads games one after the other, plain or gzip.

    Raises:
        DataError: a file that cannot be read, or a field that is missing or wrong; names file, line
            and field.
    """
    for line, row in read_jsonl(path):
        yield _of_row(row, Reader(str(path), line))


def trajectories_of(game: Game) -> dict[str, Trajectory]:
    """The trajectories of a game by the names of :meth:`SavedGame.trajectories`."""
    first = {"proposer": game.proposer, "verifier": game.verifier, "closed_book": game.closed_book}
    attempts = {
        f"solver {i}": attempt.trajectory for i, attempt in enumerate(game.attempts, start=1)
    }
    return {name: t for name, t in first.items() if t is not None} | attempts


def _save(games: Iterable[Game], rules: Rules) -> list[SavedGame]:
    parts, tokenizer = SavedParts.of(rules), SavedTokenizer.of(rules.tokenizer)
    prompts = SavedPrompts(dict(rules.prompts.texts), rules.prompts.frame)
    return [
        SavedGame(
            format=FORMAT,
            package=__version__,
            **results_of(game),
            config=rules.config,
            parts=parts,
            prompts=prompts,
            tokenizer=tokenizer,
        )
        for game in games
    ]


def results_of(game: Game) -> dict[str, Any]:
    """The fields of a saved game that say how the game began and what came of it.

    Raises:
        UsageError: the game goes on.
    """
    if game.outcome is Outcome.PENDING:
        raise UsageError(f"game {game.slot} goes on; a game is saved when it is over")
    return {
        "start": Start.of(game),
        "outcome": game.outcome,
        "reason": game.reason,
        "question": game.question,
        "solve_rate": game.solve_rate,
        "proposer_reward": game.proposer_reward,
        "solver_reward": game.solver_reward,
        "verification": game.verification,
        "closed_book_verdict": game.closed_book_verdict,
        "proposer": _trajectory(game.proposer),
        "verifier": _trajectory(game.verifier),
        "closed_book": _trajectory(game.closed_book),
        "attempts": tuple(_attempt(attempt) for attempt in game.attempts),
        "evidence": tuple(document.id for document in game.evidence),
        "noise": game.noise,
        "materials": _materials(game),
    }


def _trajectory(trajectory: Trajectory | None) -> SavedTrajectory | None:
    return None if trajectory is None else SavedTrajectory.of(trajectory)


def _attempt(attempt: Attempt) -> SavedAttempt:
    return SavedAttempt(SavedTrajectory.of(attempt.trajectory), attempt.verdict, attempt.reward)


def _materials(game: Game) -> tuple[str, ...] | None:
    if game.verifier is not None:
        return tuple(document.id for document in game.verifier.documents)
    if game.verification is None:
        return None
    # The game's own stream was used up when it was played; one that begins alike draws the same
    # order.
    again = Game(
        game.seed,
        game.slot,
        game.group,
        game.truth,
        game.origin,
        evidence=game.evidence,
        noise=game.noise,
    )
    return tuple(document.id for document in again.materials())


def _of_row(row: Any, reader: Reader) -> SavedGame:
    if not isinstance(row, dict) or "format" not in row:
        raise reader.wrong("format", "is missing: this is no saved game")
    version = row["format"]
    if type(version) is not int or version < 1:
        raise reader.wrong("format", f"is {version!r}, not a version number")
    if version > FORMAT:
        raise reader.wrong(
            "format", f"is {version}, but this version of ssp-env reads up to {FORMAT}: upgrade it"
        )
    game = reader.read(SavedGame, row)
    if min(game.start.slot, *game.start.seed, 0) < 0:
        raise reader.wrong(
            "start", f"has a negative seed or slot: {list(game.start.seed)}, {game.start.slot}"
        )
    if game.outcome is Outcome.VALID and not game.attempts:
        raise reader.wrong("attempts", "is empty in a valid game")
    if (fault := game.tokenizer.fault()) is not None:
        raise reader.wrong(f"tokenizer.{fault[0]}", fault[1])
    alone = [
        name for name in ("proposer", "verifier", "closed_book") if getattr(game, name) is not None
    ]
    fields = [*alone, *(f"attempts[{i}].trajectory" for i in range(len(game.attempts)))]
    for field, trajectory in zip(fields, game.trajectories().values(), strict=True):
        _check(reader, field, trajectory, game.tokenizer.vocab_size)
    return game


def _check(reader: Reader, field: str, trajectory: SavedTrajectory, vocab_size: int) -> None:
    ids, runs = trajectory.ids, trajectory.runs
    outside = next((i for i, token in enumerate(ids) if not 0 <= token < vocab_size), None)
    if outside is not None:
        raise reader.wrong(
            f"{field}.ids[{outside}]", f"is {ids[outside]}, outside the vocabulary of {vocab_size}"
        )
    if sum(runs) != len(ids) or any(run < (i > 0) for i, run in enumerate(runs)):
        raise reader.wrong(
            f"{field}.runs", f"does not divide {len(ids)} tokens into runs: {_shown(runs)}"
        )
    if len(trajectory.logprobs) != sum(runs[1::2]):
        what = f"has {len(trajectory.logprobs)} entries for {sum(runs[1::2])} tokens of the policy"
        raise reader.wrong(f"{field}.logprobs", what)


def _shown(runs: Sequence[int]) -> str:
    return ", ".join(map(str, runs[:10])) + (", ..." if len(runs) > 10 else "")


def _dotted(part: Any) -> str:
    """Where a function, or the class of an object, is defined."""
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{named.__qualname__}"

"""Plays a saved game again, offline, and says where it comes out another way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, ServiceError, UsageError, describe
from ssp_env.game.filters import Filter, Proposal
from ssp_env.game.game import Attempt, Game
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.prompts import Prompts
from ssp_env.game.record import GameRecord, TrajectoryRecord, names, record_game
from ssp_env.game.referee import Referee, Verdicts
from ssp_env.game.rewards import PROPOSER_REWARDS, ProposerReward, SolverReward, right_answer
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Limits, Trajectory, Waiting
from ssp_env.game.verification import NoiseDocument
from ssp_env.judge.base import Verdict
from ssp_env.replay.files import SavedGame
from ssp_env.search.base import Results
from ssp_env.search.corpus import Corpus
from ssp_env.tokenizers import Tokenizer
from ssp_env.types import Analysis, Document, GroundTruth, Question, Role, World

NO_TOKENS = (
    "the game was written without token ids (tokens=False; in a run: record_tokens: false); it can "
    "be printed and rescored, but not replayed"
)
_LONGEST = 80


@dataclass(frozen=True)
class OwnCode:
    """Functions of the user's own, which no file holds.

    The results of a function that is not given are played back."""

    filters: Mapping[str, Filter] | None = None
    """Rules for a question, by reason code."""
    proposer_reward: ProposerReward | None = None
    solver_reward: SolverReward | None = None


@dataclass(frozen=True)
class Difference:
    """One thing that came out another way than it was saved."""

    where: str
    """``game``, or a trajectory: ``proposer``, ``verifier``, ``closed_book``, ``solver 1`` ..."""
    field: str
    """The field that differs, such as ``segments[2].ids[14]`` or ``verdict.correct``."""
    saved: Any
    replayed: Any

    def __str__(self) -> str:
        saved, replayed = (
            text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
            for text in map(repr, (self.saved, self.replayed))
        )
        return f"{self.where}: {self.field}: saved {saved}, replayed {replayed}"


@dataclass(frozen=True)
class Replay:
    """Result of playing a saved game again."""

    game: Game
    """The game as it was replayed."""
    rules: Rules
    """Rules that it was replayed by; search, judge, verifier and noise are not in the file."""
    differences: tuple[Difference, ...]
    as_saved: tuple[str, ...] = ()
    """Code of the user's own that was not given, so that its results were played back and not
    checked."""

    @property
    def identical(self) -> bool:
        """True if everything came out as it was saved."""
        return not self.differences


def replay(
    saved: SavedGame,
    tokenizer: Tokenizer | str | Path | None = None,
    own: OwnCode | None = None,
    world: World | None = None,
) -> Replay:
    """Plays the policy's saved tokens again, without search or judge, and compares everything.

    Prompts and observations are made anew from texts and documents; filters, budgets and rewards
    are computed anew. Results of code of the user's own (filters, rewards, noise) are played back,
    unless that code is given.

    Args:
        saved: the game.
        tokenizer: the one it was played with, or its directory; needed if the file cannot say what
            it is made of.
        own: functions of the user's own.
        world: the world that it was played in; the hops and right answers of the question are
            taken from the record where it is not given.

    Raises:
        ConfigError: the tokenizer is missing or another one, or the saved settings cannot work.
        UsageError: ``saved`` was written without token ids, or is not a saved game at all (the name
            of a file, say).
    """
    check_saved(saved)
    if not saved.rules.tokens:
        raise UsageError(NO_TOKENS)

    own = own or OwnCode()
    rules = recorded_rules(saved, saved.rules.tokenizer.open(tokenizer), own, world)
    game = _play(saved, rules)

    # Facts of the run and of the world do not follow from the game.
    then, now = saved.record, record_game(game, rules)
    given = ["first_slot", "question_group", "weights_version"]
    given += [] if world is not None else ["hops", "truly_correct", "right_answers"]
    now = replace(now, **{name: getattr(then, name) for name in given})

    return Replay(game, rules, tuple(differences(then, now)), tuple(_as_saved(saved, own)))


def _as_saved(saved: SavedGame, own: OwnCode) -> Iterator[str]:
    parts = saved.rules.parts
    for code, function in parts.filters.items():
        if parts.shipped_filter(code) is None and code not in (own.filters or {}):
            yield f"filter {code} ({function})"
    if parts.pays_proposer_itself and own.proposer_reward is None:
        yield f"proposer_reward ({parts.proposer_reward})"
    if parts.pays_solver_itself and own.solver_reward is None:
        yield f"solver_reward ({parts.solver_reward})"


# -- playing -----------------------------------------------------------------------------------


def _play(saved: SavedGame, rules: Rules) -> Game:
    """Plays one turn after the other, so that a single search is due at a time.

    Turns that an outage cut off come last."""
    recorded = RecordedReferee(rules, saved.record)
    round_ = Round.of_start(rules, saved.record.start, recorded)
    game, then = round_.games[0], saved.record.named()
    tokens = {name: iter([*zip(t.own, t.logprobs, strict=True)]) for name, t in then.items()}

    def write(name: str, trajectory: Trajectory) -> None:
        # Token by token, since the end of a turn is not saved.
        for token, logprob in tokens.get(name, iter(())):
            if trajectory.feed((token,), (logprob,)):
                return

    while waiting := {name: t for name, t in named(game).items() if t.waiting is Waiting.POLICY}:
        ready = [
            name
            for name, t in waiting.items()
            if name not in then
            or then[name].ending is not Ending.OUTAGE
            or len(t.searches) < len(then[name].searches)
        ]
        if ready:
            trajectory = waiting[ready[0]]
            write(ready[0], trajectory)
            if trajectory.waiting is Waiting.POLICY:
                trajectory.feed_turn(())  # a turn may end without a token that says so
            round_.advance()
            continue

        for name, trajectory in waiting.items():
            write(name, trajectory)
        hit = {name: outage for name in waiting if (outage := then[name].outage) is not None}
        if not hit:
            round_.void(list(waiting.values()), recorded.outage("engine"))
        # The last one to be hit made the game void, if it is.
        for name in sorted(hit, key=lambda name: hit[name] == saved.record.outage):
            round_.void([waiting[name]], recorded.outage("engine", then[name]))
        round_.advance()

    return game


def named(game: Game) -> dict[str, Trajectory]:
    """The trajectories of a game by the names that its record gives them."""
    plays = game.trajectories()
    return dict(zip(names(t.role for t in plays), plays, strict=True))


# -- comparing ---------------------------------------------------------------------------------


def differences(saved: GameRecord, replayed: GameRecord) -> list[Difference]:
    """Every field that differs, trajectories first; of a list, the first place that does."""
    then, now = saved.named(), replayed.named()
    found: list[Difference] = []

    for name in dict.fromkeys([*then, *now]):
        if name in then and name in now:
            found += (replace(d, where=name) for d in _walk("", then[name], now[name]))
        else:
            before, after = ("played" if name in plays else "absent" for plays in (then, now))
            found.append(Difference(name, "trajectory", before, after))

    saved, replayed = replace(saved, trajectories=()), replace(replayed, trajectories=())
    return found + list(_walk("", saved, replayed))


def _walk(field: str, then: Any, now: Any) -> Iterator[Difference]:
    if is_dataclass(then) and type(then) is type(now):
        for f in fields(then):
            path = f"{field}.{f.name}" if field else f.name
            yield from _walk(path, getattr(then, f.name), getattr(now, f.name))
    elif isinstance(then, tuple) and isinstance(now, tuple):
        for i, (before, after) in enumerate(zip(then, now, strict=False)):
            if found := list(_walk(f"{field}[{i}]", before, after)):
                yield from found
                return
        if len(then) != len(now):
            yield Difference("game", f"number of {field}", len(then), len(now))
    elif repr(then) != repr(now):  # it tells 0.0 from -0.0, and NaN equals itself
        yield Difference("game", field, then, now)


# -- recorded services and code ----------------------------------------------------------------


def recorded_rules(
    saved: SavedGame, tokenizer: Tokenizer, own: OwnCode, world: World | None = None
) -> Rules:
    """The rules that a saved game was played by, with its services left out.

    Filters and rewards of the user's own that are not given come out as they did then.

    Raises:
        ConfigError: a saved prompt set that cannot work, or a filter in ``own`` that the game did
            not have.
    """
    config, parts, prompts = saved.rules.config, saved.rules.parts, saved.rules.prompts
    record, given, unsaved = saved.record, own.filters or {}, _Unsaved()
    for code in given:
        if code not in parts.filters:
            fix = f"the game had no such filter, but {', '.join(parts.filters)}"
            raise ConfigError("filters", code, fix)

    def failed(code: str, proposal: Proposal) -> bool:
        return record.outcome is Outcome.INVALID and record.reason == code

    def paid_proposer(game: Game) -> float:
        return record.proposer_reward or 0.0

    def paid_solver(game: Game, attempt: Attempt) -> float:
        then = record.named().get(_name(game, attempt.trajectory))
        return 0.0 if then is None or then.reward is None else then.reward

    made = Prompts(prompts.texts, prompts.frame, tokenizer)
    return Rules(
        config=config,
        tokenizer=tokenizer,
        prompts=made,
        retriever=unsaved,
        judge=unsaved,
        verifier=None if parts.verifier is None else unsaved,
        limits={role: Limits.of(role, config, tokenizer, made.tags) for role in Role},
        world=world if world is not None else RecordedWorld(parts.world, record.start.truth),
        filters={
            code: given.get(code) or parts.shipped_filter(code) or partial(failed, code)
            for code in parts.filters
        },
        noise=unsaved,
        proposer_reward=own.proposer_reward
        or PROPOSER_REWARDS.get(parts.proposer_reward)
        or paid_proposer,
        solver_reward=own.solver_reward
        or (paid_solver if parts.pays_solver_itself else right_answer),
    )


class _Unsaved:
    """Stands for a retriever, judge, verifier or noise source of which only results are saved."""

    def __call__(self, *arguments: object, **named: object) -> Any:
        raise UsageError("a saved game holds what its services returned, not the services")

    search = judge = verify = __call__


class RecordedReferee(Referee):
    """Referee for whom all services return what they returned when the game was played.

    What the record does not hold is an outage, never an empty answer; in a void game it is the one
    that made it void."""

    def __init__(self, rules: Rules, record: GameRecord) -> None:
        """
        Args:
            rules: of :func:`recorded_rules`.
            record: the game as it was played.
        """
        super().__init__(rules)
        self._record, self._plays = record, record.named()

    def search(self, due: Sequence[tuple[Game, Trajectory]]) -> Results:
        """Documents that were found then."""
        return [self._found(_name(game, t), t) for game, t in due]

    def _found(self, name: str, trajectory: Trajectory) -> list[Document] | ServiceError:
        then, place = self._plays.get(name), len(trajectory.searches)
        if then is not None and place < len(then.searches):
            return list(then.searches[place].documents)
        if then is not None and then.ending is Ending.REFUSED and place == len(then.searches):
            return ServiceError("search", "it refused this query", fault="text")
        return self._missing("search", f"search {place + 1} of {name} for {trajectory.query!r}")

    def judge(self, pairs: Sequence[tuple[Game, Trajectory]]) -> Verdicts:
        """Verdicts that were reached then."""
        return [self._verdict(_name(game, t), t) for game, t in pairs]

    def _verdict(self, name: str, trajectory: Trajectory) -> Verdict | ServiceError:
        record, then = self._record, self._plays.get(name)
        if trajectory.role is Role.VERIFIER:
            verdict = record.verification
        elif trajectory.role is Role.CLOSED_BOOK:
            verdict = record.closed_book
        else:
            verdict = None if then is None else then.verdict

        if verdict is not None:
            return verdict
        if then is not None and then.outage is not None:
            return self.outage("judge", then)
        # Of a game that other attempts made void, no verdicts are kept.
        if any(attempt.outage is not None for attempt in record.attempts):
            return Verdict(False)
        return self._missing("judge", f"a verdict on {trajectory.result!r} ({name})")

    def verify(self, readings: Sequence[tuple[Game, tuple[Document, ...]]]) -> Verdicts:
        """Verdict of the verifier then."""
        verdict = self._record.verification
        return [
            verdict or self._missing("verifier", f"a verification of {game.question!r}")
            for game, _ in readings
        ]

    def noise(
        self, games: Sequence[Game], retrieved: Sequence[tuple[int, Document]]
    ) -> list[tuple[NoiseDocument, ...] | ServiceError]:
        """Noise that was drawn then."""
        record = self._record
        # A game that was void before anything was read: noise was what failed.
        read = record.verification is not None or "verifier" in self._plays
        if record.outcome is Outcome.VOID and not record.noise and not read:
            return [self.outage("search") for _ in games]
        return [record.noise for _ in games]

    def outage(self, service: str, attempt: TrajectoryRecord | None = None) -> ServiceError:
        """The outage that made the game void then, or an attempt alone.

        One of this service, if that is not known.
        """
        then = self._record.outage if attempt is None else attempt.outage
        if then is not None:
            return ServiceError(then.service, then.what, then.calls)
        return ServiceError(self._record.reason or service, "it failed when the game was played")

    def _missing(self, service: str, asked: str) -> ServiceError:
        if self._record.outcome is Outcome.VOID:
            return self.outage(service)
        return ServiceError(service, f"not recorded: {asked}")


def _name(game: Game, trajectory: Trajectory) -> str:
    """The name that a game's record gives to one of its trajectories."""
    return next(name for name, t in named(game).items() if t is trajectory)


@dataclass(frozen=True)
class RecordedWorld:
    """A world of which only the name and the one answer of a saved game are known."""

    name: str
    truth: GroundTruth
    can_read: bool = False

    @property
    def answers(self) -> Sequence[GroundTruth]:
        """The answer."""
        return (self.truth,)

    @property
    def corpus(self) -> Corpus:
        """
        Raises:
            UsageError: a saved game holds what was found, not what there was to find.
        """
        raise UsageError("a saved game has no corpus")

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        """None."""
        return []

    def analyse(self, question: str) -> Analysis | None:
        """Unknown."""
        return None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        """Unknown."""
        return None


def check_saved(value: object) -> None:
    """Refuses anything but a saved game, such as the name of its file."""
    if not isinstance(value, SavedGame):
        fix = "read_games(path) gives the games of a file"
        raise UsageError(f"a SavedGame is wanted, not {describe(value)}: {fix}")

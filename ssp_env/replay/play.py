"""Plays a saved game again, offline, and says where it comes out another way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.filters import FILTERS, Filter, Proposal
from ssp_env.game.game import (
    PROPOSER_REWARDS,
    Attempt,
    Game,
    ProposerReward,
    SolverReward,
    right_answer,
)
from ssp_env.game.outcome import Ending, Outage, Outcome
from ssp_env.game.prompts import Prompts
from ssp_env.game.record import GameRecord, names, record_game
from ssp_env.game.referee import Referee, Verdicts
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Limits, Trajectory, Waiting
from ssp_env.game.verification import NoiseDocument, Retrieved
from ssp_env.judge.base import Verdict
from ssp_env.replay.files import SavedGame, dotted
from ssp_env.search.base import Results
from ssp_env.tokenizers import Tokenizer
from ssp_env.types import Document, Role, World

_LONGEST = 80


@dataclass(frozen=True)
class Replay:
    game: Game
    rules: Rules
    """Rules that it was replayed by; search, judge, verifier and noise are not in the file."""
    differences: tuple[str, ...]
    """Fields that came out another way, such as
    ``solver 2: segments[2].ids[14]: saved 812, replayed 3``; empty if nothing did."""
    as_saved: Mapping[str, str]
    """Functions of the user's own, by their part, whose results were played back, not checked."""

    @property
    def identical(self) -> bool:
        return not self.differences


def replay(
    saved: SavedGame,
    tokenizer: Tokenizer | str | Path | None = None,
    world: World | None = None,
    *,
    proposer_reward: ProposerReward | None = None,
    solver_reward: SolverReward | None = None,
) -> Replay:
    """Plays the policy's saved tokens again, without search or judge, and compares everything.

    Prompts and observations are made anew from texts and documents; filters, budgets and rewards
    are computed anew. Results of the user's own filters, noise and rewards are played back, but
    for rewards that are given.

    Args:
        saved: the game.
        tokenizer: the one it was played with, or its directory; needed if the file cannot say what
            it is made of.
        world: the world that it was played in; the hops and right answers of the question are
            taken from the record where it is not given.
        proposer_reward: the user's own.
        solver_reward: the user's own.
    """
    if not saved.rules.tokens:
        what = "the game was written without token ids (tokens=False)"
        raise UsageError(f"{what}: it can be read and judged anew, but not replayed")

    opened = saved.rules.tokenizer.open(tokenizer)
    rules, as_saved = recorded_rules(saved, opened, proposer_reward, solver_reward, world)
    game = _play(saved.record, rules)

    # Facts of the run and of the world do not follow from the game.
    then, now = saved.record, record_game(game, rules)
    given = ["first_slot", "question_group", "weights_version"]
    given += [] if world is not None else ["hops", "truly_correct", "right_answers"]
    now = replace(now, **{name: getattr(then, name) for name in given})

    return Replay(game, rules, tuple(differences(then, now)), as_saved)


# -- playing -----------------------------------------------------------------------------------


def _play(record: GameRecord, rules: Rules) -> Game:
    """Plays the saved tokens of a game; turns that an outage cut off come last."""
    recorded = RecordedReferee(rules, record)
    round_ = Round.of_starts(rules, [record.start], recorded)
    game, then = round_.games[0], record.named()
    tokens = {name: zip(t.own, t.logprobs, strict=True) for name, t in then.items()}

    while waiting := {name: t for name, t in named(game).items() if t.waiting is Waiting.POLICY}:
        # Those that go on in this phase; one that an outage cut off goes on up to its last search.
        going = [
            name
            for name, t in waiting.items()
            if name not in then
            or then[name].ending is not Ending.OUTAGE
            or len(t.searches) < len(then[name].searches)
        ]
        for name in going or waiting:
            # Token by token, since the end of a turn is not saved.
            for token, logprob in tokens.get(name, ()):
                if waiting[name].feed((token,), (logprob,)):
                    break
            else:
                if going:
                    waiting[name].feed_turn(())  # a turn may end without a token that says so

        # All that is left was cut off by an outage.
        if not going:
            hit = {name: t.outage for name, t in then.items() if t.outage is not None}
            # The last attempt to be hit made the game void, if it is.
            for name in sorted(hit, key=lambda name: hit[name] == record.outage):
                round_.void([named(game)[name]], _error(hit[name]))
            if not all(t.done for t in waiting.values()):
                game.void(recorded.outage("engine", "the rest of a turn"))
        round_.advance()

    return game


def named(game: Game) -> dict[str, Trajectory]:
    """The trajectories of a game by the names that its record gives them."""
    plays = game.trajectories()
    return dict(zip(names(t.role for t in plays), plays, strict=True))


def _name(game: Game, trajectory: Trajectory) -> str:
    return next(name for name, t in named(game).items() if t is trajectory)


def _error(outage: Outage) -> ServiceError:
    return ServiceError(outage.service, outage.what, outage.calls)


# -- comparing ---------------------------------------------------------------------------------


def differences(saved: GameRecord, replayed: GameRecord) -> list[str]:
    """Every field that differs, trajectories first; of a list, the first place that does."""
    then, now = ({**r.named(), "game": replace(r, trajectories=())} for r in (saved, replayed))
    found: list[str] = []
    for name in dict.fromkeys([*then, *now]):
        found += _walk(f"{name}: ", then.get(name), now.get(name))
    return found


def _walk(place: str, then: Any, now: Any) -> Iterator[str]:
    if is_dataclass(then) and type(then) is type(now):
        within = place if place.endswith(" ") else f"{place}."
        for f in fields(then):
            yield from _walk(f"{within}{f.name}", getattr(then, f.name), getattr(now, f.name))
    elif isinstance(then, tuple) and isinstance(now, tuple) and then and now:
        for i, (before, after) in enumerate(zip_longest(then, now)):
            if found := list(_walk(f"{place}[{i}]", before, after)):
                yield from found
                return
    # Not ``!=``: a replay is exact, to the bit of a float.
    elif repr(then) != repr(now):  # it tells 0.0 from -0.0, and NaN equals itself
        name = place.removesuffix(": ")
        yield f"{name}: saved {repr(then)[:_LONGEST]}, replayed {repr(now)[:_LONGEST]}"


# -- recorded services and code ----------------------------------------------------------------


def recorded_rules(
    saved: SavedGame,
    tokenizer: Tokenizer,
    proposer_reward: ProposerReward | None = None,
    solver_reward: SolverReward | None = None,
    world: World | None = None,
) -> tuple[Rules, dict[str, str]]:
    """The rules that a saved game was played by, with its services left out.

    Functions of the user's own that are not given return what they returned then; their names are
    the second result, by their part.
    """
    config, parts, record = saved.rules.config, saved.rules.parts, saved.record
    filters, as_saved = dict[str, Filter](), dict[str, str]()
    for code, function in parts.filters.items():
        if code in FILTERS and dotted(FILTERS[code]) == function:
            filters[code] = FILTERS[code]
        else:
            filters[code] = partial(_failed, record, code)
            as_saved[f"filter {code}"] = function

    if proposer_reward is None and parts.proposer_reward not in PROPOSER_REWARDS:
        as_saved["proposer_reward"] = parts.proposer_reward
    if solver_reward is None and parts.solver_reward != dotted(right_answer):
        as_saved["solver_reward"] = parts.solver_reward

    def paid_proposer(game: Game) -> float:
        return record.proposer_reward or 0.0

    def paid_solver(game: Game, attempt: Attempt) -> float:
        then = record.named().get(_name(game, attempt.trajectory))
        return 0.0 if then is None or then.reward is None else then.reward

    unsaved: Any = _Unsaved(parts.world)
    prompts = Prompts(saved.rules.prompts, saved.rules.frame, tokenizer)
    return (
        Rules(
            config=config,
            tokenizer=tokenizer,
            prompts=prompts,
            retriever=unsaved,
            judge=unsaved,
            verifier=None if parts.verifier is None else unsaved,
            limits={role: Limits.of(role, config, tokenizer, prompts.tags) for role in Role},
            world=unsaved if world is None else world,
            filters=filters,
            noise=unsaved,
            proposer_reward=proposer_reward
            or PROPOSER_REWARDS.get(parts.proposer_reward, paid_proposer),
            solver_reward=solver_reward
            or (paid_solver if "solver_reward" in as_saved else right_answer),
        ),
        as_saved,
    )


def _failed(record: GameRecord, code: str, proposal: Proposal) -> bool:
    return record.outcome is Outcome.INVALID and record.reason == code


@dataclass(frozen=True)
class _Unsaved:
    """Stands for a world, of which only the name is saved, and for its services."""

    name: str

    def analyse(self, question: str) -> None:
        """Unknown."""

    def __call__(self, *arguments: object, **named: object) -> Any:
        raise UsageError("a saved game holds what its services returned, not the services")

    search = judge = verify = __call__


class RecordedReferee(Referee):
    """Referee for whom all services return what they returned when the game was played.

    What the record does not hold is an outage, never an empty answer; in a void game it is the one
    that made it void."""

    def __init__(self, rules: Rules, record: GameRecord) -> None:
        super().__init__(rules)
        self._record, self._plays = record, record.named()

    def search(self, due: Sequence[tuple[Game, Trajectory]]) -> Results:
        return [self._found(_name(game, t), t) for game, t in due]

    def _found(self, name: str, trajectory: Trajectory) -> list[Document] | ServiceError:
        then, place = self._plays.get(name), len(trajectory.searches)
        if then is not None and place < len(then.searches):
            return list(then.searches[place].documents)
        if then is not None and then.ending is Ending.REFUSED:
            return ServiceError("search", "it refused this query", fault="text")
        return self.outage("search", f"search {place + 1} of {name} for {trajectory.query!r}")

    def judge(self, pairs: Sequence[tuple[Game, Trajectory]]) -> Verdicts:
        return [self._verdict(_name(game, t), t) for game, t in pairs]

    def _verdict(self, name: str, trajectory: Trajectory) -> Verdict | ServiceError:
        record, then = self._record, self._plays.get(name)
        if trajectory.role is Role.CLOSED_BOOK:
            verdict = record.closed_book
        else:
            verdict = None if then is None else then.verdict

        if verdict is not None:
            return verdict
        if then is not None and then.outage is not None:
            return _error(then.outage)
        # Of a game that other attempts made void, no verdicts are kept.
        if any(attempt.outage is not None for attempt in record.attempts):
            return Verdict(False)
        return self.outage("judge", f"a verdict on {trajectory.result!r} ({name})")

    def verify(self, readings: Sequence[tuple[Game, tuple[Document, ...]]]) -> Verdicts:
        # One game: its verdict, or the outage that came in its place.
        verdict = self._record.verification
        return [
            verdict or self.outage("verifier", f"a verification of {game.question!r}")
            for game, _ in readings
        ]

    def noise(
        self, games: Sequence[Game], retrieved: Retrieved
    ) -> list[tuple[NoiseDocument, ...] | ServiceError]:
        record = self._record
        # A game that was void before anything was read: noise was what failed.
        read = record.verification is not None or "verifier 1" in self._plays
        if record.outage is not None and not record.noise and not read:
            return [_error(record.outage) for _ in games]
        return [record.noise for _ in games]

    def outage(self, service: str, asked: str) -> ServiceError:
        """The outage that made the game void then; if it was not void, that of a missing result."""
        then = self._record.outage
        return ServiceError(service, f"not recorded: {asked}") if then is None else _error(then)

"""Plays saved games again, offline, and says where they come out another way; judges or pays them
anew."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.batch import GameBatch
from ssp_env.game.filters import FILTERS, Filter, Proposal
from ssp_env.game.game import Attempt, Game, ProposerReward, SolverReward, right_answer
from ssp_env.game.noise import NoiseDocument, Retrieved
from ssp_env.game.outcome import Ending, Outage, Outcome
from ssp_env.game.prompts import Prompts
from ssp_env.game.record import (
    POLICY,
    PROMPT,
    GameRecord,
    TrajectoryRecord,
    differences,
    known,
    names,
    record_game,
)
from ssp_env.game.referee import Referee, Verdicts
from ssp_env.game.rewards import PROPOSER_REWARDS
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Limits, Trajectory, Waiting
from ssp_env.judge.base import Judge, Verdict
from ssp_env.replay.files import SavedGame, dotted, name_of
from ssp_env.replay.known import group_of
from ssp_env.search.base import Results
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Document, Role, World


@dataclass(frozen=True)
class Replay:
    """A saved game that was played again, and where that came out another way."""

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
    for rewards that are given. ``tokenizer`` is the one it was played with, or its directory, where
    the file cannot say what it is made of. Without the ``world`` that it was played in, hops, right
    answers and the group of a given question are those of the record."""
    if not saved.rules.tokens:
        what = "the game was written without token ids (tokens=False)"
        raise UsageError(f"{what}: it can be read and judged anew, but not replayed")

    opened = saved.rules.tokenizer.open(tokenizer)
    rules, as_saved = recorded_rules(saved, opened, proposer_reward, solver_reward, world)
    game = _play(saved.record, rules)

    # Facts of the run and of the world do not follow from the game.
    then, now = saved.record, record_game(game, rules)
    given = ["first_index", "weights_version"]
    # Without a question there is nothing to analyse, and the fields are empty either way.
    unknown = world is None and now.question is not None
    given += ["hops", "truly_correct", "right_answers"] if unknown else []
    now = replace(now, **{name: getattr(then, name) for name in given})
    now = replace(now, question_group=group_of(then, world))

    return Replay(game, rules, tuple(differences(then, now)), as_saved)


# -- playing -----------------------------------------------------------------------------------


def _play(record: GameRecord, rules: Rules) -> Game:
    """Plays the saved tokens of a game; turns that an outage cut off come last."""
    recorded = RecordedReferee(rules, record)
    batch = GameBatch.from_initial_states(rules, [record.initial_state], recorded)
    game, then = batch.games[0], record.named()
    turns = {name: _turns(t) for name, t in then.items()}

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
            # What the record does not have gets an empty turn.
            left = turns.get(name) or deque([deque()])
            while left[0] and waiting[name].waiting is Waiting.POLICY:
                # One by one: if a turn ends earlier than then, its rest goes to the next one.
                token, logprob = left[0].popleft()
                waiting[name].feed((token,), (logprob,))
            if not left[0]:
                left.popleft()
            if going and waiting[name].waiting is Waiting.POLICY:
                waiting[name].feed_turn(())  # a turn may end without a token that says so

        # All that is left was cut off by an outage.
        if not going:
            hit = {name: t.outage for name, t in then.items() if t.outage is not None}
            # The last attempt to be hit made the game void, if it is.
            for name in sorted(hit, key=lambda name: hit[name] == record.outage):
                batch.void([named(game)[name]], _error(hit[name]))
            if not all(t.done for t in waiting.values()):
                game.void(recorded.outage("engine", "the rest of a turn"))
        batch.advance()

    return game


def _turns(then: TrajectoryRecord) -> deque[deque[tuple[int, float]]]:
    """Tokens and log-probabilities by turn; an empty turn lies between two others' segments."""
    turns, before = deque[deque[tuple[int, float]]](), PROMPT
    for segment in then.segments[1:]:
        if segment.by == POLICY:
            turns.append(deque(zip(known(segment.ids), known(segment.logprobs), strict=True)))
        elif before != POLICY:
            turns.append(deque())
        before = segment.by
    return turns


def named(game: Game) -> dict[str, Trajectory]:
    """The trajectories of a game by the names that its record gives them."""
    plays = game.trajectories()
    return dict(zip(names(t.role for t in plays), plays, strict=True))


def _name(game: Game, trajectory: Trajectory) -> str:
    return next(name for name, t in named(game).items() if t is trajectory)


def _error(outage: Outage) -> ServiceError:
    return ServiceError(outage.service, outage.what, outage.calls)


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
    the second result, by their part."""
    config, parts, record = saved.rules.config, saved.rules.parts, saved.record
    filters, as_saved = dict[str, Filter](), dict[str, str]()
    # A filter of this name may be the user's, or one of an earlier version of ours.
    for code, function in parts.filters.items():
        is_added = code not in FILTERS or dotted(FILTERS[code]) != function
        filters[code] = partial(_failed, record, code) if is_added else FILTERS[code]
        if is_added:
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
    # From the file: the set may have changed, or be gone.
    prompts = Prompts(saved.rules.prompts, saved.rules.frame, tokenizer)
    shipped = PROPOSER_REWARDS.get(parts.proposer_reward, paid_proposer)
    rules = Rules(
        config=config,
        tokenizer=tokenizer,
        prompts=prompts,
        retrievers=dict.fromkeys(config.tools, unsaved),
        judge=unsaved,
        verifier=None if parts.verifier is None else unsaved,
        limits={role: Limits.of(role, config, tokenizer, prompts.tags) for role in Role},
        world=unsaved if world is None else world,
        filters=filters,
        noise=unsaved,
        proposer_reward=proposer_reward or shipped,
        solver_reward=solver_reward
        or (paid_solver if "solver_reward" in as_saved else right_answer),
    )
    return rules, as_saved


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
        # Of a game that other attempts or a reward made void, no verdicts are kept.
        if trajectory.role is Role.SOLVER and record.outcome is Outcome.VOID:
            return Verdict(False)
        return self.outage("judge", f"a verdict on {trajectory.result!r} ({name})")

    def verify(self, shown: Sequence[tuple[Game, tuple[Document, ...]]]) -> Verdicts:
        # One game: its verdict, or the outage that came in its place.
        verdict = self._record.verification or self.outage("verifier", "a verification")
        return [verdict for _ in shown]

    def noise(self, game: Game, others: Retrieved) -> tuple[NoiseDocument, ...]:
        record = self._record
        # A game that was void before anything was read: noise was what failed.
        read = record.verification is not None or "verifier 1" in self._plays
        if record.outage is not None and not record.noise and not read:
            raise _error(record.outage)
        return record.noise

    def finish(self, game: Game) -> None:
        if self._record.outage is not None:  # a filter or a reward failed then
            raise _error(self._record.outage)
        super().finish(game)

    def outage(self, service: str, asked: str) -> ServiceError:
        """The outage that made the game void then; if it was not void, that of a missing result."""
        then = self._record.outage
        return ServiceError(service, f"not recorded: {asked}") if then is None else _error(then)


# -- another judge, another reward -------------------------------------------------------------


@dataclass(frozen=True)
class Rescored:
    """A saved game, and the same judged or paid anew."""

    before: SavedGame
    after: SavedGame
    """With other verdicts and rewards; void if the new judge failed, invalid if a filter refuses
    its question by the new verdicts; unchanged if it was void or invalid before."""

    @property
    def changed(self) -> bool:
        """True if the outcome, a verdict or a reward is another one."""
        then, now = (
            (record.outcome, record.proposer_reward, [(a.right, a.reward) for a in record.attempts])
            for record in (self.before.record, self.after.record)
        )
        return then != now


def rescore(
    saved_games: Iterable[SavedGame],
    judge: Judge | None = None,
    proposer_reward: ProposerReward | None = None,
    solver_reward: SolverReward | None = None,
    tokenizer: Tokenizer | str | Path | None = None,
) -> list[Rescored]:
    """Judges or pays saved games anew; those that were void or invalid stay so.

    Args:
        judge: decides anew about every answer that was given, in one call; the saved verdicts stand
            when not given.
        proposer_reward: pays anew; what paid then, when not given.
        solver_reward: the same for each attempt.
        tokenizer: as for :func:`replay`; only new rewards need it, since they may look at all of a
            game, which is replayed for them.
    """
    saved_games, played = list(saved_games), dict[int, Replay]()
    rewards: Any = {"proposer_reward": proposer_reward, "solver_reward": solver_reward}
    given = {k: part for k, part in {"judge": judge, **rewards}.items() if part is not None}
    paid_anew = given.keys() & rewards.keys()
    for place, saved in enumerate(saved_games):
        if saved.record.outcome is Outcome.VALID:
            again = replay(saved, tokenizer, **rewards) if paid_anew else _without_tokens(saved)
            played[place] = again
    if judge is not None and played:
        _judge([*played.values()], judge)

    named = {name: name_of(part) for name, part in given.items()}
    return [
        Rescored(saved, _after(saved, played[place], named) if place in played else saved)
        for place, saved in enumerate(saved_games)
    ]


def _without_tokens(saved: SavedGame) -> Replay:
    """A valid game with its attempts, for rewards that look at verdicts alone, as those that ship:
    neither its tokens nor a tokenizer have to be there."""
    rules, as_saved = recorded_rules(saved, ByteTokenizer())
    record, game = saved.record, Game(saved.record.initial_state)
    game.question, game.outcome = record.question, record.outcome
    for then in record.attempts:
        trajectory = Trajectory(rules.limits[Role.SOLVER], [], record.question or "")
        trajectory.searches, trajectory.result = list(then.searches), then.result
        trajectory.ending = then.ending
        game.attempts.append(Attempt(trajectory, then.verdict, then.reward, then.outage))
    return Replay(game, rules, (), as_saved)


def _judge(played: Sequence[Replay], judge: Judge) -> None:
    """New verdicts for all answers; attempts that gave none stay wrong, and void ones void."""
    for one in played:
        for name, saved in one.as_saved.items():
            if not name.startswith("filter "):
                fix = f"other verdicts have to be paid anew: pass {saved} to rescore() in Python"
                raise ConfigError(name, None, fix)

    asked = [
        (one, attempt)
        for one in played
        for attempt in one.game.counted
        if attempt.trajectory.result is not None
    ]
    pairs = [(one.game, attempt.trajectory) for one, attempt in asked]
    results = Referee(replace(played[0].rules, judge=judge)).judge(pairs)
    failed = [result for result in results if isinstance(result, ServiceError)]
    # A judge that has failed in all of them is down, and has judged nothing.
    if failed and len(failed) == len(results):
        raise failed[0]

    for (one, attempt), result in zip(asked, results, strict=True):
        # Paid anew below, by the new verdict.
        attempt.reward = None
        Referee(one.rules).record_verdicts([(one.game, attempt)], [result])


def _after(saved: SavedGame, played: Replay, named: Mapping[str, Any]) -> SavedGame:
    """The saved game with what its game is paid now, and by whom."""
    game = played.game
    if game.outcome is Outcome.VALID:
        Referee(played.rules).finish(game)

    # Attempts come last; proposer, verifier and closed book stay as they were.
    gates = len(saved.record.trajectories) - len(game.attempts)
    plays = [
        replace(then, verdict=now.verdict, reward=now.reward, outage=now.outage)
        for then, now in zip(saved.record.trajectories[gates:], game.attempts, strict=True)
    ]
    scores = ("outcome", "reason", "outage", "solve_rate", "proposer_reward", "solver_reward")
    record = replace(
        saved.record,
        trajectories=(*saved.record.trajectories[:gates], *plays),
        **{name: getattr(game, name) for name in scores},
    )
    return SavedGame(replace(saved.rules, parts=replace(saved.rules.parts, **named)), record)

"""Judges or pays saved games anew, offline: nothing is played and nothing is searched for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from ssp_env.errors import ConfigError, ServiceError, UsageError, describe
from ssp_env.game.game import Attempt, Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import TrajectoryRecord
from ssp_env.game.referee import Referee, refusals_as_verdicts
from ssp_env.game.rewards import ProposerReward, SolverReward
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Judge, JudgeTask
from ssp_env.replay.files import SavedGame
from ssp_env.replay.header import SavedParts
from ssp_env.replay.play import OwnCode, check_saved, recorded_rules
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Document, Role


@dataclass(frozen=True)
class Rescored:
    """A saved game before and after."""

    before: SavedGame
    after: SavedGame
    """With other verdicts and rewards; void if the new judge failed; unchanged if it was void or
    invalid before."""

    @property
    def changed(self) -> bool:
        """True if the outcome, a verdict or a reward is another one."""
        return _scores(self.before) != _scores(self.after)


def rescore(
    saved_games: Iterable[SavedGame],
    judge: Judge | None = None,
    proposer_reward: ProposerReward | None = None,
    solver_reward: SolverReward | None = None,
    tokenizer: Tokenizer | str | Path | None = None,
) -> list[Rescored]:
    """Rescores saved games; those that were void or invalid stay so.

    Args:
        saved_games: of any outcome.
        judge: decides anew about every answer that was given, in one call; the saved verdicts stand
            when not given.
        proposer_reward: pays anew; what paid then, when not given.
        solver_reward: the same for each attempt.
        tokenizer: as for :func:`~ssp_env.replay.play.replay`; only reward functions of your own
            need it.

    Raises:
        ConfigError: a new judge over games that code of the user's own paid, and that code is not
            given; a reward function of your own over games that hold no token ids for it to look
            at; or the tokenizer is missing.
        UsageError: the judge does not give one result per task, a reward is not a finite number, or
            something else than saved games is given.
        ServiceError: the judge failed altogether. One that fails for a task makes that game void.
    """
    if isinstance(saved_games, str | Path | SavedGame):
        raise UsageError(
            f"several saved games are wanted, not {describe(saved_games)}: pass read_games(path) "
            f"or a list"
        )
    saved_games = list(saved_games)
    for saved in saved_games:
        check_saved(saved)

    own = OwnCode(None, proposer_reward, solver_reward)
    valid = [saved for saved in saved_games if saved.record.outcome is Outcome.VALID]
    for saved in valid:
        _check_paid(saved, own, judge)

    tables = [_restored(saved, tokenizer, own) for saved in valid]
    if judge is not None:
        _judge(tables, judge)
    for game, rules in tables:
        if game.outcome is Outcome.VALID:
            Referee(rules).finish(game)

    pairs = zip(valid, tables, strict=True)
    after = iter([_after(saved, game, judge, own) for saved, (game, _) in pairs])
    return [
        Rescored(saved, next(after) if saved.record.outcome is Outcome.VALID else saved)
        for saved in saved_games
    ]


def _scores(saved: SavedGame) -> tuple[object, ...]:
    record = saved.record
    attempts = [(a.verdict is not None and a.verdict.correct, a.reward) for a in record.attempts]
    return record.outcome, record.proposer_reward, attempts


def _check_paid(saved: SavedGame, own: OwnCode, judge: Judge | None) -> None:
    parts = saved.rules.parts
    for name, given, is_own, function in (
        ("proposer_reward", own.proposer_reward, parts.pays_proposer_itself, parts.proposer_reward),
        ("solver_reward", own.solver_reward, parts.pays_solver_itself, parts.solver_reward),
    ):
        if given is not None and not saved.rules.tokens:
            fix = "the games were written without token ids, which such a function may look at"
            raise ConfigError(name, given, fix)
        if judge is not None and is_own and given is None:
            fix = f"other verdicts have to be paid anew: pass the function {function}"
            raise ConfigError(name, None, fix)


def _restored(
    saved: SavedGame, tokenizer: Tokenizer | str | Path | None, own: OwnCode
) -> tuple[Game, Rules]:
    """The game as it was when it was over, without playing it again."""
    record, start = saved.record, saved.record.start
    looks = own.proposer_reward is not None or own.solver_reward is not None
    # The rewards that ship look at verdicts alone: no token is spelled out for them.
    opened = saved.rules.tokenizer.open(tokenizer) if looks else ByteTokenizer()
    rules = recorded_rules(saved, opened, own)

    proposer = record.play_of(Role.PROPOSER)
    found = chain.from_iterable(s.documents for s in proposer.searches) if proposer else ()
    evidence = {document.id: document for document in found}
    read = evidence | {item.document.id: item.document for item in record.noise}
    materials = tuple(read[name] for name in record.materials or () if name in read)

    def restore(trajectory: TrajectoryRecord) -> Trajectory:
        about = start.truth.answer if trajectory.role is Role.PROPOSER else record.question or ""
        return _trajectory(trajectory, rules, about, materials, looks)

    game = Game(
        start.seed,
        start.slot,
        start.group,
        start.truth,
        start.origin,
        question=record.question,
        outcome=record.outcome,
        reason=record.reason,
        evidence=tuple(evidence.values()),
        noise=record.noise,
        verification=record.verification,
        closed_book_verdict=record.closed_book,
        attempts=[Attempt(restore(a), a.verdict, a.reward, a.outage) for a in record.attempts],
        proposer_reward=record.proposer_reward,
        asked_searches=start.asked_searches,
        least_searches=start.least_searches,
        solution=start.solution,
    )
    for role in (Role.PROPOSER, Role.VERIFIER, Role.CLOSED_BOOK):
        played = record.play_of(role)
        setattr(game, role.value, None if played is None else restore(played))
        if role is Role.CLOSED_BOOK and played is not None:
            game.closed_book_reward = played.reward

    return game, rules


def _trajectory(
    saved: TrajectoryRecord,
    rules: Rules,
    about: str,
    materials: tuple[Document, ...],
    with_tokens: bool,
) -> Trajectory:
    """A trajectory that is over; without its tokens, where nobody looks at them."""
    prompt = list(saved.segments[0].ids or ()) if with_tokens else []
    trajectory = Trajectory(rules.limits[saved.role], prompt, about)
    if saved.role is Role.VERIFIER and rules.config.verifies_by_attempt:
        trajectory.library = materials
    elif saved.role is Role.VERIFIER:
        trajectory.documents = materials

    if with_tokens:
        logprobs = iter(saved.logprobs)
        trajectory.ids, trajectory.mask = list(saved.ids), bytearray(saved.mask)
        own = (next(logprobs) if mine else 0.0 for mine in trajectory.mask)
        trajectory.logprobs = array("d", own)

    trajectory.searches, trajectory.result = list(saved.searches), saved.result
    assert saved.ending is not None, "a game that is over has no trajectory that goes on"
    trajectory.end(saved.ending)
    return trajectory


def _judge(tables: Sequence[tuple[Game, Rules]], judge: Judge) -> None:
    """New verdicts for all answers; attempts that gave none stay wrong, and void ones void."""
    asked = [
        (game, attempt, rules.config.fewest_attempts)
        for game, rules in tables
        for attempt in game.counted
        if attempt.trajectory.result is not None
    ]
    tasks = [
        JudgeTask(game.question or "", attempt.trajectory.result or "", game.truth)
        for game, attempt, _ in asked
    ]
    results = judge.judge(tasks) if tasks else []
    if len(results) != len(tasks):
        raise UsageError(f"the judge gave {len(results)} results for {len(tasks)} tasks")
    for (game, attempt, fewest), result in zip(asked, refusals_as_verdicts(results), strict=True):
        if isinstance(result, ServiceError):
            game.take_outage(attempt.trajectory, result, fewest)
            attempt.verdict = attempt.reward = None
        elif game.outcome is Outcome.VALID:
            attempt.verdict = game.verdict_on(attempt, result)


def _after(saved: SavedGame, game: Game, judge: Judge | None, own: OwnCode) -> SavedGame:
    scored = iter(game.attempts)
    plays = tuple(
        replace(t, verdict=attempt.verdict, reward=attempt.reward, outage=attempt.outage)
        if t.role is Role.SOLVER and (attempt := next(scored))
        else t
        for t in saved.record.trajectories
    )
    record = replace(
        saved.record,
        outcome=game.outcome,
        reason=game.reason,
        outage=game.outage,
        solve_rate=game.solve_rate,
        proposer_reward=game.proposer_reward,
        solver_reward=game.solver_reward,
        trajectories=plays,
    )
    scorers = SavedParts.scorers(judge, own.proposer_reward, own.solver_reward)
    parts = replace(saved.rules.parts, **scorers)
    return SavedGame(replace(saved.rules, parts=parts), record)

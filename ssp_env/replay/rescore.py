"""Judges or pays saved games anew, offline: nothing is searched for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.game import Attempt, Game, ProposerReward, SolverReward
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import TrajectoryRecord
from ssp_env.game.referee import Referee, ask_each
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Judge, JudgeTask
from ssp_env.replay.files import SavedGame
from ssp_env.replay.header import name_of
from ssp_env.replay.play import recorded_rules, replay
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Role


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


def _scores(saved: SavedGame) -> tuple[object, ...]:
    record = saved.record
    attempts = [(a.verdict is not None and a.verdict.correct, a.reward) for a in record.attempts]
    return record.outcome, record.proposer_reward, attempts


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
        tokenizer: as for :func:`~ssp_env.replay.play.replay`; only new rewards need it, since they
            may look at all of a game, which is replayed for them.

    Raises:
        ConfigError: a new judge over games that code of the user's own paid, and that code is not
            given; or the tokenizer is missing.
        UsageError: the judge does not give one result per task, a reward is not a finite number, or
            new rewards for games that hold no token ids.
        ServiceError: the judge failed altogether. One that fails for a task makes that game void.
    """
    saved_games = list(saved_games)
    played: list[tuple[Game, Rules] | None] = []
    for saved in saved_games:
        if saved.record.outcome is not Outcome.VALID:
            played.append(None)
            continue

        if proposer_reward is None and solver_reward is None:
            game, rules, as_saved = _verdicts_alone(saved)
        else:
            again = replay(
                saved, tokenizer, proposer_reward=proposer_reward, solver_reward=solver_reward
            )
            game, rules, as_saved = again.game, again.rules, again.as_saved
        played.append((game, rules))
        if judge is not None:
            _check_paid(as_saved)

    if judge is not None:
        _judge([game_and_rules for game_and_rules in played if game_and_rules], judge)

    given = {"judge": judge, "proposer_reward": proposer_reward, "solver_reward": solver_reward}
    named = {name: name_of(part) for name, part in given.items() if part is not None}
    return [
        Rescored(saved, saved if one is None else _after(saved, *one, named))
        for saved, one in zip(saved_games, played, strict=True)
    ]


def _check_paid(as_saved: Mapping[str, str]) -> None:
    for name in ("proposer_reward", "solver_reward"):
        if name in as_saved:
            fix = f"other verdicts have to be paid anew: pass the function {as_saved[name]}"
            raise ConfigError(name, None, fix)


def _verdicts_alone(saved: SavedGame) -> tuple[Game, Rules, Mapping[str, str]]:
    """The game as it was when it was over, as far as verdicts and the rewards that ship need it.

    Its attempts have no tokens, so neither they nor a tokenizer need be there.
    """
    rules, as_saved = recorded_rules(saved, ByteTokenizer())

    def trajectory(then: TrajectoryRecord) -> Trajectory:
        made = Trajectory(rules.limits[Role.SOLVER], [], saved.record.question or "")
        made.searches, made.result, made.ending = list(then.searches), then.result, then.ending
        return made

    record, game = saved.record, Game(saved.record.start)
    game.question, game.outcome = record.question, record.outcome
    game.attempts = [Attempt(trajectory(a), a.verdict, a.reward, a.outage) for a in record.attempts]
    return game, rules, as_saved


def _judge(played: list[tuple[Game, Rules]], judge: Judge) -> None:
    """New verdicts for all answers; attempts that gave none stay wrong, and void ones void."""
    asked = [
        (game, attempt, rules.config.fewest_attempts)
        for game, rules in played
        for attempt in game.counted
        if attempt.trajectory.result is not None
    ]
    tasks = [
        JudgeTask(game.question or "", attempt.trajectory.result or "", game.truth)
        for game, attempt, _ in asked
    ]
    results = ask_each(judge.judge, tasks)
    failed = [result for result in results if isinstance(result, ServiceError)]
    if failed and len(failed) == len(results):
        raise failed[0]

    for (game, attempt, fewest), result in zip(asked, results, strict=True):
        if isinstance(result, ServiceError):
            game.take_outage(attempt.trajectory, result, fewest)
            attempt.verdict = attempt.reward = None
        elif game.outcome is Outcome.VALID:
            attempt.verdict = game.verdict_on(attempt, result)


def _after(saved: SavedGame, game: Game, rules: Rules, named: Mapping[str, Any]) -> SavedGame:
    """The saved game with what its game is paid now, and by whom."""
    if game.outcome is Outcome.VALID:
        Referee(rules).finish(game)

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
    parts = replace(saved.rules.parts, **named)
    return SavedGame(replace(saved.rules, parts=parts), record)

"""Judges or pays saved games anew, offline: nothing is searched for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.game import Attempt, Game, ProposerReward, SolverReward
from ssp_env.game.outcome import Outcome
from ssp_env.game.referee import Referee, ask_each
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Judge, JudgeTask
from ssp_env.replay.files import SavedGame, name_of
from ssp_env.replay.play import Replay, recorded_rules, replay
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Role


@dataclass(frozen=True)
class Rescored:
    before: SavedGame
    after: SavedGame
    """With other verdicts and rewards; void if the new judge failed, invalid if a filter refuses
    its question by the new verdicts; unchanged if it was void or invalid before."""

    @property
    def changed(self) -> bool:
        """True if the outcome, a verdict or a reward is another one."""
        return _scores(self.before) != _scores(self.after)


def _scores(saved: SavedGame) -> tuple[object, ...]:
    record = saved.record
    attempts = [(a.right, a.reward) for a in record.attempts]
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
    """
    saved_games = list(saved_games)
    played = [
        _game(saved, proposer_reward, solver_reward, tokenizer)
        if saved.record.outcome is Outcome.VALID
        else None
        for saved in saved_games
    ]
    if judge is not None:
        _judge([one for one in played if one is not None], judge)

    given = {"judge": judge, "proposer_reward": proposer_reward, "solver_reward": solver_reward}
    named = {name: name_of(part) for name, part in given.items() if part is not None}
    return [
        Rescored(saved, saved if one is None else _after(saved, one.game, one.rules, named))
        for saved, one in zip(saved_games, played, strict=True)
    ]


def _game(
    saved: SavedGame,
    proposer_reward: ProposerReward | None,
    solver_reward: SolverReward | None,
    tokenizer: Tokenizer | str | Path | None,
) -> Replay:
    """The game as it was when it was over, and by what it is paid.

    The rewards that ship look at verdicts alone. For them its attempts need no tokens, so neither
    these nor a tokenizer have to be there.
    """
    if proposer_reward is not None or solver_reward is not None:
        rewards: Any = {"proposer_reward": proposer_reward, "solver_reward": solver_reward}
        return replay(saved, tokenizer, **rewards)

    rules, as_saved = recorded_rules(saved, ByteTokenizer())
    record, game = saved.record, Game(saved.record.start)
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
        for name in ("proposer_reward", "solver_reward"):
            if name in one.as_saved:
                fix = f"other verdicts have to be paid anew: pass {one.as_saved[name]}"
                raise ConfigError(name, None, fix)

    asked = [
        (one, attempt)
        for one in played
        for attempt in one.game.counted
        if attempt.trajectory.result is not None
    ]
    tasks = [
        JudgeTask(one.game.question or "", attempt.trajectory.result or "", one.game.truth)
        for one, attempt in asked
    ]
    results = ask_each("judge", judge.judge, tasks)
    failed = [result for result in results if isinstance(result, ServiceError)]
    if failed and len(failed) == len(results):
        raise failed[0]

    for (one, attempt), result in zip(asked, results, strict=True):
        attempt.reward = None
        Referee(one.rules).take_verdicts([(one.game, attempt)], [result])


def _after(saved: SavedGame, game: Game, rules: Rules, named: Mapping[str, Any]) -> SavedGame:
    """The saved game with what its game is paid now, and by whom."""
    if game.outcome is Outcome.VALID:
        Referee(rules).finish(game)

    # Attempts come last; proposer, verifier and closed book stay as they were.
    gates = len(saved.record.trajectories) - len(game.attempts)
    plays = [*saved.record.trajectories]
    plays[gates:] = [
        replace(then, verdict=now.verdict, reward=now.reward, outage=now.outage)
        for then, now in zip(plays[gates:], game.attempts, strict=True)
    ]
    record = replace(
        saved.record,
        outcome=game.outcome,
        reason=game.reason,
        outage=game.outage,
        solve_rate=game.solve_rate,
        proposer_reward=game.proposer_reward,
        solver_reward=game.solver_reward,
        trajectories=tuple(plays),
    )
    return SavedGame(replace(saved.rules, parts=replace(saved.rules.parts, **named)), record)

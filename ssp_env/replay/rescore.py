"""Judges or pays saved games anew, offline: nothing is played and nothing is searched for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ssp_env.checks import describe
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.game import Attempt, Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.referee import Referee
from ssp_env.game.rewards import ProposerReward, SolverReward
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Judge, JudgeTask
from ssp_env.replay.recorded import OwnCode, Recorded, check_saved, recorded_rules
from ssp_env.replay.saved import SavedGame, SavedParts, SavedTrajectory, results_of
from ssp_env.tokenizers import Tokenizer
from ssp_env.types import Document


@dataclass(frozen=True)
class Rescored:
    """A saved game before and after."""

    before: SavedGame
    after: SavedGame
    """With other verdicts and rewards; void if the new judge failed; unchanged if it was void or
    invalid before."""

    @property
    def changed(self) -> bool:
        """Whether the outcome, a verdict or a reward is another one."""
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
        tokenizer: as for :func:`~ssp_env.replay.play.replay`.

    Raises:
        ConfigError: a new judge over games that code of the user's own paid, and that code is not
            given; or the tokenizer is missing.
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
    valid = [saved for saved in saved_games if saved.outcome is Outcome.VALID]
    if judge is not None:
        for saved in valid:
            _check_paid(saved.parts, own)
    tables = [_restored(saved, tokenizer, own) for saved in valid]
    if judge is not None:
        _judge([game for game, _ in tables], judge)
    for game, rules in tables:
        if game.outcome is Outcome.VALID:
            Referee(rules).finish(game)
    after = iter(
        [_after(saved, game, judge, own) for saved, (game, _) in zip(valid, tables, strict=True)]
    )
    return [
        Rescored(saved, next(after) if saved.outcome is Outcome.VALID else saved)
        for saved in saved_games
    ]


def _scores(saved: SavedGame) -> tuple[object, ...]:
    attempts = [(a.verdict is not None and a.verdict.correct, a.reward) for a in saved.attempts]
    return saved.outcome, saved.proposer_reward, attempts


def _check_paid(parts: SavedParts, own: OwnCode) -> None:
    for name, given, is_own, function in (
        ("proposer_reward", own.proposer_reward, parts.pays_proposer_itself, parts.proposer_reward),
        ("solver_reward", own.solver_reward, parts.pays_solver_itself, parts.solver_reward),
    ):
        if is_own and given is None:
            raise ConfigError(
                name, None, f"other verdicts have to be paid anew: pass the function {function}"
            )


def _restored(
    saved: SavedGame, tokenizer: Tokenizer | str | Path | None, own: OwnCode
) -> tuple[Game, Rules]:
    """The game as it was when it was over, without playing it again."""
    rules = recorded_rules(
        saved, Recorded(saved, strict=False), saved.tokenizer.open(tokenizer), own
    )
    start, question = saved.start, saved.question or ""
    searches = saved.proposer.searches if saved.proposer is not None else ()
    evidence = {document.id: document for search in searches for document in search.documents}
    read = evidence | {item.document.id: item.document for item in saved.noise}
    materials = tuple(read[name] for name in saved.materials or () if name in read)

    def restore(
        trajectory: SavedTrajectory | None, about: str, documents: tuple[Document, ...] = ()
    ) -> Trajectory | None:
        return None if trajectory is None else _trajectory(trajectory, rules, about, documents)

    game = Game(
        start.seed,
        start.slot,
        start.group,
        start.truth,
        start.origin,
        proposer=restore(saved.proposer, start.truth.answer),
        question=saved.question,
        outcome=saved.outcome,
        reason=saved.reason,
        evidence=tuple(evidence.values()),
        noise=saved.noise,
        verifier=restore(saved.verifier, question, materials),
        verification=saved.verification,
        closed_book=restore(saved.closed_book, question),
        closed_book_verdict=saved.closed_book_verdict,
        attempts=[
            Attempt(_trajectory(a.trajectory, rules, question), a.verdict, a.reward)
            for a in saved.attempts
        ],
        proposer_reward=saved.proposer_reward,
        asked_searches=start.asked_searches,
    )
    return game, rules


def _trajectory(
    saved: SavedTrajectory, rules: Rules, about: str, documents: tuple[Document, ...] = ()
) -> Trajectory:
    prompt = list(saved.ids[: saved.runs[0]])
    trajectory = Trajectory(rules.limits[saved.role], prompt, about, documents)
    logprobs = iter(saved.logprobs)
    trajectory.ids, trajectory.mask = list(saved.ids), bytearray(saved.mask)
    trajectory.logprobs = array("d", (next(logprobs) if mine else 0.0 for mine in trajectory.mask))
    trajectory.searches, trajectory.result = list(saved.searches), saved.result
    trajectory.end(saved.ending)
    return trajectory


def _judge(games: Sequence[Game], judge: Judge) -> None:
    """New verdicts for all answers; attempts that gave none stay wrong."""
    asked = [
        (game, attempt)
        for game in games
        for attempt in game.attempts
        if attempt.trajectory.result is not None
    ]
    tasks = [
        JudgeTask(game.question or "", attempt.trajectory.result or "", game.truth)
        for game, attempt in asked
    ]
    results = judge.judge(tasks) if tasks else []
    if len(results) != len(tasks):
        raise UsageError(f"the judge gave {len(results)} results for {len(tasks)} tasks")
    for (game, attempt), result in zip(asked, results, strict=True):
        if isinstance(result, ServiceError):
            game.void(result)
        elif game.outcome is Outcome.VALID:
            attempt.verdict = result


def _after(saved: SavedGame, game: Game, judge: Judge | None, own: OwnCode) -> SavedGame:
    parts = replace(
        saved.parts, **SavedParts.scorers(judge, own.proposer_reward, own.solver_reward)
    )
    return replace(saved, **results_of(game), parts=parts)

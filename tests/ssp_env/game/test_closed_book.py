"""The closed-book gate: a question that the solver answers from memory teaches no searching, and is
rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from scripted import Script, begin, by_role, play, prompt_of, propose, records, rules_of, solve

from ssp_env.errors import ServiceError
from ssp_env.game.config import GameConfig
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Role
from ssp_env.worlds.mini import MiniWorld

IGNORANT = "<answer> nothing </answer>"


def with_memory(memory: Any, proposer: Script | None = None) -> Script:
    """Proposes, solves, and says from memory what ``memory`` says: a text, or a function of the
    trajectory."""
    others = by_role(proposer or propose(), solve)

    def script(trajectory: Trajectory) -> str | list[int]:
        if trajectory.role is not Role.CLOSED_BOOK:
            return others(trajectory)
        return memory(trajectory) if callable(memory) else memory  # type: ignore[no-any-return]

    return script


def knows(played: Round, slots: Sequence[int]) -> Any:
    """A memory that holds the answers of these games alone."""

    def memory(trajectory: Trajectory) -> str:
        game = next(g for g in played.games if g.closed_book is trajectory)
        return f"<answer> {game.truth.answer} </answer>" if game.slot in slots else IGNORANT

    return memory


def test_what_is_known_by_heart_is_rejected(mini: MiniWorld, words: WordTokenizer) -> None:
    played = begin(rules_of(mini, words, closed_book=True, invalid_reward=-0.5, attempts=2))
    play(played, with_memory(knows(played, [1, 2])))
    for game in played.games:
        known = game.slot in (1, 2)
        assert game.closed_book_verdict is not None
        assert game.closed_book_verdict.correct is known
        assert game.verification is not None, "the gate comes after verification"
        if known:
            assert (game.outcome, game.reason, game.proposer_reward) == (
                Outcome.INVALID,
                "closed_book",
                -0.5,
            )
            assert game.attempts == []
        else:
            assert (game.outcome, game.reason, len(game.attempts)) == (Outcome.VALID, None, 2)
    closed = [record.closed_book for record in records(played)]
    assert [verdict.correct for verdict in closed if verdict is not None] == [
        False,
        True,
        True,
        False,
    ]


def test_the_solver_sees_the_question_and_nothing_else(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    seen = []

    def memory(trajectory: Trajectory) -> str:
        seen.append(
            (prompt_of(trajectory), trajectory.about, trajectory.documents, trajectory.searches)
        )
        return IGNORANT

    played = play(begin(rules_of(mini, words, closed_book=True), slots=1), with_memory(memory))
    question = played.games[0].question
    assert seen == [(f"read nothing question {question} :", question, (), [])]


def test_off_by_default(mini: MiniWorld, words: WordTokenizer) -> None:
    assert GameConfig().closed_book is False
    played = play(begin(rules_of(mini, words)), by_role(propose(), solve))
    assert [(game.closed_book, game.closed_book_verdict) for game in played.games] == [
        (None, None)
    ] * 4
    assert [record.closed_book for record in records(played)] == [None] * 4


def test_the_gate_follows_the_policys_own_verification(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    answers = "<answer> {} </answer>".format
    rules = rules_of(mini, words, closed_book=True, verifier="policy")
    played = begin(rules, slots=1)

    def script(trajectory: Trajectory) -> str | list[int]:
        roles.append(trajectory.role)
        reads = trajectory.role is Role.VERIFIER
        return answers(played.games[0].truth.answer) if reads else with_memory(IGNORANT)(trajectory)

    roles: list[Role] = []
    play(played, script)
    order = list(dict.fromkeys(roles))
    assert order == [Role.PROPOSER, Role.VERIFIER, Role.CLOSED_BOOK, Role.SOLVER]
    assert played.games[0].outcome is Outcome.VALID


class Fails(ExactMatchJudge):
    """Cannot judge one answer."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        results = super().judge(tasks)
        return [
            ServiceError("judge", "down") if task.prediction == "what" else result
            for task, result in zip(tasks, results, strict=True)
        ]


def test_an_outage_of_the_judge_voids_the_game_that_it_hit(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    played = begin(rules_of(mini, words, closed_book=True, judge=Fails(), attempts=2))
    hit = "<answer> what </answer>"
    play(played, with_memory(lambda t: hit if played.games[1].closed_book is t else IGNORANT))
    assert [game.outcome for game in played.games] == [
        Outcome.VALID,
        Outcome.VOID,
        Outcome.VALID,
        Outcome.VALID,
    ]
    game = played.games[1]
    assert (game.reason, game.proposer_reward, game.closed_book_verdict, game.attempts) == (
        "judge",
        None,
        None,
        [],
    )


# -- what it pays ------------------------------------------------------------------------------


def sandbagging(trajectory: Trajectory) -> str | list[int]:
    """Knows the answer, and does not say so at the gate."""
    return IGNORANT if trajectory.role is Role.CLOSED_BOOK else solve(trajectory)


@pytest.mark.parametrize("door", ["aec", "rllib", "text", "batch"])
def test_playing_dumb_at_the_gate_does_not_pay(mini: MiniWorld, door: str) -> None:
    """Behind every door where the solver plays the gate: the honest one earns as much."""
    import all_doors as doors

    game = {"closed_book": True, "attempts": 1}
    paid = {}
    for honest in (True, False):
        truth: list[str] = []

        def script(trajectory: Trajectory, truth: list[str] = truth, honest: bool = honest) -> Any:
            if trajectory.role is Role.PROPOSER:
                truth[:] = [trajectory.about]
                return propose()(trajectory)
            if trajectory.role is Role.CLOSED_BOOK and honest:
                return f"<answer> {truth[0]} </answer>"
            return sandbagging(trajectory)

        if door == "batch":
            (told,) = doors.batch(range(5, 6), script, world=mini, game=game)
        else:
            told = getattr(doors, door)(5, script, world=mini, game=game)
        assert told.record.reason == ("closed_book" if honest else None)
        paid[honest] = told.rewards

    assert paid[True] == {"proposer": 0.0, "solver": 1.0}
    assert paid[False]["solver"] <= paid[True]["solver"]

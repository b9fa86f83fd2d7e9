"""Outages: they void the games that are hit, whole and alone, and never become a reward or an
observation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from scripted import begin, by_role, play, propose, records, rules_of, say, solve

from ssp_env.errors import ServiceError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.round import Phase
from ssp_env.judge.base import Verdict
from ssp_env.judge.exact import ExactMatchJudge, WorldVerifier
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld


class Failing(BM25Retriever):
    """Cannot answer some queries, nor any batch that holds one of them."""

    def __init__(self, world: MiniWorld, *bad: str) -> None:
        super().__init__(world.corpus)
        self.bad = set(bad)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        if self.bad & set(queries):
            raise ServiceError("search", "down")
        return super().search(queries, k)


def check_void(game: Game, service: str) -> None:
    """Nobody is rewarded, nothing is judged, nothing is left alive."""
    assert (game.outcome, game.reason) == (Outcome.VOID, service)
    assert (game.proposer_reward, game.solve_rate) == (None, None)
    assert all((attempt.reward, attempt.verdict) == (None, None) for attempt in game.attempts)
    assert all(trajectory.done for trajectory in game.trajectories())


def test_a_query_that_fails_voids_exactly_its_game(mini: MiniWorld, words: WordTokenizer) -> None:
    changes = {"noise_documents": 0, "attempts": 2}
    healthy = play(begin(rules_of(mini, words, **changes), slots=6), by_role(propose()))
    bad = [healthy.games[i].truth.answer for i in (1, 4)]
    played = play(
        begin(rules_of(mini, words, retriever=Failing(mini, *bad), **changes), slots=6),
        by_role(propose()),
    )
    assert played.phase is Phase.DONE
    for i, game in enumerate(played.games):
        if i in (1, 4):
            check_void(game, "search")
            assert game.proposer is not None
            assert (game.proposer.ending, game.proposer.searches) == (Ending.OUTAGE, [])
    unhurt = [i for i in range(6) if i not in (1, 4)]
    before, after = records(healthy), records(played)
    assert [after[i] for i in unhurt] == [before[i] for i in unhurt]


@pytest.mark.parametrize("index", [0, 2])
def test_a_failing_query_of_one_attempt_voids_that_attempt_alone(
    mini: MiniWorld, words: WordTokenizer, index: int
) -> None:
    retriever = Failing(mini, "mentor")
    played = begin(rules_of(mini, words, retriever=retriever, attempts=3), slots=3)

    def solver(trajectory: Any) -> Any:
        unlucky = trajectory is played.games[1].attempts[index].trajectory
        return "<search> mentor </search>" if unlucky else solve(trajectory)

    play(played, by_role(propose(), solver))
    assert [game.outcome for game in played.games] == [Outcome.VALID] * 3
    game = played.games[1]
    check_void_attempts(game, "search", [index])
    assert (game.solve_rate, game.solver_reward, game.proposer_reward) == (1.0, 1.0, 0.0)


def check_void_attempts(game: Game, service: str, void: Sequence[int]) -> None:
    """Those attempts are void, the others are judged and paid, and rewards are over them alone."""
    for i, attempt in enumerate(game.attempts):
        assert attempt.trajectory.done
        if i in void:
            assert attempt.outage is not None
            assert (attempt.outage.service, attempt.verdict, attempt.reward) == (
                service,
                None,
                None,
            )
        else:
            assert attempt.outage is None
            assert attempt.verdict is not None
            assert attempt.reward == float(attempt.right)
    counted = [attempt.reward for attempt in game.attempts if attempt.reward is not None]
    assert game.solver_reward == sum(counted) / len(counted)
    assert game.proposer_reward == 1 - game.share_right


@pytest.mark.parametrize(
    ("attempts", "hit", "outcome"),
    [
        (1, 1, "void"),
        (2, 1, "void"),
        (3, 1, "valid"),
        (3, 2, "void"),
        (5, 2, "valid"),
        (5, 3, "void"),
        (6, 3, "valid"),
    ],
)
def test_a_game_is_void_if_too_few_attempts_remain(
    mini: MiniWorld, words: WordTokenizer, attempts: int, hit: int, outcome: str
) -> None:
    played = begin(rules_of(mini, words, attempts=attempts), slots=1)
    while played.phase is not Phase.SOLVE:
        for trajectory in played.pending():
            trajectory.feed(words.encode(str(propose()(trajectory))))
        played.advance()

    (game,) = played.games
    played.void(played.pending()[:hit], ServiceError("engine", "out of memory"))
    play(played, solve)
    assert game.outcome == outcome
    if outcome == "void":
        check_void(game, "engine")
    else:
        check_void_attempts(game, "engine", range(hit))


# -- judge -------------------------------------------------------------------------------------


class FailingJudge(ExactMatchJudge):
    """Cannot judge answers to one question, or nothing at all."""

    def __init__(self, question: str | None, raises: bool = False) -> None:
        self.question, self.raises = question, raises

    def judge(self, tasks: Any) -> Any:
        if self.raises:
            raise ServiceError("judge", "down")
        error = ServiceError("judge", "down")
        verdicts = super().judge(tasks)
        return [
            error if t.question == self.question else v
            for t, v in zip(tasks, verdicts, strict=True)
        ]


def test_one_verdict_that_fails_voids_its_attempt_alone(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    class Once(ExactMatchJudge):
        def judge(self, tasks: Any) -> Any:
            return [*super().judge(tasks)[:-1], ServiceError("judge", "down")]

    played = play(
        begin(rules_of(mini, words, attempts=3, judge=Once()), slots=2), by_role(propose())
    )
    assert played.games[0].solve_rate == played.games[1].solve_rate == 1.0
    check_void_attempts(played.games[1], "judge", [2])


class Refuses(ExactMatchJudge):
    """Will not deal with some answers, for a reason."""

    def __init__(self, answer: str, fault: str) -> None:
        self.answer, self.fault, self.asked = answer, fault, 0

    def judge(self, tasks: Any) -> Any:
        self.asked += len(tasks)
        error = ServiceError("judge", "HTTP 400", fault=self.fault)
        verdicts = super().judge(tasks)
        return [
            error if task.prediction == self.answer else verdict
            for task, verdict in zip(tasks, verdicts, strict=True)
        ]


@pytest.mark.parametrize("others", [0, 2])
def test_an_answer_that_the_judge_will_not_deal_with_is_wrong(
    mini: MiniWorld, words: WordTokenizer, others: int
) -> None:
    judge = Refuses("what is", "text")
    played = begin(rules_of(mini, words, attempts=1 + others, judge=judge), slots=1)

    def solver(trajectory: Any) -> Any:
        floods = trajectory is played.games[0].attempts[0].trajectory
        return "<answer> what is </answer>" if floods else solve(trajectory)

    (game,) = play(played, by_role(propose(), solver)).games
    assert game.outcome is Outcome.VALID
    assert game.solve_rate == others / (1 + others)
    assert game.attempts[0].verdict == Verdict(False, "refused: HTTP 400")
    assert judge.asked == 1 + others


def test_an_answer_beyond_its_limit_is_wrong_without_a_judge(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    rules = rules_of(mini, words, attempts=1, max_answer_tokens=3, judge=FailingJudge(None, True))
    flood = say("<answer> what is it ? </answer>")
    for game in play(begin(rules), by_role(propose(), flood)).games:
        assert (game.outcome, game.solve_rate, game.proposer_reward) == (Outcome.VALID, 0.0, 1.0)
        attempt = game.attempts[0]
        assert (attempt.trajectory.ending, attempt.trajectory.result) == ("budget_answer", None)


@pytest.mark.parametrize("role", ["proposer", "solver"])
def test_a_query_that_the_server_refuses_is_its_writers_fault(
    mini: MiniWorld, words: WordTokenizer, role: str
) -> None:
    class Picky(BM25Retriever):
        def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
            if "what" in queries:
                raise ServiceError("search", "HTTP 413", fault="text")
            return super().search(queries, k)

    asks = say("<search> what </search>")
    script = by_role(asks) if role == "proposer" else by_role(propose(), asks)
    (game,) = play(begin(rules_of(mini, words, retriever=Picky(mini.corpus)), 1), script).games
    if role == "proposer":
        assert (game.outcome, game.reason) == (Outcome.INVALID, "refused")
    else:
        assert (game.outcome, game.solve_rate) == (Outcome.VALID, 0.0)
        assert game.attempts[0].trajectory.ending is Ending.REFUSED


# -- verifier ----------------------------------------------------------------------------------


class FailingVerifier(WorldVerifier):
    """Cannot verify some answers' questions, or nothing at all."""

    def __init__(self, world: MiniWorld, answer: str | None) -> None:
        super().__init__(world)
        self.answer = answer

    def verify(self, tasks: Any) -> Any:
        if self.answer is None:
            raise ServiceError("verifier", "down")
        error = ServiceError("verifier", "down")
        return [error if t.truth.answer == self.answer else self._verdict(t) for t in tasks]


def test_a_dead_verifier_voids_everything(mini: MiniWorld, words: WordTokenizer) -> None:
    verifier = FailingVerifier(mini, None)
    for game in play(begin(rules_of(mini, words, own_verifier=verifier)), by_role(propose())).games:
        check_void(game, "verifier")


# -- engine ------------------------------------------------------------------------------------


def test_an_engine_that_fails_voids_what_it_was_asked_for(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    played = begin(rules_of(mini, words, attempts=2), slots=3)
    played.void([played.pending()[1]], ServiceError("engine", "out of memory"))
    assert len(played.pending()) == 2
    play(played, by_role(propose()))
    assert [game.outcome for game in played.games] == [Outcome.VALID, Outcome.VOID, Outcome.VALID]
    check_void(played.games[1], "engine")

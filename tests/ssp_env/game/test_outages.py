"""Outages: they void what they hit, whole and alone, never become a reward or an observation, and
are played again as they were."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from hostile import serving
from hypothesis import given
from hypothesis import strategies as st
from scripted import again, begin, by_role, play, propose, records, rules_of, say, solve, turn

from ssp_env.errors import ServiceError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.round import Phase, Round
from ssp_env.judge.base import Verdict
from ssp_env.judge.exact import ExactMatchJudge, WorldVerifier
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.tokenizers import WordTokenizer
from ssp_env.worlds.mini import MiniWorld


def check_outages(game: Game) -> None:
    """A void game rewards nobody and leaves nothing alive; a void attempt does not count."""
    assert all(trajectory.done for trajectory in game.trajectories())
    if game.outcome is Outcome.VOID:
        assert (game.proposer_reward, game.solve_rate, game.solver_reward) == (None, None, None)
        assert all((a.reward, a.verdict) == (None, None) for a in game.attempts)
        assert game.outage is not None
        assert game.outage.service == game.reason
        return

    assert game.outcome is Outcome.VALID
    for attempt in game.attempts:
        void = attempt.outage is not None
        assert (attempt.verdict is None) == (attempt.reward is None) == void
    rewards = [attempt.reward for attempt in game.attempts if attempt.reward is not None]
    assert 2 * len(rewards) >= len(game.attempts)
    assert game.solver_reward == sum(rewards) / len(rewards)
    assert game.proposer_reward == 1 - game.share_right


class Chance:
    """Services that fail on some texts, which follow from a number."""

    def __init__(self, salt: int, percent: int, raises: bool) -> None:
        self.salt, self.percent, self.raises = salt, percent, raises

    def fails(self, service: str, *about: object) -> bool:
        return zlib.crc32(repr((self.salt, service, about)).encode()) % 100 < self.percent

    def parts(self, world: MiniWorld) -> dict[str, Any]:
        """A retriever, a judge and a verifier that fail so."""
        fails, raises = self.fails, self.raises

        def or_down(service: str, down: bool, result: Any) -> Any:
            return ServiceError(service, "down", calls=3) if down else result

        class Search(BM25Retriever):
            def search(self, queries: Sequence[str], k: int) -> Any:
                if raises and any(fails("search", query) for query in queries):
                    raise ServiceError("search", "down", calls=3)
                found = super().search(queries, k)
                both = zip(queries, found, strict=True)
                return [or_down("search", fails("search", q), r) for q, r in both]

        class Judge(ExactMatchJudge):
            def judge(self, tasks: Any) -> Any:
                both = zip(tasks, super().judge(tasks), strict=True)
                return [or_down("panel", fails("panel", t.prediction), v) for t, v in both]

        class Verifier(WorldVerifier):
            def verify(self, tasks: Any) -> Any:
                both = zip(tasks, super().verify(tasks), strict=True)
                return [or_down("verifier", fails("verifier", t.question), v) for t, v in both]

        return {
            "retriever": Search(world.corpus),
            "judge": Judge(),
            "own_verifier": Verifier(world),
        }


def play_with(played: Round, chance: Chance | None) -> set[int]:
    """Plays a round whose attempts differ; returns the slots where the engine failed."""
    hit = set()
    while pending := played.pending():
        for game in played.games:
            attempts = [attempt.trajectory for attempt in game.attempts]
            for trajectory in game.trajectories():
                if trajectory.done or not any(trajectory is one for one in pending):
                    continue
                number = attempts.index(trajectory) if trajectory in attempts else -1
                about = game.slot, number, len(trajectory.searches)
                if chance is not None and chance.fails("engine", *about):
                    trajectory.feed([5, 6])  # it fails in the middle of a turn
                    played.void([trajectory], ServiceError("engine", "out of memory"))
                    hit.add(game.slot)
                else:
                    word = ("mentor", "rival", "owner", "heir")[number]
                    other = say(f"<search> {word} </search>", f"<answer> {word} </answer>")
                    script = solve if number < 1 else other
                    trajectory.feed(turn(trajectory, by_role(propose(2), script)))
        played.advance()
    return hit


@given(
    salt=st.integers(0, 999),
    percent=st.sampled_from([5, 15, 40]),
    raises=st.booleans(),
    attempts=st.integers(1, 4),
)
def test_outages_void_what_they_hit_and_nothing_else(
    mini: MiniWorld, words: WordTokenizer, salt: int, percent: int, raises: bool, attempts: int
) -> None:
    chance = Chance(salt, percent, raises)
    changes = {"noise_documents": 0, "attempts": attempts}
    healthy = begin(rules_of(mini, words, **changes), slots=3)
    play_with(healthy, None)
    rules = rules_of(mini, words, **changes, **chance.parts(mini))
    played = begin(rules, slots=3)
    hit = play_with(played, chance)
    assert played.phase is Phase.DONE

    for before, after in zip(records(healthy), records(played), strict=True):
        queries = [s.query for t in before.trajectories for s in t.searches]
        down = [chance.fails("search", query) for query in queries]
        down += [chance.fails("panel", attempt.result) for attempt in before.attempts]
        down += [chance.fails("verifier", before.question)]
        game = played.games[after.slot]
        if any(down) or after.slot in hit:
            check_outages(game)
            assert after.outcome == "void" or any(a.outage for a in after.attempts)
        else:
            assert after == before
        again(game, rules)


@pytest.mark.parametrize(
    ("attempts", "hit", "outcome"),
    [(1, 1, "void"), (2, 1, "void"), (3, 1, "valid"), (3, 2, "void"), (6, 3, "valid")],
)
def test_a_game_is_void_if_too_few_attempts_remain(
    mini: MiniWorld, words: WordTokenizer, attempts: int, hit: int, outcome: str
) -> None:
    rules = rules_of(mini, words, attempts=attempts)
    played = begin(rules, slots=1)
    while played.phase is not Phase.SOLVE:
        for trajectory in played.pending():
            trajectory.feed(words.encode(str(propose()(trajectory))))
        played.advance()
    played.void(played.pending()[:hit], ServiceError("engine", "out of memory"))
    (game,) = play(played, solve).games
    assert game.outcome == outcome
    check_outages(game)


# -- a text that a service refuses is its writer's fault ---------------------------------------


class Refusing(BM25Retriever):
    """A search server that will not answer one query."""

    def search(self, queries: Sequence[str], k: int) -> Any:
        if "what" in queries:
            raise ServiceError("search", "HTTP 413", fault="text")
        return super().search(queries, k)


class RefusingJudge(ExactMatchJudge):
    """A judge that will not deal with one answer."""

    def judge(self, tasks: Any) -> Any:
        error = ServiceError("judge", "HTTP 400", fault="text")
        both = zip(tasks, super().judge(tasks), strict=True)
        return [error if task.prediction == "what is" else verdict for task, verdict in both]


def test_a_query_that_the_server_refuses(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words, retriever=Refusing(mini.corpus))
    asks = say("<search> what </search>")
    (game,) = play(begin(rules, 1), by_role(asks)).games
    assert (game.outcome, game.reason) == (Outcome.INVALID, "refused")
    again(game, rules)
    (game,) = play(begin(rules, 1), by_role(propose(), asks)).games
    assert (game.outcome, game.solve_rate) == (Outcome.VALID, 0.0)
    assert game.attempts[0].trajectory.ending is Ending.REFUSED
    again(game, rules)


@pytest.mark.parametrize("others", [0, 2])
def test_an_answer_that_the_judge_refuses(
    mini: MiniWorld, words: WordTokenizer, others: int
) -> None:
    played = begin(rules_of(mini, words, attempts=1 + others, judge=RefusingJudge()), slots=1)

    def solver(trajectory: Any) -> Any:
        floods = trajectory is played.games[0].attempts[0].trajectory
        return "<answer> what is </answer>" if floods else solve(trajectory)

    (game,) = play(played, by_role(propose(), solver)).games
    assert (game.outcome, game.solve_rate) == (Outcome.VALID, others / (1 + others))
    assert game.attempts[0].verdict == Verdict(False, "refused: HTTP 400")


def test_an_answer_beyond_its_limit_is_wrong_without_a_judge(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    class Dead:
        def judge(self, tasks: Any) -> Any:
            raise ServiceError("judge", "down")

    rules = rules_of(mini, words, max_response_tokens=600, judge=Dead())
    flood = say(f"<answer> {'what ' * 257} </answer>")
    for game in play(begin(rules), by_role(propose(), flood)).games:
        assert (game.outcome, game.solve_rate, game.proposer_reward) == (Outcome.VALID, 0.0, 1.0)
        assert game.attempts[0].trajectory.ending is Ending.BUDGET_ANSWER


# -- over real sockets -------------------------------------------------------------------------


def test_rounds_over_http(
    mini: MiniWorld, words: WordTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those in process; once the server dies, what searches is void."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("ssp_env.net.FIRST_PAUSE", 0.001)
    index, script = BM25Retriever(mini.corpus), by_role(propose())

    def rank(query: str, k: int) -> list[dict[str, Any]]:
        return [
            {"document": {"id": d.id, "contents": f'"{d.title}"\n{d.text}'}, "score": d.score}
            for d in index.search([query], k)[0]
        ]

    local = play(begin(rules_of(mini, words), slots=6), script)
    with (
        serving(rank=rank) as server,
        HTTPRetriever(HTTPConfig(url=server.url, deadline=3)) as retriever,
    ):
        rules = rules_of(mini, words, retriever=retriever)
        assert records(play(begin(rules, slots=6), script)) == records(local)

        played = begin(rules, slots=4)
        while not any(game.attempts for game in played.games):
            for trajectory in played.pending():
                trajectory.feed(turn(trajectory, script))
            played.advance()
        server.stop()
        died = time.monotonic()
        assert {game.outcome for game in play(played, script).games} == {Outcome.VOID}
        assert time.monotonic() - died < 10

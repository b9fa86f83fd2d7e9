"""A round of games whose searches go over HTTP: the same games, and of an outage exactly those that
were hit."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import hostile
import pytest
from hostile import serving
from scripted import begin, by_role, play, propose, records, rules_of, turn

from ssp_env.game.outcome import Outcome
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.tokenizers import WordTokenizer
from ssp_env.worlds.mini import MiniWorld


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("ssp_env.net.FIRST_PAUSE", 0.001)


def bm25(world: MiniWorld) -> Any:
    """A server's ranking, over a world's corpus; marks in the query are not searched for."""
    index = BM25Retriever(world.corpus)

    def rank(query: str, k: int) -> list[dict[str, Any]]:
        return [
            {"document": {"id": d.id, "contents": f'"{d.title}"\n{d.text}'}, "score": d.score}
            for d in index.search([query], k)[0]
        ]

    return rank


def test_a_round_over_http_is_the_round_in_process(mini: MiniWorld, words: WordTokenizer) -> None:
    local = play(begin(rules_of(mini, words), slots=6), by_role(propose()))
    with serving(rank=bm25(mini)) as server, HTTPRetriever(HTTPConfig(url=server.url)) as retriever:
        remote = play(
            begin(rules_of(mini, words, retriever=retriever), slots=6), by_role(propose())
        )
    assert records(remote) == records(local)


@pytest.mark.parametrize("mark", ["down", "truncated", "reset", "html", "flat"])
def test_a_round_in_progress_voids_exactly_the_games_that_were_hit(
    mini: MiniWorld, words: WordTokenizer, mark: str
) -> None:
    changes: dict[str, Any] = {"noise_documents": 0, "attempts": 2}
    healthy = play(begin(rules_of(mini, words, **changes), slots=8), by_role(propose()))
    bad = [healthy.games[i].truth.answer for i in (1, 4, 5)]
    with serving(rank=bm25(mini)) as server:
        misbehave = hostile.BEHAVIOURS[mark]

        async def usual(call: hostile.Call) -> None:
            await (misbehave if set(bad) & set(call.queries) else hostile.Call.well)(call)

        server.usual = usual
        config = HTTPConfig(url=server.url, attempts=3)
        with HTTPRetriever(config) as retriever:
            played = play(
                begin(rules_of(mini, words, retriever=retriever, **changes), slots=8),
                by_role(propose()),
            )
    # The proposer searches for its answer, so that these games' first searches were hit; a solver
    # may have asked for the same word in another game, which then was hit as well.
    hit = {
        i
        for i, game in enumerate(healthy.games)
        if any(
            search.query in bad
            for trajectory in game.trajectories()
            for search in trajectory.searches
        )
    }
    assert {1, 4, 5} <= hit != set(range(8))
    for i, game in enumerate(played.games):
        if i in hit:
            assert (game.outcome, game.reason) == (Outcome.VOID, "search")
            assert (game.proposer_reward, game.solve_rate) == (None, None)
            assert all(
                (attempt.reward, attempt.verdict) == (None, None) for attempt in game.attempts
            )
    before, after = records(healthy), records(played)
    assert [after[i] for i in range(8) if i not in hit] == [
        before[i] for i in range(8) if i not in hit
    ]


def test_a_server_that_dies_in_a_round_voids_what_searches_from_then_on(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(rank=bm25(mini)))
        retriever = stack.enter_context(HTTPRetriever(HTTPConfig(url=server.url, attempts=3)))
        played = begin(rules_of(mini, words, retriever=retriever, attempts=2), slots=4)
        script = by_role(propose())
        died = None
        while pending := played.pending():
            for trajectory in pending:
                trajectory.feed(turn(trajectory, script))
            if died is None and any(game.attempts for game in played.games):
                server.stop()
                died = time.monotonic()
            played.advance()
        assert died is not None
        assert {game.outcome for game in played.games} == {Outcome.VOID}
        assert time.monotonic() - died < 10

"""The search server: Search-R1's protocol, what it refuses, how it batches, starts and stops."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from serverkit import Served, in_thread

from ssp_env.errors import ServiceError, TransientServiceError
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.config import MINI_GAME
from ssp_env.game.protocol import Tags
from ssp_env.game.rules import Rules, is_remote
from ssp_env.players import MiniPlayer, play_by
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.client import HTTPRetriever
from ssp_env.search.index import SearchConfig, check_search
from ssp_env.search.pages import pages_of
from ssp_env.search.server import Batcher, Rankings, build_app
from ssp_env.search.wrappers import HybridRetriever
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld

TOKEN = "correct-horse-battery"
SECRET = "the password is hunter2"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class Obedient:
    """Finds ``k`` passages about a query, once its gate is open; some queries make it misbehave."""

    def __init__(self, seconds: float = 0.0, gated: bool = False) -> None:
        self.seconds, self.gate = seconds, threading.Event()
        self.calls: list[tuple[list[str], int]] = []
        if not gated:
            self.gate.set()

    def search(self, queries: Sequence[str], k: int) -> Rankings:
        self.calls.append((list(queries), k))
        assert self.gate.wait(60)
        time.sleep(0.5 if "hang" in queries else self.seconds)
        if "poison" in queries:
            raise ValueError(SECRET)
        if "refused" in queries:
            raise ServiceError("search", SECRET, fault="text")
        if "outage" in queries:
            raise TransientServiceError("search", SECRET)
        return [[self.passage(query, rank) for rank in range(k)] for query in queries]

    def passage(self, query: str, rank: int) -> Document:
        score = float("nan") if query == "nan" else 1.0 / (1 + rank)
        return Document(f"{query}/{rank}", f"About {query}", f"Text {rank}\nof {query}", score)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with in_thread(build_app(Obedient())) as served:
        yield served


@pytest.mark.parametrize("count", [0, 1, 600])
def test_a_search_r1_client_gets_one_ranking_per_query(served: Served, count: int) -> None:
    queries = [f"query {number} Ω\0" for number in range(count)]
    bare = [
        [{"id": f"{q}/{i}", "contents": f'"About {q}"\nText {i}\nof {q}'} for i in range(2)]
        for q in queries
    ]
    scored = [[{"document": d, "score": 1 / (1 + i)} for i, d in enumerate(r)] for r in bare]
    # As Search-R1's rollout asks (search_r1/llm_agent/generation.py).
    assert served.retrieve(*queries, topk=2, return_scores=True).json()["result"] == scored
    assert served.retrieve(*queries, topk=2).json()["result"] == bare


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 422, "queries: Field required"),
        ({"queries": ["a\ud800", 3]}, 422, "queries.1: Input should be a valid string"),
        ({"queries": ["a"], "topk": 0}, 422, "topk: .* greater than or equal to 1"),
        ({"queries": ["a"], "topk": 101}, 422, "topk: .* less than or equal to 100"),
        ({"queries": ["a"] * 16_385}, 422, "at most 16384 items"),
        ({"queries": ["poison"]}, 500, "the search failed"),
        ({"queries": ["nan"], "return_scores": True}, 500, "the search failed"),
        ({"queries": ["refused"]}, 422, "refuses this text"),
        ({"queries": ["outage"]}, 503, "not available"),
        (b"x" * 17 * 2**20, 413, ""),
        (b'{"queries": ["\xff"]}', 400, ""),
    ],
)
def test_a_wrong_request_and_a_failing_retriever_are_no_ranking(
    served: Served, body: Any, status: int, says: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = httpx.post(f"{served.url}/retrieve", content=content, timeout=30, verify=False)
    assert answer.status_code == status
    assert not says or re.search(says, answer.json()["detail"])
    assert SECRET not in answer.text
    assert len(answer.text) < 500
    assert ("retry-after" in answer.headers) == (status == 503)


def test_pages_of_what_is_searched_are_read(served: Served) -> None:
    """By the client of a game that opens them, also behind other retrievers."""
    world = MiniWorld(seed=3, entities=60)
    titles = [page.title for page in world.corpus[:2]]
    with (
        in_thread(build_app(BM25Retriever(world.corpus))) as mine,
        HTTPRetriever(mine.url, deadline=5.0) as asked,
    ):
        pages = pages_of(HybridRetriever([asked]))
        assert pages is not None
        found = pages.search([*titles, "nobody"], 100)
        assert [[page.id for page in each] for each in found] == [[titles[0]], [titles[1]], []]
        assert is_remote(pages)
        assert pickle.loads(pickle.dumps(pages)).url == f"{mine.url}/open"
        check_search(SearchConfig.of(mine.url), ("search", "open"))

        tags = Tags(tools=("open",))
        tokenizer = WordTokenizer(world.vocabulary, tags.all())
        game = MINI_GAME.replace(tools=("search", "open"), attempts=1)
        rules = Rules.build(world, tokenizer, game, retriever=asked)
        batch = play_by(GameBatch(rules, answers_of(world), 2, [1]), MiniPlayer(tags, hops=2))
        assert [game.outcome for game in batch.games] == ["valid", "valid"]

    # A retriever without a corpus has no pages.
    check_search(SearchConfig.of(served.url))
    with pytest.raises(ServiceError, match=r"leave open out of game\.tools"):
        check_search(SearchConfig.of(served.url), ("search", "open"))


def test_every_path_but_the_probe_wants_the_token() -> None:
    with in_thread(build_app(Obedient(), TOKEN)) as served:
        for given in ("", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"):
            assert served.retrieve("q", headers={"Authorization": given}).status_code == 401
        assert httpx.get(f"{served.url}/openapi.json").status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert served.retrieve("q", headers=right).status_code == 200
        assert httpx.get(f"{served.url}/healthz").text == "ok"


def play(
    retriever: Obedient, requests: list[tuple[list[str], int]], given_up: int | None = None
) -> list[Any]:
    """The outcomes of requests that arrived while the retriever was busy with another: the queries
    that the first documents are about, or an error.

    ``given_up`` is cancelled before the last one arrives."""

    async def run() -> list[Any]:
        batcher = Batcher(retriever)
        tasks = [asyncio.create_task(batcher.search(["first"], 1))]
        while not retriever.calls:
            await asyncio.sleep(0.001)
        for number, (queries, k) in enumerate(requests, start=1):
            if given_up is not None and number == len(requests):
                tasks[given_up + 1].cancel()
            tasks.append(asyncio.create_task(batcher.search(queries, k)))
            await asyncio.sleep(0.01)
        retriever.gate.set()
        return (await asyncio.gather(*tasks, return_exceptions=True))[1:]

    outcomes = asyncio.run(run())
    del retriever.calls[0]
    return [
        [each[0].id.removesuffix("/0") for each in found]
        if isinstance(found, list)
        else type(found)
        for found in outcomes
    ]


def test_requests_that_wait_share_a_call_for_each_k_and_a_large_one_has_its_own() -> None:
    retriever = Obedient(gated=True)
    large = [f"q{n}" for n in range(300)]
    requests = [([f"a{n}", f"b{n}"], 3 if n % 2 else 5) for n in range(4)] + [(large, 5)]
    assert play(retriever, requests) == [queries for queries, _ in requests]
    assert retriever.calls == [
        (["a0", "b0", "a2", "b2"], 5),
        (["a1", "b1", "a3", "b3"], 3),
        (large, 5),
    ]


def test_a_request_that_the_retriever_chokes_on_fails_alone() -> None:
    outcomes = play(Obedient(gated=True), [([q], 1) for q in ("a", "poison", "refused", "c")])
    assert outcomes == [["a"], ValueError, ServiceError, ["c"]]


def test_the_queue_is_bounded_and_a_request_that_was_given_up_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ssp_env.search.server.MAX_WAITING", 3)
    retriever = Obedient(gated=True)
    outcomes = play(retriever, [(["a"], 1), (["b"], 1), (["full"], 1), (["c"], 1)], given_up=0)
    assert outcomes == [asyncio.CancelledError, ["b"], ServiceError, ["c"]]
    assert retriever.calls == [(["b", "c"], 1)]


def test_a_search_that_takes_too_long_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssp_env.search.server.ANSWER_SECONDS", 0.1)
    with in_thread(build_app(Obedient())) as served:
        assert served.retrieve("hang").status_code == 504
        assert httpx.get(f"{served.url}/healthz").text == "ok"


def test_stopped_under_load_it_loses_nothing_that_was_accepted() -> None:
    retriever, outcomes = Obedient(seconds=0.02), dict[str, str]()

    def ask(name: int) -> None:
        with httpx.Client(base_url=served.url, timeout=30, verify=False) as client:
            for query in (f"client {name} question {number}" for number in range(1000)):
                try:
                    answer = client.post("/retrieve", json={"queries": [query], "topk": 1})
                except httpx.TransportError:
                    return
                outcomes[query] = answer.json()["result"][0][0]["id"]

    with ThreadPoolExecutor(8) as pool:
        with in_thread(build_app(retriever)) as served:
            clients = [pool.submit(ask, name) for name in range(8)]
            while len(outcomes) < 50:
                time.sleep(0.01)
        for client in clients:
            client.result(30)
    assert outcomes == {query: f"{query}/0" for queries, _ in retriever.calls for query in queries}

"""Concurrent requests share backend calls, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from serverkit import in_thread
from stub_server import Obedient

from ssp_env.errors import ServiceError, UsageError
from ssp_env.search.batcher import OUTAGE_AFTER, Batcher, QueueFull, Rankings
from ssp_env.search.config import ServerConfig
from ssp_env.search.server import build_app
from ssp_env.types import Document


class Gated:
    """Answers once its gate is open; some queries make it raise an error."""

    def __init__(self, errors: dict[str, Exception] | None = None) -> None:
        self.gate = threading.Event()
        self.calls: list[tuple[list[str], int]] = []
        self._errors = errors or {}

    def search(self, queries: Sequence[str], k: int) -> Rankings:
        self.calls.append((list(queries), k))
        assert self.gate.wait(10)
        for query in queries:
            if query in self._errors:
                raise self._errors[query]
        return [[Document(query, "", "", 1.0)] for query in queries]


Outcome = Rankings | BaseException


def play(
    retriever: Gated, requests: list[tuple[list[str], int]], max_batch: int = 100
) -> list[Outcome]:
    """What requests came to that arrived together, while the backend was busy with another."""

    async def run() -> list[Outcome]:
        batcher = Batcher(retriever, max_batch, max_waiting=100)
        tasks = [asyncio.create_task(batcher.search(["first"], 1))]
        while not retriever.calls:
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(batcher.search(queries, k)) for queries, k in requests]
        await asyncio.sleep(0.05)
        assert batcher.waiting == 1 + sum(len(queries) for queries, _ in requests)
        retriever.gate.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert batcher.waiting == 0
        return outcomes[1:]

    outcomes = asyncio.run(run())
    del retriever.calls[0]
    return outcomes


def ids(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, list), outcome
    return [document.id for [document] in outcome]


def test_what_arrives_while_the_backend_is_busy_goes_in_one_call_for_each_k() -> None:
    retriever = Gated()
    requests = [([f"a{n}", f"b{n}"], 3 if n % 2 else 5) for n in range(4)]
    outcomes = play(retriever, requests)
    assert [ids(outcome) for outcome in outcomes] == [queries for queries, _ in requests]
    assert retriever.calls == [(["a0", "b0", "a2", "b2"], 5), (["a1", "b1", "a3", "b3"], 3)]


def test_calls_are_bounded_and_a_large_request_has_its_own() -> None:
    retriever = Gated()
    large = [f"q{n}" for n in range(10)]
    outcomes = play(retriever, [(["x"] * 3, 1), (large, 1), (["y"], 1)], max_batch=4)
    assert ids(outcomes[1]) == large
    assert [queries for queries, _ in retriever.calls] == [["x", "x", "x", "y"], large]


def test_a_request_that_the_backend_chokes_on_fails_alone() -> None:
    retriever = Gated({"bad": ValueError("no"), "out": ServiceError("search", "no")})
    outcomes = play(retriever, [([query], 1) for query in ["a", "bad", "b", "out", "c"]])
    assert [type(outcome) for outcome in outcomes] == [list, ValueError, list, ServiceError, list]
    assert ids(outcomes[4]) == ["c"]
    assert len(retriever.calls) == 6


def test_an_outage_is_not_asked_about_for_ever() -> None:
    queries = [f"bad{n}" for n in range(20)]
    retriever = Gated({query: ServiceError("search", "out") for query in queries})
    outcomes = play(retriever, [([query], 1) for query in queries])
    assert all(isinstance(outcome, ServiceError) for outcome in outcomes)
    assert len(retriever.calls) == 1 + OUTAGE_AFTER


@pytest.mark.parametrize("wrong", [lambda rows: rows[:1], lambda rows: [row * 2 for row in rows]])
def test_a_backend_that_answers_other_than_it_was_asked_is_refused(
    wrong: Callable[[Rankings], Rankings],
) -> None:
    class Wrong(Gated):
        def search(self, queries: Sequence[str], k: int) -> Rankings:
            return wrong(super().search(queries, k))

    assert isinstance(play(Wrong(), [(["a", "b"], 1)])[0], UsageError)


def test_the_queue_is_bounded_and_a_request_that_was_given_up_makes_room() -> None:
    async def run() -> None:
        retriever = Gated()
        batcher = Batcher(retriever, max_batch=100, max_waiting=3)
        tasks = [asyncio.create_task(batcher.search([query], 1)) for query in ("first", "a", "b")]
        await asyncio.sleep(0.05)
        with pytest.raises(QueueFull):
            await batcher.search(["c"], 1)
        tasks[1].cancel()
        await asyncio.sleep(0.05)
        assert batcher.waiting == 2
        retriever.gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert "a" not in [query for queries, _ in retriever.calls[1:] for query in queries]

    asyncio.run(run())


def test_clients_that_ask_again_a_moment_later_are_waited_for() -> None:
    class Slow(Gated):
        def search(self, queries: Sequence[str], k: int) -> Rankings:
            time.sleep(0.1)
            return super().search(queries, k)

    async def run() -> None:
        retriever = Slow()
        retriever.gate.set()
        batcher = Batcher(retriever, 100, 100)

        async def client() -> None:
            while len(retriever.calls) < 8:
                await batcher.search(["q"], 1)

        await asyncio.gather(*(client() for _ in range(4)))
        assert [len(queries) for queries, _ in retriever.calls].count(4) >= 4, retriever.calls

    asyncio.run(run())


def test_requests_over_http_share_calls_and_are_counted() -> None:
    with in_thread(build_app(Obedient(0.1), ServerConfig())) as served:
        queries = [*map(str, range(19)), "poison"]
        with ThreadPoolExecutor(20) as pool:
            *answers, poisoned = pool.map(served.retrieve, queries)
        assert [answer.json()["result"][0][0]["id"] for answer in answers] == [
            f"{number}/0" for number in range(19)
        ]
        assert poisoned.status_code == 500
        metrics = httpx.get(f"{served.url}/metrics").text.splitlines()
    assert 'ssp_search_requests_total{path="/retrieve",status="200"} 19.0' in metrics
    assert 'ssp_search_requests_total{path="/retrieve",status="500"} 1.0' in metrics
    assert "ssp_search_request_seconds_count 20.0" in metrics
    assert "ssp_search_batch_queries_sum 19.0" in metrics

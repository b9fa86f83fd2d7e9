"""Concurrent requests share backend calls, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from serverkit import Served, ask, stub

from ssp_env.errors import ServiceError
from ssp_env.search.server.batcher import OUTAGE_AFTER, Batcher, Call, QueueFull, Rankings
from ssp_env.search.server.wire import WrongAnswer
from ssp_env.types import Document


class Gated:
    """Answers once its gate is open; queries that begin with ``bad`` make it raise their error."""

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


def batcher(
    retriever: Gated, *, max_batch: int = 100, max_waiting: int = 100
) -> tuple[Batcher, list[Call]]:
    calls: list[Call] = []
    made = Batcher(
        retriever, max_batch=max_batch, max_waiting=max_waiting, window=0.0, observe=calls.append
    )
    return made, calls


async def running(retriever: Gated) -> None:
    while not retriever.calls:
        await asyncio.sleep(0.001)


def ids(rankings: Rankings) -> list[list[str]]:
    return [[document.id for document in ranking] for ranking in rankings]


def test_what_arrives_while_the_backend_is_busy_goes_in_one_call_for_each_k() -> None:
    async def play() -> None:
        retriever = Gated()
        made, calls = batcher(retriever)
        futures = [made.submit(["first"], 3)]
        await running(retriever)
        futures += [made.submit([f"a{n}", f"b{n}"], 3 if n % 2 else 5) for n in range(4)]
        assert made.waiting == 8
        retriever.gate.set()
        results = await asyncio.gather(*futures)
        assert [ids(result) for result in results[1:]] == [[[f"a{n}"], [f"b{n}"]] for n in range(4)]
        assert retriever.calls == [
            (["first"], 3),
            (["a0", "b0", "a2", "b2"], 5),
            (["a1", "b1", "a3", "b3"], 3),
        ]
        assert [(call.requests, call.queries) for call in calls] == [(1, 1), (2, 4), (2, 4)]
        assert made.waiting == 0
        made.close()

    asyncio.run(play())


def test_a_batch_is_bounded_and_a_larger_request_goes_alone() -> None:
    async def play() -> None:
        retriever = Gated()
        made, _ = batcher(retriever, max_batch=4)
        futures = [made.submit(["first"], 1)]
        await running(retriever)
        futures += [made.submit([str(n)] * n, 1) for n in (3, 2, 6, 1)]
        retriever.gate.set()
        await asyncio.gather(*futures)
        assert [len(queries) for queries, _ in retriever.calls] == [1, 4, 2, 6]
        assert retriever.calls[1][0] == ["3", "3", "3", "1"]
        made.close()

    asyncio.run(play())


def test_the_queue_is_bounded_and_a_request_that_was_given_up_makes_room() -> None:
    async def play() -> None:
        retriever = Gated()
        made, _ = batcher(retriever, max_waiting=2)
        first = made.submit(["first"], 1)
        await running(retriever)
        given_up = made.submit(["a"], 1)
        kept = made.submit(["b"], 1)
        with pytest.raises(QueueFull):
            made.submit(["c"], 1)
        given_up.cancel()
        retriever.gate.set()
        await asyncio.gather(first, kept)
        assert [queries for queries, _ in retriever.calls] == [["first"], ["b"]]
        assert made.waiting == 0
        made.close()

    asyncio.run(play())


def outcomes_of(
    errors: dict[str, Exception], queries: list[str]
) -> tuple[list[Rankings | BaseException], int]:
    """What each query of one batch came to, and how many calls it took."""

    async def play() -> tuple[list[Rankings | BaseException], int]:
        retriever = Gated(errors)
        made, _ = batcher(retriever)
        first = made.submit(["first"], 1)
        await running(retriever)
        futures = [made.submit([query], 1) for query in queries]
        retriever.gate.set()
        await first
        results = await asyncio.gather(*futures, return_exceptions=True)
        made.close()
        return results, len(retriever.calls) - 1

    return asyncio.run(play())


def test_a_request_that_the_backend_chokes_on_fails_alone() -> None:
    results, calls = outcomes_of(
        {"bad": ValueError("no"), "worse": ServiceError("search", "no")},
        ["a", "b", "c", "bad", "worse", "d"],
    )
    assert [ids(result) if isinstance(result, list) else type(result) for result in results] == [
        [["a"]],
        [["b"]],
        [["c"]],
        ValueError,
        ServiceError,
        [["d"]],
    ]
    assert calls == 7


def test_an_outage_is_not_asked_about_for_ever() -> None:
    queries = [f"bad{n}" for n in range(20)]
    results, calls = outcomes_of(
        {query: ServiceError("search", "out") for query in queries}, queries
    )
    assert all(isinstance(result, ServiceError) for result in results)
    assert calls == 1 + OUTAGE_AFTER


def test_a_backend_that_answers_other_than_it_was_asked_is_refused() -> None:
    class Short(Gated):
        def search(self, queries: Sequence[str], k: int) -> Rankings:
            return super().search(queries, k)[:1]

    class Long(Gated):
        def search(self, queries: Sequence[str], k: int) -> Rankings:
            return [ranking * 2 for ranking in super().search(queries, k)]

    async def play(retriever: Gated) -> None:
        retriever.gate.set()
        made, _ = batcher(retriever)
        with pytest.raises(WrongAnswer):
            await made.submit(["a", "b"], 1)
        made.close()

    asyncio.run(play(Short()))
    asyncio.run(play(Long()))


@pytest.mark.parametrize(
    ("window", "sizes"), [(0.1, [1, 3, 4, 4, 4, 4]), (0.0, [1, 3, 1, 3, 1, 3])]
)
def test_clients_that_ask_again_a_moment_later_are_waited_for(
    window: float, sizes: list[int]
) -> None:
    class Slow(Gated):
        def search(self, queries: Sequence[str], k: int) -> Rankings:
            time.sleep(0.3)
            return super().search(queries, k)

    async def client(made: Batcher) -> None:
        while True:
            await made.submit(["q"], 1)
            await asyncio.sleep(0.01)

    async def play() -> None:
        retriever = Slow()
        retriever.gate.set()
        calls: list[Call] = []
        made = Batcher(
            retriever, max_batch=100, max_waiting=100, window=window, observe=calls.append
        )
        clients = [asyncio.create_task(client(made))]
        await running(retriever)
        clients += [asyncio.create_task(client(made)) for _ in range(3)]
        while len(calls) < len(sizes):
            await asyncio.sleep(0.01)
        assert [call.requests for call in calls] == sizes
        for task in clients:
            task.cancel()
        made.close()

    asyncio.run(play())


def test_the_loop_stays_free_while_the_backend_works(tmp_path: Path) -> None:
    with stub(tmp_path / "log", seconds=1.0) as served, ThreadPoolExecutor(1) as pool:
        search = pool.submit(served.retrieve, "a")
        while not served.events("call"):
            time.sleep(0.01)
        begin = time.monotonic()
        assert httpx.get(f"{served.url}/healthz").text == "ok"
        assert time.monotonic() - begin < 0.5
        assert not search.done()
        assert search.result().status_code == 200


def test_concurrent_requests_share_calls_and_one_poisonous_one_fails_alone(tmp_path: Path) -> None:
    with stub(tmp_path / "log", seconds=0.1) as served:
        queries = [f"query {n}" for n in range(40)]
        queries[17] = "poison 17"
        with ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(served.retrieve, queries))
        for query, answer in zip(queries, answers, strict=True):
            if query == "poison 17":
                assert answer.status_code == 500
            else:
                assert answer.json()["result"][0][0]["id"] == f"{query}/0"
        calls = served.events("call")
        assert max(len(call["queries"]) for call in calls) > 5
        metrics = dict(
            line.rsplit(" ", 1) for line in httpx.get(f"{served.url}/metrics").text.splitlines()
        )
        assert metrics['ssp_search_requests_total{path="/retrieve",status="200"}'] == "39.0"
        assert metrics['ssp_search_requests_total{path="/retrieve",status="500"}'] == "1.0"
        assert metrics["ssp_search_batch_requests_sum"] == "40.0"
        assert metrics["ssp_search_request_seconds_count"] == "40.0"
        assert metrics["ssp_search_queue_queries"] == "0.0"


def test_a_thousand_clients_at_once_are_all_answered(tmp_path: Path) -> None:
    async def crowd(served: Served) -> list[tuple[int, bytes]]:
        bodies = [f'{{"queries": ["q {n}"], "topk": 1}}'.encode() for n in range(1000)]
        return await asyncio.gather(*(ask(served.port, body) for body in bodies))

    with stub(tmp_path / "log", seconds=0.005) as served:
        for _ in range(2):
            answers = asyncio.run(asyncio.wait_for(crowd(served), 60))
            for number, (status, body) in enumerate(answers):
                assert status == 200, body
                assert f'"id":"q {number}/0"'.encode() in body
        assert len(served.events("call")) < 1000

"""Outages, really provoked: what is hit fails, in time and as an error; everything else is
right."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hostile
import pytest
from hostile import Hostile, serving

from ssp_env.errors import ServiceError
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.client import CircuitBreaker, HTTPConfig, HTTPRetriever
from ssp_env.types import Document

RETRY = RetryPolicy(attempts=3, first_delay=0.001, max_delay=0.002)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[Hostile]:
    with serving() as server:
        yield server


def client(url: str, **settings: Any) -> HTTPRetriever:
    return HTTPRetriever(HTTPConfig(url, **({"retry": RETRY, "timeout": 20.0} | settings)))


def right(query: str, ranking: Sequence[Document]) -> bool:
    return [d.id for d in ranking] == [
        f"{hashlib.sha256(query.encode()).hexdigest()}-{i}" for i in range(len(ranking))
    ]


def failed(
    queries: Sequence[str], results: Sequence[list[Document] | ServiceError], k: int = 2
) -> list[str]:
    """The queries that got an error; all others are checked."""
    hit = [
        query
        for query, result in zip(queries, results, strict=True)
        if isinstance(result, ServiceError)
    ]
    for query, result in zip(queries, results, strict=True):
        if not isinstance(result, ServiceError):
            assert len(result) == k
            assert right(query, result)
    return hit


# -- which queries are hit ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "mark", ["down", "refused", "too_few", "flat", "html", "truncated", "reset", "score_nan"]
)
@pytest.mark.parametrize("bad", [{0}, {63}, {10, 11, 40}, set(range(8, 40))])
def test_exactly_the_queries_that_are_to_blame_fail(
    server: Hostile, mark: str, bad: set[int]
) -> None:
    queries = [f"hostile:{mark} {i}" if i in bad else f"fine {i}" for i in range(64)]
    with client(server.url, breaker_failures=100) as retriever:
        # "too_few" is the right answer to one query: none of the results is wrong, whoever is to
        # blame.
        expected = [queries[i] for i in sorted(bad)]
        assert failed(queries, retriever.search_each(queries, 2)) == expected


def test_dividing_costs_no_back_off_for_every_query(server: Hostile) -> None:
    queries = [f"fine {i}" for i in range(63)] + ["hostile:down"]
    began = time.monotonic()
    with client(
        server.url, retry=RetryPolicy(attempts=3, first_delay=0.2, max_delay=0.2)
    ) as retriever:
        assert failed(queries, retriever.search_each(queries, 2)) == ["hostile:down"]
    assert time.monotonic() - began < 3.0  # 2 x 0.4 s of pauses
    assert (
        len(server.calls) == 3 + 2 * 5 + 1 + 3
    )  # whole, halves down to pairs, and the two of the last pair


def test_a_dead_server_is_not_asked_for_every_query() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        queries = [f"q{i}" for i in range(500)]
        with client(
            url, retry=RetryPolicy(attempts=3, first_delay=0.2, max_delay=0.2)
        ) as retriever:
            began = time.monotonic()
            results = retriever.search_each(queries, 2)
            first = time.monotonic() - began
            assert failed(queries, results) == queries
            assert first < 3.0
            began = time.monotonic()
            assert failed(queries, retriever.search_each(queries, 2)) == queries
            assert time.monotonic() - began < 0.2, "the breaker is open"
            with pytest.raises(ServiceError, match="was not called: its last"):
                retriever.search(["q"], 1)


def test_a_server_that_is_overloaded_in_the_end_is_not_asked_for_every_query(
    server: Hostile,
) -> None:
    async def usual(call: hostile.Call) -> None:
        await call.answer(b"", 500 if call.number == 1 else 503)

    server.usual = usual
    queries = [f"q{i}" for i in range(32)]
    with client(server.url) as retriever:
        assert failed(queries, retriever.search_each(queries, 2)) == queries
    assert len(server.calls) == 3


def test_the_breaker_closes_when_the_server_is_back(server: Hostile) -> None:
    async def busy(call: hostile.Call) -> None:
        await call.answer(b"", 503)

    now = [0.0]
    breaker = CircuitBreaker("the server", 3, 5.0, clock=lambda: now[0])
    with HTTPRetriever(HTTPConfig(server.url, retry=RETRY), breaker=breaker) as retriever:
        server.usual = busy
        for _ in range(3):
            assert failed(["a", "b"], retriever.search_each(["a", "b"], 2)) == ["a", "b"]
        asked = len(server.calls)
        assert asked == 3 * 3, "it counts requests, each after all its tries"
        for now[0] in (0.0, 4.9):
            assert failed(["a", "b"], retriever.search_each(["a", "b"], 2)) == ["a", "b"]
        assert len(server.calls) == asked
        now[0] = 5.0
        assert failed(["a", "b"], retriever.search_each(["a", "b"], 2)) == ["a", "b"]
        assert len(server.calls) == asked + 1, "one request tries, and is not repeated"
        now[0], server.usual = 10.0, hostile.Call.well
        assert failed(["a", "b"], retriever.search_each(["a", "b"], 2)) == []


def test_queries_that_a_server_fails_at_are_no_outage(server: Hostile) -> None:
    """However many of them, beside queries that it answers; and a refusal is an answer."""
    queries = ["fine", *(f"hostile:down {i}" for i in range(5))]
    with client(server.url, breaker_failures=1, breaker_seconds=60) as retriever:
        for _ in range(3):
            assert failed(queries, retriever.search_each(queries, 2)) == queries[1:]
            assert failed(["hostile:refused"], retriever.search_each(["hostile:refused"], 2)) == [
                "hostile:refused"
            ]
        assert failed(["fine"], retriever.search_each(["fine"], 2)) == []
        assert failed(queries[1:], retriever.search_each(queries[1:], 2)) == queries[1:]
        with pytest.raises(ServiceError, match="was not called: its last 1 requests failed"):
            retriever.search(["fine"], 2)


def test_the_request_that_tries_opens_for_all_at_its_first_answer(server: Hostile) -> None:
    """It is divided; and what it fails at does not hold up those that wait for it."""
    now = [0.0]
    breaker = CircuitBreaker("the server", 1, 5.0, clock=lambda: now[0])
    slow = RetryPolicy(attempts=3, first_delay=0.1, max_delay=0.1)
    with HTTPRetriever(HTTPConfig(server.url, retry=slow), breaker=breaker) as retriever:
        assert failed(["hostile:down"], retriever.search_each(["hostile:down"], 2)) == [
            "hostile:down"
        ]
        assert breaker.open
        now[0], asked = 5.0, len(server.calls)
        assert failed(
            ["hostile:down", "fine"], retriever.search_each(["hostile:down", "fine"], 2)
        ) == ["hostile:down"]
        assert not breaker.open
        assert len(server.calls) == asked + 3, "each part once"


def test_an_open_breaker_does_not_cut_short_what_is_under_way(server: Hostile) -> None:
    """Requests from before it opened have all their tries, and the answer that one of them gets
    closes it."""
    opened, is_open = threading.Event(), threading.Event()

    async def down(call: hostile.Call) -> None:
        if call.queries == ["patient"]:
            opened.set()
            while not is_open.is_set():
                await asyncio.sleep(0.005)
            await (hostile.Call.well(call) if call.repeats == 3 else call.answer(b"", 503))
        else:
            await call.answer(b"", 503)

    server.usual = down
    with (
        client(server.url, breaker_failures=2, breaker_seconds=60) as retriever,
        ThreadPoolExecutor(1) as pool,
    ):
        patient = pool.submit(retriever.search_each, ["patient"], 2)
        assert opened.wait(10)
        try:
            for _ in range(2):
                assert failed(["a"], retriever.search_each(["a"], 2)) == ["a"]
            with pytest.raises(ServiceError, match="was not called"):
                retriever.search(["a"], 2)
        finally:
            is_open.set()
        assert failed(["patient"], patient.result(10)) == []
        server.usual = hostile.Call.well
        assert failed(["a"], retriever.search_each(["a"], 2)) == []


def test_a_server_that_dies_while_a_batch_is_divided(server: Hostile) -> None:
    async def die(call: hostile.Call) -> None:
        call.server.break_connections()
        call.server._server.close()

    hostile.BEHAVIOURS["die"] = die
    queries = [f"q{i}" for i in range(40)] + ["hostile:die"]
    began = time.monotonic()
    with client(server.url) as retriever:
        results = retriever.search_each(queries, 2)
    assert time.monotonic() - began < 5
    assert failed(queries, results) == queries


# -- under load --------------------------------------------------------------------------------


class Load:
    """Threads that search without a pause through one retriever, and check what they get."""

    def __init__(self, retriever: HTTPRetriever, threads: int, batch: int = 3) -> None:
        self.good = self.bad = 0
        self.wrong: list[object] = []
        self.longest = 0.0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._search, args=(retriever, i, batch))
            for i in range(threads)
        ]

    def _search(self, retriever: HTTPRetriever, name: int, batch: int) -> None:
        number = 0
        while not self._stop.is_set():
            queries = [f"thread {name} query {number} {i}" for i in range(batch)]
            number += 1
            began = time.monotonic()
            try:
                results = retriever.search_each(queries, 2)
                bad = len(failed(queries, results))
            except BaseException as error:
                self.wrong.append(error)
                return
            with self._lock:
                self.longest = max(self.longest, time.monotonic() - began)
                self.bad += bad
                self.good += len(queries) - bad
            if bad:
                time.sleep(0.01)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Waits for the searches that are under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a search hangs"
        assert self.wrong == []

    def wait_for_more(self, seconds: float = 20) -> None:
        """Waits until searches succeed again."""
        before, ends = self.good, time.monotonic() + seconds
        while self.good < before + 20:
            assert time.monotonic() < ends, "no search succeeds any more"
            time.sleep(0.01)


@contextlib.contextmanager
def process(port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The server as a process of its own, which can be killed."""
    command = [sys.executable, str(Path(hostile.__file__)), str(port), "0.002"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server, int(server.stdout.readline())
        finally:
            server.kill()


def test_a_server_that_is_killed_and_restarted_under_load() -> None:
    with process() as (first, port):
        retriever = client(f"http://127.0.0.1:{port}", breaker_seconds=0.3, deadline=5.0)
        with retriever, Load(retriever, threads=16) as load:
            load.wait_for_more()
            for _ in range(2):
                first.send_signal(signal.SIGKILL)
                first.wait()
                hit = load.bad
                time.sleep(0.5)
                assert load.bad > hit, "a dead server answers nobody"
                with process(port) as (first, _):
                    load.wait_for_more()
                    first.kill()
                    first.wait()
            with process(port):
                load.wait_for_more()
        assert load.longest < 6.0
        assert load.good > 60


def test_a_client_left_at_its_defaults_outlives_a_restart_of_seconds_under_load() -> None:
    with process() as (first, port), HTTPRetriever(f"http://127.0.0.1:{port}") as retriever:
        with Load(retriever, threads=16) as load:
            load.wait_for_more()
            first.kill()
            first.wait()
            time.sleep(2.5)  # longer than four tries take
            with process(port):
                load.wait_for_more()
                load.stop()
        assert load.bad == 0


def test_a_server_that_stays_dead_is_left_alone_until_it_is_back() -> None:
    with contextlib.ExitStack() as stack:
        first, port = stack.enter_context(process())
        retriever = stack.enter_context(
            client(f"http://127.0.0.1:{port}", breaker_failures=4, breaker_seconds=1.5)
        )
        assert failed(["q"], retriever.search_each(["q"], 2)) == []
        first.kill()
        first.wait()
        for _ in range(4):
            with pytest.raises(ServiceError, match=r"\(after 3 calls\)$"):
                retriever.search(["q"], 2)
        with pytest.raises(
            ServiceError, match=r"was not called: its last 4 requests failed.*after 3 calls"
        ):
            retriever.search(["q"], 2)
        time.sleep(1.6)
        with pytest.raises(ServiceError, match=r"Error.*\(after 1 call\)$"):
            retriever.search(["q"], 2)
        stack.enter_context(process(port))
        time.sleep(1.6)
        assert failed(["q"], retriever.search_each(["q"], 2)) == []


def test_a_server_that_stops_and_goes_on() -> None:
    """A process that is stopped keeps its sockets open and never answers."""
    with process() as (server, port):
        retriever = client(
            f"http://127.0.0.1:{port}", timeout=0.3, deadline=1.0, breaker_seconds=0.2
        )
        with retriever, Load(retriever, threads=8) as load:
            load.wait_for_more()
            server.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            assert load.bad > 0
            server.send_signal(signal.SIGCONT)
            load.wait_for_more()
        assert load.longest < 3.0


def test_every_fifth_request_fails(server: Hostile) -> None:
    server.usual = hostile.every(5, hostile.status(500))
    queries = [f"q{i}" for i in range(300)]
    with client(
        server.url, max_batch=4, retry=RetryPolicy(attempts=6, first_delay=0.001)
    ) as retriever:
        assert failed(queries, retriever.search_each(queries, 2)) == []
    assert len(server.calls) > 75


def test_every_fifth_answer_is_cut_short(server: Hostile) -> None:
    server.usual = hostile.every(5, hostile.truncated)
    queries = [f"q{i}" for i in range(300)]
    with client(
        server.url, max_batch=4, retry=RetryPolicy(attempts=6, first_delay=0.001)
    ) as retriever:
        assert failed(queries, retriever.search_each(queries, 2)) == []


def test_a_thousand_threads_share_a_retriever(server: Hostile) -> None:
    problems: list[object] = []
    go = threading.Event()

    with client(server.url, connections=16, deadline=60.0) as retriever:

        def search(number: int) -> None:
            queries = [
                f"a {number}",
                f"hostile:refused {number}" if number % 10 == 0 else f"b {number}",
            ]
            go.wait()
            try:
                hit = failed(queries, retriever.search_each(queries, 2))
                if hit != (queries[1:] if number % 10 == 0 else []):
                    problems.append((number, hit))
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=search, args=(i,)) for i in range(1000)]
        for thread in threads:
            thread.start()
        go.set()
        for thread in threads:
            thread.join(90)
    assert problems == []
    assert server.most_busy <= 16


QUERIES = (
    *(
        "",
        "\0",
        "\x1b[31m\x7f",
        "x" * 2**20,
        "\ud800\udc00",
        "\udfff",
        "'; DROP",
        '{"a": 1}',
        "ب" * 50_000,
    ),
    *("Москва", "北京", "தமிழ்", "👩‍👩‍👧", "ܐܪܡܝܐ", "e\u0301", "a\u2028b"),
)


def test_any_query_is_answered(server: Hostile) -> None:
    with client(server.url) as retriever:
        assert failed(QUERIES[9:], retriever.search_each(QUERIES[9:], 2)) == []
        assert all(
            isinstance(result, list) and len(result) == 2
            for result in retriever.search_each(QUERIES, 2)
        )


# -- memory ------------------------------------------------------------------------------------


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
def test_thousands_of_calls_leave_no_memory_behind() -> None:
    """Good answers, errors of every kind, and connections that break."""
    marks = [
        "fine",
        "fine",
        "hostile:down",
        "hostile:refused",
        "hostile:truncated",
        "hostile:reset",
        "hostile:html",
    ]
    rng = random.Random(0)
    once = RetryPolicy(attempts=1)
    with (
        serving(keep=False) as server,
        client(server.url, retry=once, breaker_failures=10**6) as retriever,
    ):

        def some(count: int) -> None:
            for i in range(count):
                retriever.search_each(
                    [f"{rng.choice(marks)} {i} {j} {'x' * 500}" for j in range(2)], 3
                )
            gc.collect()

        some(100)
        before, tasks = _resident(), threading.active_count()
        some(500)
        grown = _resident() - before
    assert grown < 8 * 2**20, f"{grown / 2**20:.1f} MB after 500 more calls"
    assert threading.active_count() <= tasks

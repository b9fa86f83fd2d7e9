"""The HTTP retriever: what it sends, which queries fail with a server, and when it gives up."""

from __future__ import annotations

import copy
import hashlib
import multiprocessing
import pickle
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hostile
import pytest
from hostile import Hostile, lazy, serving

from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.net import RetryPolicy
from ssp_env.search.base import Retriever
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.testing import RetrieverTests
from ssp_env.types import Document

RETRY = RetryPolicy(attempts=3, first_delay=0.001, max_delay=0.002)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[Hostile]:
    with serving() as server:
        yield server


def client(server: Hostile | str, **settings: Any) -> HTTPRetriever:
    url = server if isinstance(server, str) else server.url
    return HTTPRetriever(HTTPConfig(url, **({"retry": RETRY, "timeout": 10.0} | settings)))


def expected(query: str, k: int) -> list[Document]:
    digest = hashlib.sha256(query.encode()).hexdigest()
    return [Document(f"{digest}-{i}", digest, f"rank {i}", 9.5 - i) for i in range(k)]


def failed(queries: Sequence[str], results: Sequence[list[Document] | ServiceError]) -> list[str]:
    """The queries that got an error; all others are checked."""
    pairs = list(zip(queries, results, strict=True))
    for query, result in pairs:
        assert isinstance(result, ServiceError) or result == expected(query, 2)
    return [query for query, result in pairs if isinstance(result, ServiceError)]


class TestHTTPRetriever(RetrieverTests):
    queries = ("capital of Austria", "Danube", "city in Italy")

    @pytest.fixture(autouse=True)
    def serve(self) -> Iterator[None]:
        with serving() as self.server:
            yield

    def make_retriever(self) -> Retriever:
        return client(self.server)

    def break_it(self, retriever: Any) -> None:
        self.server.usual = hostile.status(503)


# -- what is sent ------------------------------------------------------------------------------


def test_a_large_batch_is_divided_and_each_query_sent_once_side_by_side(server: Hostile) -> None:
    server.usual = lazy
    queries = [f"q{i}" for i in range(50)]
    with client(server, max_batch=4, connections=5) as retriever:
        found = retriever.search([*queries, "q0"], 2)
        found[0].clear()
        assert failed([*queries[1:], "q0"], found[1:]) == [], "each has its own list"
        assert retriever.search([], 2) == []
    assert sorted(map(len, server.asked())) == [2] + [4] * 12
    assert 2 <= server.most_busy <= 5


def test_awkward_queries_arrive_as_they_are_but_cut_and_well_formed(server: Hostile) -> None:
    awkward = ["", " \t\n", "\0\x1b[31m\x7f\u202e", "北京 👩‍👩‍👧", '"\\', "\u2028"]
    with client(server, max_query_chars=1000) as retriever:
        retriever.search([*awkward, "a\ud800b", "\udc00", "x" * 2**20], 2)
    assert server.asked() == [[*awkward, "a\ufffdb", "\ufffd", "x" * 1000]]


def test_the_token_comes_from_the_environment_and_stays_out_of_errors(
    server: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", "sesame-42\n")
    with (
        client(server, token_env="SEARCH_TOKEN") as retriever,
        pytest.raises(ServiceError, match="who are") as raised,
    ):
        retriever.search(["hostile:forbidden"], 1)
    assert server.calls[0].headers["authorization"] == "Bearer sesame-42"
    assert "sesame" not in str(raised.value)
    monkeypatch.delenv("SEARCH_TOKEN")
    with pytest.raises(ConfigError, match=r"SEARCH_TOKEN.*set this environment variable"):
        client(server, token_env="SEARCH_TOKEN")


# -- retries and deadlines ---------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["flaky", "gateway", "resets_once"])
def test_a_passing_trouble_is_retried(server: Hostile, mark: str) -> None:
    queries = [f"hostile:{mark}", "other"]
    assert failed(queries, [*client(server).search(queries, 2)]) == []
    assert server.asked() == [queries] * (3 if mark == "flaky" else 2)


@pytest.mark.parametrize(
    ("mark", "what", "calls"),
    [
        ("down", r"HTTP 500: 'oops' \(after 3 calls\)", 3),
        ("busy", r"HTTP 503.*\(after 3 calls\)", 3),
        ("html", r"not JSON.*\(after 3 calls\)", 3),
        ("too_few", r"1 rankings for 2 queries.*\(after 3 calls\)", 3),
        ("truncated", r"RemoteProtocolError.*\(after 3 calls\)", 3),
        ("endless", r"reply of more than 1000000 bytes", 3),
        ("refused", r"HTTP 422: .*a bad query", 1),
        ("forbidden", r"HTTP 401.*--token-env", 1),
        ("moved", r"HTTP 307 to 'http://elsewhere/retrieve' .redirects are not followed", 1),
        ("forever", r"after 1 call; it asks to be left alone for 86400 s", 1),
    ],
)
def test_anything_else_is_an_error_and_a_refusal_is_not_retried(
    server: Hostile, mark: str, what: str, calls: int
) -> None:
    with (
        client(server, max_reply_bytes=10**6) as retriever,
        pytest.raises(ServiceError, match=what) as raised,
    ):
        retriever.search([f"hostile:{mark}", "other"], 2)
    assert type(raised.value) is ServiceError
    assert len(raised.value.what) < 1500
    assert len(server.calls) == calls


def test_retry_after_is_honoured_within_the_deadline(server: Hostile) -> None:
    began = time.monotonic()
    assert client(server).search(["hostile:patience"], 1) == [expected("hostile:patience", 1)]
    assert time.monotonic() - began >= 1.0
    began = time.monotonic()
    with (
        client(server, deadline=0.5) as retriever,
        pytest.raises(ServiceError, match="no time is left for another"),
    ):
        retriever.search(["hostile:patience", "b"], 1)
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize("mark", ["never", "trickle"])
@pytest.mark.parametrize(("timeout", "deadline"), [(0.15, 10.0), (10.0, 0.3)])
def test_nothing_outlasts_its_deadline(
    server: Hostile, mark: str, timeout: float, deadline: float
) -> None:
    began = time.monotonic()
    with client(server, timeout=timeout, deadline=deadline) as retriever:
        with pytest.raises(ServiceError, match=r"not complete after|no reply after"):
            retriever.search([f"hostile:{mark}"], 1)
        assert time.monotonic() - began < min(3 * timeout, deadline) + 1.5
        assert retriever.search(["fine"], 1) == [expected("fine", 1)]


# -- which queries are hit ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "bad"),
    [
        ("down", {0}),
        *((mark, {10, 11, 40}) for mark in ("refused", "too_few", "html", "truncated", "reset")),
        ("refused", set(range(8, 40))),
    ],
)
def test_exactly_the_queries_that_are_to_blame_fail(
    server: Hostile, mark: str, bad: set[int]
) -> None:
    queries = [f"hostile:{mark} {i}" if i in bad else f"fine {i}" for i in range(64)]
    with client(server) as retriever:
        results = retriever.search_each(queries, 2)
    assert failed(queries, results) == [queries[i] for i in sorted(bad)]
    if bad == {0}:  # the whole, halves down to pairs, and the two of the last pair
        assert len(server.calls) == 3 + 2 * 5 + 1 + 3, "only one that stands alone is retried"


# -- a server that is dead or overloaded -------------------------------------------------------


def test_a_dead_or_overloaded_server_is_not_asked_for_every_query(server: Hostile) -> None:
    queries = [f"q{i}" for i in range(32)]
    server.usual = hostile.status(503)
    with client(server) as retriever:
        assert failed(queries, retriever.search_each(queries, 2)) == queries
        assert len(server.calls) == 3, "one request, with all its tries"
        server.stop()
        began = time.monotonic()
        assert failed(queries, retriever.search_each(queries, 2)) == queries
        assert time.monotonic() - began < 5
    with client("http://no-such-host.invalid", deadline=5.0) as lost:
        assert "no-such-host" in str(lost.search_each(["q"], 1)[0])


def test_a_client_left_at_its_defaults_outlives_a_restart_of_seconds(server: Hostile) -> None:
    with HTTPRetriever(server.url) as retriever, ThreadPoolExecutor(8) as pool:
        retriever.search(["before"], 2)
        server.stop()
        queries = [[f"thread {name} query {i}" for i in range(3)] for name in range(8)]
        searches = [pool.submit(retriever.search_each, each, 2) for each in queries]
        time.sleep(2.5)  # longer than four tries take

        again = Hostile(port=server.port)
        again.start()
        for each, search in zip(queries, searches, strict=True):
            assert failed(each, search.result(30)) == []
        again.stop()


# -- life cycle --------------------------------------------------------------------------------


def _child(retriever: HTTPRetriever, queue: Any) -> None:
    queue.put(retriever.search(["in the child"], 1) == [expected("in the child", 1)])


def test_copies_and_forks_work_on_their_own_and_a_closed_one_says_so(server: Hostile) -> None:
    with client(server) as retriever:
        retriever.search(["a"], 1)
        for twin in (pickle.loads(pickle.dumps(retriever)), copy.deepcopy(retriever)):
            with twin:
                assert twin.search(["b"], 2) == [expected("b", 2)]

        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_child, args=(retriever, queue))
        child.start()
        assert queue.get(timeout=20) is True
        child.join(10)
        assert retriever.search(["c"], 1) == [expected("c", 1)]
    with pytest.raises(UsageError, match="closed"):
        retriever.search(["a"], 1)

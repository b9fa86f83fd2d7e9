"""The HTTP retriever: what it sends, which queries fail with a server, and when it gives up."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import multiprocessing
import pickle
import time
from collections.abc import Iterator, Sequence
from typing import Any

import hostile
import pytest
from hostile import Hostile, lazy, serving
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.errors import ServiceError, UsageError
from ssp_env.search.base import Retriever
from ssp_env.search.client import HTTPConfig, HTTPRetriever, read_reply
from ssp_env.testing import RetrieverTests
from ssp_env.types import Document


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("ssp_env.net.FIRST_PAUSE", 0.001)


@pytest.fixture
def server() -> Iterator[Hostile]:
    with serving() as server:
        yield server


def client(server: Hostile | str, **settings: Any) -> HTTPRetriever:
    url = server if isinstance(server, str) else server.url
    return HTTPRetriever(HTTPConfig(url=url, **({"attempts": 3, "timeout": 10.0} | settings)))


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


def test_a_large_batch_is_divided_and_each_query_sent_once_side_by_side(server: Hostile) -> None:
    server.usual = lazy
    queries = [f"q{i}" for i in range(500)]
    with client(server, connections=5) as retriever:
        found = retriever.search([*queries, "q0"], 2)
        found[0].clear()
        assert failed([*queries[1:], "q0"], found[1:]) == [], "each has its own list"
        assert retriever.search([], 2) == []
    assert sorted(map(len, server.asked())) == [52] + [64] * 7
    assert 2 <= server.most_busy <= 5


def test_awkward_queries_arrive_as_they_are_but_cut_and_well_formed(server: Hostile) -> None:
    awkward = ["", " \t\n", "\0\x1b[31m\x7f\u202e", "北京 👩‍👩‍👧", '"\\', "\u2028"]
    with client(server) as retriever:
        retriever.search([*awkward, "a\ud800b", "\udc00", "x" * 2**20], 2)
    assert server.asked() == [[*awkward, "a\ufffdb", "\ufffd", "x" * 4096]]


def test_the_token_stays_out_of_errors(server: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", "sesame-42")
    with (
        client(server, token_env="SEARCH_TOKEN") as retriever,
        pytest.raises(ServiceError, match="who are") as raised,
    ):
        retriever.search(["hostile:forbidden"], 1)
    assert server.calls[0].headers["authorization"] == "Bearer sesame-42"
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("mark", ["flaky", "gateway", "resets_once"])
def test_a_passing_trouble_is_retried(server: Hostile, mark: str) -> None:
    queries = [f"hostile:{mark}", "other"]
    assert failed(queries, [*client(server).search(queries, 2)]) == []
    assert server.asked() == [queries] * (3 if mark == "flaky" else 2)


@pytest.mark.parametrize(
    ("mark", "what", "calls"),
    [
        ("down", r"HTTP 500; .*'oops' \(after 3 calls\)", 3),
        ("busy", r"HTTP 503.*\(after 3 calls\)", 3),
        ("html", r"no answer: Expecting value.*\(after 3 calls\)", 3),
        ("truncated", r"RemoteProtocolError.*\(after 3 calls\)", 3),
        ("endless", r"a reply of more than 1000000 bytes", 3),
        ("refused", r"HTTP 422; .*a bad query", 1),
        ("forbidden", r"HTTP 401.*--token-env", 1),
        ("moved", r"HTTP 307.*redirects are not followed", 1),
        ("forever", r"HTTP 429.*after 1 call", 1),
    ],
)
def test_a_lasting_trouble_is_an_error_and_a_refusal_is_not_retried(
    server: Hostile, mark: str, what: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssp_env.search.client.MAX_REPLY", 10**6)
    with client(server) as retriever, pytest.raises(ServiceError, match=what) as raised:
        retriever.search([f"hostile:{mark}"], 2)
    assert type(raised.value) is ServiceError
    assert raised.value.fault == ("text" if mark == "refused" else "service")
    assert len(raised.value.what) < 1500
    assert len(server.calls) == calls


@pytest.mark.parametrize("mark", ["never", "trickle"])
@pytest.mark.parametrize(("timeout", "deadline"), [(0.15, 10.0), (10.0, 0.3)])
def test_nothing_outlasts_its_deadline(
    server: Hostile, mark: str, timeout: float, deadline: float
) -> None:
    began = time.monotonic()
    with client(server, timeout=timeout, deadline=deadline) as retriever:
        with pytest.raises(ServiceError, match="no complete reply"):
            retriever.search([f"hostile:{mark}"], 1)
        assert time.monotonic() - began < min(3 * timeout, deadline) + 1.5
        assert retriever.search(["fine"], 1) == [expected("fine", 1)]


@pytest.mark.parametrize("mark", ["down", "refused", "too_few", "html", "truncated", "reset"])
def test_exactly_the_queries_that_are_to_blame_fail(server: Hostile, mark: str) -> None:
    queries = [f"hostile:{mark} {i}" if i in {10, 11, 40} else f"fine {i}" for i in range(64)]
    with client(server) as retriever:
        results = retriever.search_each(queries, 2)
    assert failed(queries, results) == [queries[i] for i in (10, 11, 40)]


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


# -- replies -----------------------------------------------------------------------------------

DOCUMENT = {"id": "1", "contents": '"Title"\nText'}
HIT = {"document": DOCUMENT, "score": 0.5}


def reply(result: Any) -> bytes:
    return json.dumps({"result": result}).encode()


@pytest.mark.parametrize(
    ("document", "read"),
    [
        (DOCUMENT, ("1", "Title", "Text")),
        (DOCUMENT | {"id": 7, "url": "x"}, ("7", "Title", "Text")),
        ({"id": "1", "title": "T", "text": "x"}, ("1", "T", "x")),
        ({"id": "1", "contents": "a\ud800b"}, ("1", "", "a\ufffdb")),
        ({"contents": "a"}, ("7361a6f4b374745d", "", "a")),
    ],
)
def test_what_servers_send_is_understood(document: Any, read: tuple[str, str, str]) -> None:
    [[found]] = read_reply(reply([[{"document": document, "score": 1, "rank": 1}]]), 1, 1)
    assert found == Document(*read, 1.0)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"result": [["\xe9"]]}',
        b"[" * 100_000,
        b"[]",
        reply([None]),
        reply([]),
        reply([[HIT] * 3]),
        reply([[HIT] * 2]),
        reply([[DOCUMENT]]),
        reply([[HIT | {"document": DOCUMENT | {"id": 1.5}}]]),
        *(reply([[HIT | {"score": score}]]) for score in (True, 10**400, math.nan)),
    ],
)
def test_anything_else_is_wrong(raw: bytes) -> None:
    with pytest.raises(ValueError):
        read_reply(raw, 1, 2)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
DOCUMENTS = st.fixed_dictionaries({"contents": st.text(max_size=5)}, optional={"id": VALUES})
HITS = st.fixed_dictionaries({"document": DOCUMENTS | VALUES, "score": st.floats() | VALUES})


@given(st.lists(st.lists(HITS, max_size=3) | VALUES, max_size=2) | VALUES, st.integers(1, 3))
def test_a_reply_is_rankings_or_wrong(result: Any, k: int) -> None:
    try:
        rankings = read_reply(reply(result), 1, k)
    except ValueError:
        return
    assert len(rankings[0]) <= k
    assert all(math.isfinite(document.score or 0.0) for document in rankings[0])

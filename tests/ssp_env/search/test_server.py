"""The search server: Search-R1's protocol, what it refuses, how it batches, starts and stops."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from serverkit import Address, Served, in_thread, stub
from stub_server import SECRET, Obedient

from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.search.batcher import Batcher, QueueFull, Rankings
from ssp_env.search.client import HTTPRetriever
from ssp_env.search.config import ServerConfig, read_token
from ssp_env.search.corpus import join_contents, split_contents
from ssp_env.search.server import build_app
from ssp_env.types import Document

TOKEN = "correct-horse-battery"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def served() -> Iterator[Address]:
    with in_thread(build_app(Obedient(), ServerConfig())) as served:
        yield served


@pytest.fixture(scope="module")
def narrow() -> Iterator[Address]:
    config = ServerConfig(max_k=5, max_queries=4, max_waiting=8)
    with in_thread(build_app(Obedient(), config)) as served:
        yield served


def post(served: Address, body: bytes | Iterator[bytes]) -> httpx.Response:
    return httpx.post(f"{served.url}/retrieve", content=body, timeout=30, verify=False)


def refused(answer: httpx.Response, status: int) -> str:
    """The words of a refusal, once its shape is checked."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["detail"]
    assert SECRET not in answer.text
    assert len(answer.text) < 500
    detail: str = answer.json()["detail"]
    return detail


# -- what is answered --------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 600])
def test_a_search_r1_client_gets_one_ranking_per_query(served: Address, count: int) -> None:
    queries = [f"query {number}" for number in range(count)]
    bare = [
        [{"id": f"{q}/{i}", "contents": f'"About {q}"\nText {i}\nof {q}'} for i in range(2)]
        for q in queries
    ]
    scored = [[{"document": d, "score": 1 / (1 + i)} for i, d in enumerate(r)] for r in bare]
    # As Search-R1's rollout asks (search_r1/llm_agent/generation.py).
    payload = {"queries": queries, "topk": 2, "return_scores": True}
    assert requests.post(f"{served.url}/retrieve", json=payload).json()["result"] == scored
    assert served.retrieve(*queries, topk=2).json()["result"] == bare


def test_our_client_gets_what_the_retriever_found(served: Address) -> None:
    queries = [f"query {i} Ω" for i in range(200)]
    with HTTPRetriever(served.url) as retriever:
        assert retriever.search(queries, 2) == Obedient().search(queries, 2)


@pytest.mark.parametrize(
    "fields", [{}, {"topk": None, "return_scores": None}, {"topk": 0, "model": "e5"}]
)
def test_missing_null_and_zero_take_the_default(served: Address, fields: dict[str, Any]) -> None:
    result = served.retrieve("q", **fields).json()["result"]
    assert [document["id"] for document in result[0]] == ["q/0", "q/1", "q/2"]
    assert requests.get(f"{served.url}/status").json() == "ok"


def test_queries_arrive_as_they_were_sent_but_well_formed_and_cut(served: Address) -> None:
    queries = ["誰が", "👩‍👩‍👧", "", " ", "\x00\x1b[2J\r\n", '"\\', "x" * 8192]
    answer = served.retrieve(*queries, topk=1)
    assert [found["id"] for [found] in answer.json()["result"]] == [f"{q}/0" for q in queries]
    assert "x-queries-cut" not in answer.headers

    body = b'{"queries": ["a\\udfffb", "\\ud83e\\udd89"], "topk": 1}'
    result = post(served, body).json()["result"]
    assert [ranking[0]["id"] for ranking in result] == ["a\ufffdb/0", "🦉/0"]
    answer = served.retrieve("brief", "y" * 2**20, topk=1)
    assert [r[0]["id"] for r in answer.json()["result"]] == ["brief/0", "y" * 8192 + "/0"]
    assert answer.headers["x-queries-cut"] == "1"


@pytest.mark.parametrize("title", ["", "Danube", ' "quoted" ', '"', '""', "\t"])
def test_contents_are_read_back_as_title_and_text(title: str) -> None:
    for text in ("", "one\ntwo", '"x"\ny'):
        assert split_contents(join_contents(Document("1", title, text))) == (title, text)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "queries: Field required"),
        ({"queries": ["a", 3]}, "queries.1: Input should be a valid string"),
        ({"queries": ["a"] * 5}, "at most 4 items"),
        ({"queries": ["a"], "topk": 6}, "topk: .* less than or equal to 5"),
    ],
)
def test_a_wrong_shape_is_refused_and_named(narrow: Address, body: Any, says: str) -> None:
    assert re.search(says, refused(post(narrow, json.dumps(body).encode()), 422))


def test_what_is_too_large_or_no_json_is_refused(served: Address) -> None:
    assert "the limit is 16384" in refused(served.retrieve(*["q"] * 200, topk=100), 422)
    assert post(served, (b"x" * 2**20 for _ in range(24))).status_code == 413
    for body in (b"", b'{"queries": ["\xff"]}', b"[" * 100_000):
        assert post(served, body).status_code in (400, 422)

    sent = 0
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        with suppress(OSError):
            while sent < 100 * 2**20:
                connection.sendall(b"X-%d: %s\r\n" % (sent, b"a" * 60_000))
                sent += 60_000
    assert sent < 20 * 2**20, "a huge head is refused before it fills the memory"


def test_a_full_queue_says_when_to_come_back(narrow: Address) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: narrow.retrieve("slow", str(number)), range(12)))
    assert {answer.status_code for answer in answers} == {200, 503}
    for answer in answers:
        if answer.status_code == 503:
            assert "waiting" in refused(answer, 503)
            assert answer.headers["retry-after"] == "1"
    assert narrow.retrieve("after").status_code == 200


@pytest.mark.parametrize(
    ("query", "status"), [("poison", 500), ("short", 500), ("nan", 500), ("outage", 503)]
)
def test_a_failing_retriever_is_no_empty_ranking_and_shows_nothing(
    served: Address, query: str, status: int
) -> None:
    answer = served.retrieve(query, return_scores=True)
    refused(answer, status)
    assert ("retry-after" in answer.headers) == (status == 503)


def test_a_request_past_its_deadline_is_given_up() -> None:
    with in_thread(build_app(Obedient(), ServerConfig(answer_seconds=0.3))) as served:
        begin = time.monotonic()
        assert "too long" in refused(served.retrieve("hang"), 504)
        assert time.monotonic() - begin < 3
        assert httpx.get(f"{served.url}/healthz").text == "ok"

        head = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
            connection.sendall(head)
            assert connection.recv(65536).startswith(b"HTTP/1.1 504 ")


def test_every_path_but_the_probe_wants_the_token() -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    with (
        in_thread(build_app(Obedient(), ServerConfig(token=TOKEN))) as served,
        httpx.Client(base_url=served.url) as client,
    ):
        for path in ("/status", "/openapi.json", "/nowhere"):
            for given in ("", TOKEN, "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"):
                answer = client.get(path, headers={"Authorization": given})
                assert "wants its token" in refused(answer, 401)
            assert client.get(path, headers=right).status_code in (200, 404)
        assert refused(served.retrieve("q"), 401)
        assert served.retrieve("q", headers=right).status_code == 200
        assert client.get("/healthz").text == "ok"


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_k", 0), ("port", 65536), ("token", "short"), ("host", "0.0.0.0")],
)
def test_a_setting_that_cannot_work_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(**{field: value})
    assert caught.value.field == f"server.{field}"


def test_others_need_a_token_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in ("127.1.2.3", "::1", "localhost"):
        assert ServerConfig(host=host).token is None
    assert TOKEN not in repr(ServerConfig(host="0.0.0.0", token=TOKEN))
    assert ServerConfig(host="0.0.0.0", no_token=True).token is None

    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(None) is None
    monkeypatch.setenv("SSP_SERVE_TOKEN", "from-the-environment")
    assert (read_token(file), read_token(None)) == (TOKEN, "from-the-environment")
    file.write_text("with spaces")
    for source in (file, tmp_path / "none"):
        with pytest.raises(ConfigError) as caught:
            read_token(source)
        assert "spaces" not in str(caught.value.value)


# -- batching ----------------------------------------------------------------------------------


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


def play(retriever: Gated, requests: list[tuple[list[str], int]]) -> list[Outcome]:
    """The outcomes of requests that arrived while the retriever was busy with another."""

    async def run() -> list[Outcome]:
        batcher = Batcher(retriever, max_waiting=1000)
        tasks = [asyncio.create_task(batcher.search(["first"], 1))]
        while not retriever.calls:
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(batcher.search(queries, k)) for queries, k in requests]
        await asyncio.sleep(0.05)
        retriever.gate.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        return outcomes[1:]

    outcomes = asyncio.run(run())
    del retriever.calls[0]
    return outcomes


def ids(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, list), outcome
    return [document.id for [document] in outcome]


def test_requests_that_wait_share_a_call_for_each_k_and_a_large_one_has_its_own() -> None:
    retriever = Gated()
    large = [f"q{n}" for n in range(300)]
    requests = [([f"a{n}", f"b{n}"], 3 if n % 2 else 5) for n in range(4)] + [(large, 5)]
    outcomes = play(retriever, requests)
    assert [ids(outcome) for outcome in outcomes] == [queries for queries, _ in requests]
    assert retriever.calls == [
        (["a0", "b0", "a2", "b2"], 5),
        (["a1", "b1", "a3", "b3"], 3),
        (large, 5),
    ]


def test_a_request_that_the_retriever_chokes_on_fails_alone() -> None:
    refusal = ServiceError("search", "no", fault="text")
    retriever = Gated({"bad": ValueError("no"), "refused": refusal})
    outcomes = play(retriever, [([query], 1) for query in ["a", "bad", "b", "refused", "c"]])
    assert [type(outcome) for outcome in outcomes] == [list, ValueError, list, ServiceError, list]
    assert ids(outcomes[4]) == ["c"]


def test_an_outage_is_not_asked_about_again_for_every_request() -> None:
    retriever = Gated({"bad3": ServiceError("search", "out")})
    outcomes = play(retriever, [([f"bad{n}"], 1) for n in range(20)])
    assert all(isinstance(outcome, ServiceError) for outcome in outcomes)
    assert len(retriever.calls) == 1


def test_a_retriever_that_answers_other_than_it_was_asked_is_refused() -> None:
    class Wrong(Gated):
        def search(self, queries: Sequence[str], k: int) -> Rankings:
            return [row * 2 for row in super().search(queries, k)]

    assert isinstance(play(Wrong(), [(["a", "b"], 1)])[0], UsageError)


def test_the_queue_is_bounded_and_a_request_that_was_given_up_makes_room() -> None:
    async def run() -> None:
        retriever = Gated()
        batcher = Batcher(retriever, max_waiting=3)
        tasks = [asyncio.create_task(batcher.search(["first"], 1))]
        while not retriever.calls:
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(batcher.search([query], 1)) for query in ("a", "b")]
        await asyncio.sleep(0.05)
        with pytest.raises(QueueFull):
            await batcher.search(["c"], 1)
        tasks[1].cancel()
        await asyncio.sleep(0.05)
        tasks.append(asyncio.create_task(batcher.search(["c"], 1)))
        await asyncio.sleep(0.05)
        retriever.gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        asked = [query for queries, _ in retriever.calls for query in queries]
        assert sorted(asked) == ["b", "c", "first"]

    asyncio.run(run())


# -- start and stop ----------------------------------------------------------------------------


def test_it_listens_once_the_index_is_loaded_and_nothing_holds_up_its_end(tmp_path: Path) -> None:
    with stub(tmp_path / "log", loading=1.5, answer_seconds=1.0) as served:
        time.sleep(0.5)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{served.url}/healthz")
        served.wait_ready()

        with socket.create_connection(("127.0.0.1", served.port)) as slow:
            slow.sendall(b"POST /retr")
            assert served.retrieve("hang").status_code == 504
            begin = time.monotonic()
            assert served.stop() == 0
            assert time.monotonic() - begin < 5


def _ask_until(over: threading.Event, served: Served, name: int, outcomes: dict[str, str]) -> None:
    """A client that asks one question after another; notes each outcome."""
    with httpx.Client(base_url=served.url, timeout=30, verify=False) as client:
        while not over.is_set():
            query = f"client {name} question {len(outcomes)}"
            try:
                answer = client.post("/retrieve", json={"queries": [query], "topk": 1})
                right = answer.json()["result"][0][0]["id"] == f"{query}/0"
                outcomes[query] = "right" if right else answer.text
            except httpx.TransportError as error:
                outcomes[query] = f"lost: {error!r}"
                time.sleep(0.01)


def test_stopped_under_load_it_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    over, outcomes = threading.Event(), dict[str, str]()
    with stub(tmp_path / "log", seconds=0.02) as served, ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(_ask_until, over, served, name, outcomes) for name in range(8)]
        while len(outcomes) < 100:
            time.sleep(0.01)
        assert served.stop() == 0
        over.set()
        for client in clients:
            client.result(30)
        searched = {query for call in served.calls() for query in call}
    assert all(outcome == "right" or "lost" in outcome for outcome in outcomes.values())
    assert {outcomes[query] for query in searched} == {"right"}

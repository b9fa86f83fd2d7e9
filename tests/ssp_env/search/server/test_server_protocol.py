"""The search server speaks Search-R1's protocol; what it refuses, and how."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest
import requests
from serverkit import Address, in_thread
from stub_server import SECRET, Obedient

from ssp_env.search.config import ServerConfig
from ssp_env.search.corpus import join_contents, split_contents
from ssp_env.search.server import build_app
from ssp_env.types import Document

LIMITS: dict[str, Any] = {
    "max_k": 5,
    "max_queries": 4,
    "max_documents": 12,
    "max_query_length": 100,
    "max_body_bytes": 2**20,
    "max_waiting": 8,
    "max_batch": 2,
}


@pytest.fixture(scope="module")
def served() -> Iterator[Address]:
    with in_thread(build_app(Obedient(), ServerConfig())) as served:
        yield served


@pytest.fixture(scope="module")
def narrow() -> Iterator[Address]:
    with in_thread(build_app(Obedient(), ServerConfig(**LIMITS))) as served:
        yield served


def post(served: Address, body: bytes | Iterator[bytes]) -> httpx.Response:
    return httpx.post(f"{served.url}/retrieve", content=body, timeout=30, verify=False)


def refused(answer: httpx.Response, status: int) -> str:
    """The words of a refusal, once its shape is checked."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == ["detail"]
    assert SECRET not in answer.text
    assert len(answer.text) < 500
    detail: str = body["detail"]
    return detail


# -- what is answered --------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 600])
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


@pytest.mark.parametrize(
    "fields", [{}, {"topk": None, "return_scores": None}, {"topk": 0, "model": "e5"}]
)
def test_missing_null_and_zero_take_the_default(served: Address, fields: dict[str, Any]) -> None:
    result = served.retrieve("q", **fields).json()["result"]
    assert [document["id"] for document in result[0]] == ["q/0", "q/1", "q/2"]
    assert requests.get(f"{served.url}/status").json() == "ok"


def test_queries_arrive_as_they_were_sent_but_well_formed(served: Address) -> None:
    queries = ["Wien ist schön", "誰が", "👩‍👩‍👧", "", " ", "\x00\x1b[2J\r\n", '"\\', "x" * 8192]
    answer = served.retrieve(*queries, topk=1)
    assert [found["id"] for [found] in answer.json()["result"]] == [f"{q}/0" for q in queries]
    assert "x-queries-cut" not in answer.headers

    body = b'{"queries": ["a\\udfffb", "\\ud83e\\udd89"], "topk": 1}'
    result = post(served, body).json()["result"]
    assert [ranking[0]["id"] for ranking in result] == ["a\ufffdb/0", "🦉/0"]
    answer = served.retrieve("surrogate", topk=1)
    assert json.loads(answer.content)["result"][0][0]["contents"].startswith('"\ud800"\n')


def test_a_long_query_is_cut_and_the_answer_says_so(served: Address) -> None:
    answer = served.retrieve("brief", "x" * 10_000, "y" * 2**20, topk=1)
    ids = [ranking[0]["id"] for ranking in answer.json()["result"]]
    assert ids == ["brief/0", "x" * 8192 + "/0", "y" * 8192 + "/0"]
    assert answer.headers["x-queries-cut"] == "2"
    assert "ssp_search_cut_queries_total 2.0" in httpx.get(f"{served.url}/metrics").text


@pytest.mark.parametrize("title", ["", "Danube", ' "quoted" ', '"', '""', "\t"])
def test_contents_are_read_back_as_title_and_text(title: str) -> None:
    for text in ("", "one\ntwo", '"x"\ny'):
        assert split_contents(join_contents(Document("1", title, text))) == (title, text)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "the body"),
        ({}, "queries: Field required"),
        ({"queries": ["a", 3]}, "queries.1: Input should be a valid string"),
        ({"queries": ["a"] * 5}, "at most 4 items"),
        ({"queries": ["a"], "topk": 6}, "topk: .* less than or equal to 5"),
        ({"queries": ["a"] * 3, "topk": 5}, "3 queries x topk 5 are 15 documents.* limit is 12"),
    ],
)
def test_a_wrong_shape_is_refused_and_named(narrow: Address, body: Any, says: str) -> None:
    assert re.search(says, refused(post(narrow, json.dumps(body).encode()), 422))


@pytest.mark.parametrize("body", [b"", b'{"queries": ["\xff"]}', b"[" * 100_000])
def test_what_is_not_json_is_refused(narrow: Address, body: bytes) -> None:
    answer = post(narrow, body)
    assert refused(answer, answer.status_code)
    assert answer.status_code in (400, 422)


def test_a_large_body_is_refused_also_in_chunks(narrow: Address) -> None:
    assert narrow.retrieve("x" * 2**20).status_code == 413
    assert post(narrow, (b"x" * 2**16 for _ in range(24))).status_code == 413


def test_a_huge_head_is_refused_before_it_fills_the_memory(narrow: Address) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", narrow.port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        with suppress(OSError):
            while sent < 100 * 2**20:
                connection.sendall(b"X-%d: %s\r\n" % (sent, b"a" * 60_000))
                sent += 60_000
    assert sent < 20 * 2**20
    assert httpx.get(f"{narrow.url}/healthz", headers={"X": "a" * 30_000}).text == "ok"


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
def test_a_failing_backend_is_no_empty_ranking_and_shows_nothing(
    narrow: Address, query: str, status: int
) -> None:
    answer = narrow.retrieve(query, return_scores=True)
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
    token = "correct-horse-battery"
    right = {"Authorization": f"Bearer {token}"}
    wrong = ["", token, "Bearer", f"Bearer {token}x", f"Bearer {token[:-1]}", "Basic Y29y"]
    with (
        in_thread(build_app(Obedient(), ServerConfig(token=token))) as served,
        httpx.Client(base_url=served.url) as client,
    ):
        for path in ("/status", "/metrics", "/openapi.json", "/nowhere"):
            for given in wrong:
                answer = client.get(path, headers={"Authorization": given})
                assert "wants its token" in refused(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
            assert client.get(path, headers=right).status_code in (200, 404)
        assert refused(served.retrieve("q"), 401)
        assert served.retrieve("q", headers=right).status_code == 200
        assert client.get("/healthz").text == "ok"

"""What the search server refuses, and how."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

import httpx
import pytest
from serverkit import Served, raw, stub
from stub_server import SECRET

JSON = {"Content-Type": "application/json"}
LIMITS: dict[str, Any] = {
    "max_k": 5,
    "max_queries": 4,
    "max_query_length": 100,
    "max_body_bytes": 2**20,
    "max_waiting": 8,
    "max_batch": 4,
    "read_seconds": 1.0,
    "answer_seconds": 2.0,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stub(tmp_path_factory.mktemp("limits") / "log", **LIMITS) as served:
        yield served


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """The message of a refusal, once its shape is checked."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), (
        answer.text
    )
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["code"] == code
    assert SECRET not in answer.text
    message: str = body["error"]["message"]
    return message


def post(served: Served, body: bytes, headers: dict[str, str] = JSON) -> httpx.Response:
    return httpx.post(f"{served.url}/retrieve", content=body, headers=headers, timeout=30)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"queries",
        b'{"queries": ["\xff"]}',
        b'{"queries": ["\x00"]}',
        b'{"queries": ["\\ud800"], "topk": NaN}',
        b'{"queries": ["\\u12"]}',
        b"[" * 100_000,
        b'"\\ud800"' + b"[" * 100_000,
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_no_json_is_refused(served: Served, body: bytes) -> None:
    refused(post(served, body), 400, "bad_json")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "no JSON object"),
        ({}, '"queries" is missing'),
        ({"queries": "one string"}, '"queries" has to be a list'),
        ({"queries": ["a", 3]}, '"queries" has to be a list of strings; queries[1] is a number'),
        ({"queries": [0.5]}, "queries[0] is a number"),
        ({"queries": ["a", None]}, "queries[1] is null"),
        ({"queries": ["a", True]}, "queries[1] is true"),
        ({"queries": [["a"]]}, "queries[0] is a list"),
        ({"queries": [{}]}, "queries[0] is an object"),
        ({"queries": ["a"] * 5}, "the limit is 4"),
        ({"queries": ["a" * 101]}, "queries[0] has 101 characters; the limit is 100"),
        ({"queries": ["a"], "topk": 0}, "from 1 to 5"),
        ({"queries": ["a"], "topk": 6}, "from 1 to 5"),
        ({"queries": ["a"], "topk": 10**40}, "from 1 to 5"),
        ({"queries": ["a"], "topk": 1.5}, "from 1 to 5"),
        ({"queries": ["a"], "topk": True}, "from 1 to 5"),
        ({"queries": ["a"], "topk": "3"}, "from 1 to 5"),
        ({"queries": ["a"], "return_scores": "yes"}, "true or false"),
    ],
)
def test_a_wrong_shape_is_refused_and_named(served: Served, body: Any, says: str) -> None:
    assert says in refused(post(served, json.dumps(body).encode()), 422, "bad_request")


def test_a_query_of_a_megabyte_is_refused(served: Served) -> None:
    body = json.dumps({"queries": ["x" * (2**20 - 100)]}).encode()
    assert "the limit is 100" in refused(post(served, body), 422, "bad_request")
    refused(served.retrieve("x" * 2**20), 413, "body_too_large")


def test_a_huge_body_in_chunks_is_refused(served: Served) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(24):
            yield b"x" * 2**16

    answer = httpx.post(f"{served.url}/retrieve", content=chunks(), headers=JSON)
    refused(answer, 413, "body_too_large")


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"]
)
def test_another_content_type_is_refused(served: Served, kind: str | None) -> None:
    refused(
        post(served, b'{"queries": []}', {"Content-Type": kind} if kind else {}), 415, "not_json"
    )


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON ;x=y"])
def test_parameters_of_the_content_type_do_not_matter(served: Served, kind: str) -> None:
    assert post(served, b'{"queries": []}', {"Content-Type": kind}).json() == {"result": []}


def test_other_paths_and_methods_are_refused(served: Served) -> None:
    refused(httpx.get(f"{served.url}/"), 404, "not_found")
    refused(httpx.post(f"{served.url}/retrieve/"), 404, "not_found")
    answer = httpx.get(f"{served.url}/retrieve")
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


def test_a_body_that_drips_in_is_given_up(served: Served) -> None:
    head = (
        b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Type: "
        b"application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    begin = time.monotonic()
    answer = raw(served.port, head)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"body_too_slow"' in answer
    assert 0.9 < time.monotonic() - begin < 5


@pytest.mark.parametrize("piece", [b"", b"P", b"POST /retrieve HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_a_head_that_drips_in_is_given_up(served: Served, piece: bytes) -> None:
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(piece)
        assert connection.recv(1) == b""
    assert 0.9 < time.monotonic() - begin < 5


def _one_answer(answers: BinaryIO) -> str:
    """The status line of an answer, which is read to its end: two bytes."""
    status = answers.readline().decode()
    while answers.readline().strip():
        pass
    assert answers.read(2) == b"ok"
    return status


def test_a_second_head_on_the_same_connection_has_the_same_limit(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        answers = connection.makefile("rb")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert "200" in _one_answer(answers)
        time.sleep(1.5)  # idle between two requests is no head
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /he")
        begin = time.monotonic()
        assert "200" in _one_answer(answers)
        assert answers.read() == b""
        assert 0.9 < time.monotonic() - begin < 5


def test_what_is_no_http_is_refused(served: Served) -> None:
    assert raw(served.port, b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_full_queue_says_when_to_come_back(served: Served) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: served.retrieve("slow", str(number)), range(12)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 503}
    for answer in answers:
        if answer.status_code == 503:
            refused(answer, 503, "queue_full")
            assert answer.headers["retry-after"] == "1"
    assert served.retrieve("after").status_code == 200


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("poison", 500, "search_failed"),
        ("short", 500, "search_failed"),
        ("outage", 503, "search_unavailable"),
    ],
)
def test_a_failing_backend_is_no_empty_ranking_and_tells_nothing(
    served: Served, query: str, status: int, code: str
) -> None:
    answer = served.retrieve(query)
    refused(answer, status, code)
    assert ("retry-after" in answer.headers) == (status == 503)


def test_a_score_that_is_no_number_is_a_failure(served: Served) -> None:
    refused(served.retrieve("nan", return_scores=True), 500, "search_failed")


def test_a_search_past_its_deadline_is_given_up(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = tmp_path_factory.mktemp("deadline") / "log"
    with stub(log, answer_seconds=0.5) as served:
        begin = time.monotonic()
        refused(served.retrieve("hang"), 504, "too_late")
        assert time.monotonic() - begin < 3
        assert httpx.get(f"{served.url}/healthz").text == "ok"

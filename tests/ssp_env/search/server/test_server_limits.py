"""What the search server refuses, and how."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from serverkit import Served, stub
from stub_server import SECRET

LIMITS: dict[str, Any] = {
    "max_k": 5,
    "max_queries": 4,
    "max_documents": 12,
    "max_query_length": 100,
    "max_body_bytes": 2**20,
    "max_waiting": 8,
    "max_batch": 2,
    "answer_seconds": 20.0,  # no test here waits for it; a busy machine may come close to less
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stub(tmp_path_factory.mktemp("limits") / "log", **LIMITS) as served:
        yield served


def refused(answer: httpx.Response, status: int) -> str:
    """The words of a refusal, once its shape is checked."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == ["detail"]
    assert SECRET not in answer.text
    assert len(answer.text) < 500
    detail: str = body["detail"]
    return detail


def post(served: Served, body: bytes | Iterator[bytes]) -> httpx.Response:
    return httpx.post(f"{served.url}/retrieve", content=body, timeout=30, verify=False)


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"queries": ["\xff"]}', b'{"queries": ["\\u12"]}', b"[" * 100_000]
)
def test_what_is_not_json_is_refused(served: Served, body: bytes) -> None:
    assert "not JSON" in refused(post(served, body), 400)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "the body"),
        ({}, "queries: Field required"),
        ({"queries": "x" * 2**19}, "queries: Input should be a valid list"),
        ({"queries": ["a", 3]}, "queries.1: Input should be a valid string"),
        ({"queries": ["a"] * 5}, "at most 4 items"),
        ({"queries": ["a"], "topk": -1}, "topk: .* greater than or equal to 0"),
        ({"queries": ["a"], "topk": 6}, "topk: .* less than or equal to 5"),
        ({"queries": ["a"], "topk": "3"}, "topk: .* valid integer"),
        ({"queries": ["a"], "return_scores": "yes"}, "return_scores: .* valid boolean"),
        ({"queries": ["a"] * 3, "topk": 5}, "3 queries x topk 5 are 15 documents.* limit is 12"),
    ],
)
def test_a_wrong_shape_is_refused_and_named(served: Served, body: Any, says: str) -> None:
    assert re.search(says, refused(post(served, json.dumps(body).encode()), 422))


def test_a_large_body_is_refused_also_in_chunks(served: Served) -> None:
    assert "larger than 1048576 bytes" in refused(served.retrieve("x" * 2**20), 413)
    assert refused(post(served, (b"x" * 2**16 for _ in range(24))), 413)


def test_a_huge_head_is_refused_before_it_fills_the_memory(served: Served) -> None:
    def resident() -> int:
        pages = Path(f"/proc/{served.process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096

    before, sent = resident(), 0
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        with suppress(OSError):
            while sent < 100 * 2**20:
                connection.sendall(b"X-%d: %s\r\n" % (sent, b"a" * 60_000))
                sent += 60_000
    assert sent < 20 * 2**20
    assert resident() - before < 20 * 2**20
    assert httpx.get(f"{served.url}/healthz", headers={"X": "a" * 30_000}).text == "ok"


def test_other_paths_and_methods_are_refused(served: Served) -> None:
    assert refused(httpx.get(f"{served.url}/"), 404)
    assert refused(httpx.get(f"{served.url}/retrieve"), 405)


def test_a_full_queue_says_when_to_come_back(served: Served) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: served.retrieve("slow", str(number)), range(12)))
    assert {answer.status_code for answer in answers} == {200, 503}
    for answer in answers:
        if answer.status_code == 503:
            assert "waiting" in refused(answer, 503)
            assert answer.headers["retry-after"] == "1"
    assert served.retrieve("after").status_code == 200


@pytest.mark.parametrize(
    ("query", "status"), [("poison", 500), ("short", 500), ("nan", 500), ("outage", 503)]
)
def test_a_failing_backend_is_no_empty_ranking_and_shows_nothing(
    served: Served, query: str, status: int
) -> None:
    answer = served.retrieve(query, return_scores=True)
    refused(answer, status)
    assert ("retry-after" in answer.headers) == (status == 503)


def test_a_request_past_its_deadline_is_given_up(tmp_path: Path) -> None:
    with stub(tmp_path / "log", answer_seconds=0.5) as served:
        begin = time.monotonic()
        assert "too long" in refused(served.retrieve("hang"), 504)
        assert time.monotonic() - begin < 3
        assert httpx.get(f"{served.url}/healthz").text == "ok"

        head = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
            connection.sendall(head)
            assert connection.recv(65536).startswith(b"HTTP/1.1 504 ")

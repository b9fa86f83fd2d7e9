"""Our client against our server and against one like Search-R1's, each a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serverkit import Served, free_port, start, stub

from ssp_env.errors import ServiceError
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.types import Document

RETRY = RetryPolicy(attempts=2, first_delay=0.01)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stub(tmp_path_factory.mktemp("ours") / "log") as served:
        yield served


@pytest.fixture(scope="module", params=["dense", "bm25"])
def theirs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    port = free_port()
    command = [
        sys.executable,
        str(Path(__file__).with_name("r1_server.py")),
        str(port),
        request.param,
    ]
    served = start(tmp_path_factory.mktemp("theirs") / "log", command, port)
    try:
        ends = time.monotonic() + 60
        while True:
            try:
                httpx.get(served.url, timeout=5)
                break
            except httpx.TransportError:
                assert time.monotonic() < ends, served.log.read_text()
                time.sleep(0.05)
        yield served
    finally:
        served.process.kill()
        served.process.wait()


def client(served: Served) -> HTTPRetriever:
    return HTTPRetriever(HTTPConfig(served.url, retry=RETRY))


def passages(query: str, k: int) -> list[tuple[str, str]]:
    return [(f"About {query}", f"Text {i}\nof {query}") for i in range(k)]


def shown(ranking: list[Document]) -> list[tuple[str, str]]:
    return [(document.title, document.text) for document in ranking]


@pytest.mark.parametrize("count", [1, 2, 3, 200])
def test_our_server(ours: Served, count: int) -> None:
    queries = [f"query {i} Ω" for i in range(count)]
    with client(ours) as retriever:
        found = retriever.search(queries, 3)
    assert [shown(ranking) for ranking in found] == [passages(query, 3) for query in queries]
    assert found[0][1].id == "query 0 Ω/1"


@pytest.mark.parametrize("count", [1, 2, 3, 200])
def test_a_server_like_search_r1s(theirs: Served, count: int) -> None:
    queries = [f"query {i} Ω" for i in range(count)]
    with client(theirs) as retriever:
        found = retriever.search(queries, 2)
    assert [shown(ranking) for ranking in found] == [passages(query, 2) for query in queries]
    assert all(len({document.id for document in ranking}) == 2 for ranking in found)


AWKWARD = ["", " \n\t", "\0\x1b\x7f", "a\ud800b", "x" * 2**20, "北京 தமிழ் 👩‍👩‍👧", '"\\u0000"']


def test_awkward_queries_are_within_every_servers_limits(ours: Served, theirs: Served) -> None:
    for served in (ours, theirs):
        with client(served) as retriever:
            found = retriever.search([*AWKWARD, *(f"{'y' * 10_000}{i}" for i in range(64))], 2)
        assert all(len(ranking) == 2 for ranking in found)


@pytest.mark.parametrize("bad", [[0], [5, 6, 40], [63]])
def test_a_query_that_a_server_fails_at_fails_alone(
    ours: Served, theirs: Served, bad: list[int]
) -> None:
    for served in (ours, theirs):
        queries = ["poison" if i in bad else f"query {i}" for i in range(64)]
        with client(served) as retriever:
            results = retriever.search_each(queries, 2)
        assert [i for i, result in enumerate(results) if isinstance(result, ServiceError)] == bad
        assert all(
            shown(result) == passages(query, 2)
            for query, result in zip(queries, results, strict=True)
            if not isinstance(result, ServiceError)
        )


@pytest.mark.parametrize("query", ["nan", "short", "outage"])
def test_a_broken_backend_is_an_error(ours: Served, query: str) -> None:
    with client(ours) as retriever, pytest.raises(ServiceError, match="HTTP 50"):
        retriever.search([query, "other"], 2)


def test_what_is_not_unicode_comes_as_replacement_characters(ours: Served) -> None:
    with client(ours) as retriever:
        assert retriever.search(["surrogate"], 1)[0][0].title == "\ufffd"


def test_a_limit_of_the_server_is_a_clear_error(tmp_path: Path) -> None:
    with stub(tmp_path / "log", max_queries=4, max_k=5) as served, client(served) as retriever:
        with pytest.raises(ServiceError, match=r"HTTP 422.*limit is 4"):
            retriever.search([f"q{i}" for i in range(5)], 2)
        assert not any(
            isinstance(r, ServiceError)
            for r in retriever.search_each([f"q{i}" for i in range(5)], 2)
        )
        with pytest.raises(ServiceError, match=r"HTTP 422.*topk"):
            retriever.search(["q"], 6)


def test_a_token_opens_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_TOKEN", "open-sesame-123456789")
    with stub(tmp_path / "log", token="open-sesame-123456789") as served:
        with HTTPRetriever(HTTPConfig(served.url, token_env="SEARCH_TOKEN")) as retriever:
            assert shown(retriever.search(["q"], 1)[0]) == passages("q", 1)
        with (
            client(served) as retriever,
            pytest.raises(ServiceError, match=r"HTTP 401.*none came.*--token-env"),
        ):
            retriever.search(["q"], 1)
        monkeypatch.setenv("SEARCH_TOKEN", "open-sesame-987654321")
        wrong = HTTPRetriever(HTTPConfig(served.url, token_env="SEARCH_TOKEN"))
        with (
            wrong,
            pytest.raises(
                ServiceError, match=r"401.*came as Authorization is not it.*in SEARCH_TOKEN was"
            ),
        ):
            wrong.search(["q"], 1)

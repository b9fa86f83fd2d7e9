"""Our client against our server and against one like Search-R1's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from r1_server import r1_app
from serverkit import Address, in_thread
from stub_server import Obedient

from ssp_env.net import RetryPolicy
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.search.config import ServerConfig
from ssp_env.search.server import build_app
from ssp_env.types import Document

RETRY = RetryPolicy(attempts=2, first_delay=0.01)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module", params=["ours", "dense", "bm25"])
def server(request: pytest.FixtureRequest) -> Iterator[Address]:
    ours = request.param == "ours"
    app = build_app(Obedient(), ServerConfig()) if ours else r1_app(request.param)
    with in_thread(app) as address:
        yield address


def client(server: Address) -> HTTPRetriever:
    return HTTPRetriever(HTTPConfig(server.url, retry=RETRY))


def passages(query: str, k: int) -> list[tuple[str, str]]:
    return [(f"About {query}", f"Text {i}\nof {query}") for i in range(k)]


def shown(ranking: list[Document]) -> list[tuple[str, str]]:
    return [(document.title, document.text) for document in ranking]


@pytest.mark.parametrize("count", [1, 2, 200])
def test_one_ranking_per_query(server: Address, count: int) -> None:
    queries = [f"query {i} Ω\ud800" for i in range(count)]
    with client(server) as retriever:
        found = retriever.search(queries, 2)
    sent = [query.replace("\ud800", "\ufffd") for query in queries]
    assert [shown(ranking) for ranking in found] == [passages(query, 2) for query in sent]
    assert all(len({document.id for document in ranking}) == 2 for ranking in found)

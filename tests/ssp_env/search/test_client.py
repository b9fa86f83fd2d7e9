"""Search named by plain settings; the HTTP retriever: what it sends, which queries fail with a
server, and when it gives up."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import pickle
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted import jsonl
from serverkit import SearchServer

from ssp_env.envs.setup import set_up
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.judge.chat import ChatClient, ChatConfig
from ssp_env.search.base import Results, Retriever, identify, join_contents
from ssp_env.search.client import HTTPRetriever, read_reply
from ssp_env.search.index import SearchConfig, build_index, check_search
from ssp_env.testing import RetrieverTests
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mini")
    return build_index(jsonl(directory / "c.jsonl", MiniWorld().corpus), directory / "index").parent


def test_a_mapping_names_a_server_and_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_TOKEN", token := "correct-horse-battery")
    given = {"source": f"{NOWHERE}/retrieve", "token_env": "OUR_TOKEN"}
    shown = identify(set_up({"world": "small", "search": given}).rules.retriever)
    assert shown["class"] == "HTTPRetriever"
    assert NOWHERE in json.dumps(shown)
    assert not any(secret in json.dumps(shown) for secret in ("hidden", token))
    for url in ("http://h:1", "http://h:1/", "http://h:1/retrieve", "http://h:1/retrieve/"):
        assert HTTPRetriever(url).url == "http://h:1/retrieve"


@pytest.mark.parametrize(
    ("given", "field", "fix"),
    [
        ({"source": NOWHERE, "encoder": "x"}, "search.encoder", "goes with an index directory"),
        ({"source": "DIR/dense-flat"}, "index", "holds bm25; add it by `ssp index`"),
        ({"source": "DIR", "encoder": "x"}, "search.encoder", "no such directory"),
        ({"source": "ftp://localhost"}, "search.source", "http://127.0.0.1:8000"),
        ({"source": "http://127.0.0.1:80a0"}, "search.source", "http://127.0.0.1:8000"),
        ({"source": f"{NOWHERE}/?key=hidden"}, "search.source", "http://127.0.0.1:8000"),
        ({"source": NOWHERE, "token_env": "sk-secret"}, "search.token_env", "not the key"),
    ],
)
def test_what_cannot_work_is_named(given: Any, field: str, fix: str, index: Path) -> None:
    given = {name: value.replace("DIR", str(index)) for name, value in given.items()}
    with pytest.raises(ConfigError) as raised:
        check_search(SearchConfig.of(given))
    assert raised.value.field == field
    assert fix in raised.value.fix


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("ssp_env.net.FIRST_PAUSE", 0.01)


@pytest.fixture
def server() -> Iterator[SearchServer]:
    with SearchServer() as server:
        yield server


def expected(query: str, k: int) -> list[Document]:
    digest = hashlib.sha256(query.encode()).hexdigest()
    return [Document(f"{digest}-{i}", digest, f"rank {i}", 9.5 - i) for i in range(k)]


def failed(queries: Sequence[str], results: Results) -> dict[str, ServiceError]:
    """The queries that got an error, and it; all others are checked."""
    pairs = dict(zip(queries, results, strict=True))
    errors = {q: found for q, found in pairs.items() if isinstance(found, ServiceError)}
    assert all(pairs[q] == expected(q, 2) for q in queries if q not in errors)
    return errors


class TestHTTPRetriever(RetrieverTests):
    queries = ("capital of Austria", "Danube", "city in Italy")

    @pytest.fixture(autouse=True)
    def serve(self) -> Iterator[None]:
        with SearchServer() as self.server:
            yield

    def make_retriever(self) -> Retriever:
        return HTTPRetriever(self.server.url, deadline=2)

    def break_it(self, retriever: Any) -> None:
        self.server.scripts.usual = "busy"


def test_a_large_batch_is_divided_and_each_query_sent_once_side_by_side(
    server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssp_env.search.client.CONNECTIONS", 5)
    server.scripts.usual = "lazy"
    queries = [f"q{i}" for i in range(500)]
    with HTTPRetriever(server.url) as retriever:
        found = retriever.search([*queries, "q0"], 2)
        found[0].clear()
        assert not failed([*queries[1:], "q0"], [*found[1:]]), "each has its own list"
        assert retriever.search([], 2) == []
    assert sorted(map(len, server.asked())) == [52] + [64] * 7
    assert 2 <= server.most_busy <= 5


def test_awkward_queries_arrive_as_they_are_but_cut_and_well_formed(server: SearchServer) -> None:
    awkward = ["", " \t\n", "\0\x1b[31m\x7f\u202e", "北京 👩‍👩‍👧", '"\\', "\u2028"]
    with HTTPRetriever(server.url) as retriever:
        retriever.search([*awkward, "a\ud800b", "\udc00", "x" * 2**20], 2)
    assert server.asked() == [[*awkward, "a\ufffdb", "\ufffd", "x" * 4096]]


def test_each_query_of_a_batch_that_cannot_be_answered_gets_what_is_its_own(
    server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssp_env.search.client.MAX_REPLY", 10**6)
    monkeypatch.setattr("ssp_env.net.FIRST_PAUSE", 1.0)  # then there is time for two calls
    monkeypatch.setenv("SEARCH_TOKEN", "sesame-42")
    lasting = {
        "down": r"HTTP 500; .*'oops' \(after 2 calls\)",
        "busy": r"HTTP 503.*\(after 2 calls\)",
        "html": r"no answer: Expecting value.*\(after 2 calls\)",
        "too_many": r"a list of 1 lists",
        "truncated": r"RemoteProtocolError.*\(after 2 calls\)",
        "endless": r"a reply of more than 1000000 bytes",
        "never": r"no complete reply.*\(after 2 calls\)",
        "trickle": r"no complete reply.*\(after 2 calls\)",
    }
    final = {
        "refused": r"HTTP 422; .*a bad query",
        "forbidden": r"HTTP 401.*who are you, \.\.\.\?.*--token-env",
        "moved": r"HTTP 307",
        "forever": r"HTTP 429.*after 1 call",
    }
    marks = [f"script:{mark}" for mark in (lasting | final)]
    queries = [*marks, *(f"fine {i}" for i in range(20))]
    began = time.monotonic()
    with HTTPRetriever(server.url, deadline=2.5, token_env="SEARCH_TOKEN") as retriever:
        errors = failed(queries, retriever.search_each(queries, 2))
    assert time.monotonic() - began < 20
    assert server.headers[0]["authorization"] == "Bearer sesame-42"

    assert list(errors) == marks
    asked = Counter(queries[0] for queries in server.asked()[1:])
    for mark, says in (lasting | final).items():
        error = errors[f"script:{mark}"]
        assert re.search(says, error.what), error.what
        assert type(error) is ServiceError
        assert error.fault == ("text" if mark == "refused" else "service")
        assert len(error.what) < 1500
        assert (asked[f"script:{mark}"] > 1) is (mark in lasting)


def test_a_dead_or_overloaded_server_is_not_asked_for_every_query(server: SearchServer) -> None:
    queries = [f"q{i}" for i in range(32)]
    server.scripts.usual = "busy"
    with HTTPRetriever(server.url, deadline=0.5) as retriever:
        assert [*failed(queries, retriever.search_each(queries, 2))] == queries
        assert server.asked() == [queries] * len(server.bodies), "one request, with all its tries"
    with HTTPRetriever(server.url, deadline=0.5) as gone:
        server.__exit__()
        assert [*failed(queries, gone.search_each(queries, 2))] == queries


def _child(retriever: HTTPRetriever, queue: Any) -> None:
    queue.put(retriever.search(["in the child"], 1) == [expected("in the child", 1)])


FORGED = "http://user:secret@127.0.0.1:9"


def test_a_proxy_is_passed_by_on_this_machine_and_named_elsewhere(
    server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, FORGED)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    port = server.url.rpartition(":")[2]
    for url in (server.url, f"http://localhost:{port}"):
        assert HTTPRetriever(url).search(["well"], 1)

    there = "http://search.invalid:8000"
    chat = ChatClient(ChatConfig(base_url=f"{there}/v1", model="m"))
    monkeypatch.setattr("ssp_env.judge.chat.CALLS", 1)
    for failed in (HTTPRetriever(there, deadline=0.5).search_each(["a"], 1)[0],
                   chat.ask(["a"], str, "judge")[0]):  # fmt: skip
        assert "the proxy 127.0.0.1:9; set NO_PROXY=search.invalid to reach" in str(failed)
        assert "secret" not in str(failed)
    monkeypatch.setenv("HTTP_PROXY", "ftp://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "ftp://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"HTTP_PROXY = '127.0.0.1:9': "):
        HTTPRetriever(there).search(["a"], 1)


def test_copies_forks_and_a_closed_one_open_their_own_connections(server: SearchServer) -> None:
    with HTTPRetriever(server.url) as retriever:
        retriever.search(["a"], 1)
        with pickle.loads(pickle.dumps(retriever)) as twin:
            assert twin.search(["b"], 2) == [expected("b", 2)]

        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_child, args=(retriever, queue))
        child.start()
        assert queue.get(timeout=120) is True
        child.join(60)
        assert retriever.search(["c"], 1) == [expected("c", 1)]
    assert retriever.search(["d"], 1) == [expected("d", 1)], "a closed one opens others"


DOCUMENT = {"id": "1", "contents": '"Title"\nText'}
HIT = {"document": DOCUMENT, "score": 0.5}


def reply(result: Any) -> bytes:
    return json.dumps({"result": result}).encode()


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
DOCUMENTS = st.fixed_dictionaries({"contents": st.text(max_size=5)}, optional={"id": VALUES})
HITS = st.fixed_dictionaries({"document": DOCUMENTS | VALUES, "score": st.floats() | VALUES})


@given(st.lists(st.lists(HITS, max_size=3) | VALUES, max_size=2) | VALUES, st.integers(1, 3))
@example([[HIT] * 2], 3)
@example([[DOCUMENT]], 3)
@example([[HIT | {"score": 10**400}]], 3)
@example([{}], 3)
@example([[{"document": DOCUMENT | {"id": None}, "score": 0.5}]], 3)
def test_a_reply_is_rankings_or_wrong(result: Any, k: int) -> None:
    try:
        [ranking] = read_reply(reply(result), 1, k)
    except ValueError:
        return
    assert "None" not in {document.id for document in ranking}
    assert len({document.id for document in ranking}) == len(ranking) <= k
    assert all(math.isfinite(document.score or 0.0) for document in ranking)


class FlashRAGServer(SearchServer):
    path = "/batch_search"

    def texts(self, body: Any) -> list[str]:
        assert body["return_score"] is True
        return list(body["query"])

    def success(self, reply: str, body: Any) -> bytes:
        found = [expected(query, body["top_n"]) for query in body["query"]]
        rows = [[{"id": d.id, "contents": join_contents(d)} for d in each] for each in found]
        return json.dumps([rows, [[d.score for d in each] for each in found]]).encode()


def test_a_flashrag_server_is_asked_as_it_wants_to_be() -> None:
    with FlashRAGServer() as server:
        address = server.url.removesuffix("/retrieve").rstrip("/") + "/batch_search"
        found = HTTPRetriever(address).search(["a", "b"], 2)
    assert found == [expected("a", 2), expected("b", 2)]

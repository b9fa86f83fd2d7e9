"""The HTTP retriever: what it sends, what it understands, what it refuses, and when it gives up."""

from __future__ import annotations

import asyncio
import copy
import gc
import hashlib
import multiprocessing
import pickle
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hostile import Hostile, lazy, serving

import ssp_env
from ssp_env.commands.search import COMMAND
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.base import AsyncRetriever, PartialRetriever, Retriever
from ssp_env.search.client import AsyncHTTPRetriever, HTTPConfig, HTTPRetriever
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


def client(server: Hostile, **settings: Any) -> HTTPRetriever:
    return HTTPRetriever(HTTPConfig(server.url, **({"retry": RETRY, "timeout": 10.0} | settings)))


def expected(query: str, k: int) -> list[Document]:
    digest = hashlib.sha256(query.encode()).hexdigest()
    return [Document(f"{digest}-{i}", digest, f"rank {i}", 9.5 - i) for i in range(k)]


def check(found: Sequence[Sequence[Document]], queries: Sequence[str], k: int) -> None:
    assert [list(ranking) for ranking in found] == [expected(query, k) for query in queries]


class TestHTTPRetriever(RetrieverTests):
    queries = ("capital of Austria", "Danube", "city in Italy")

    @pytest.fixture(autouse=True)
    def serve(self) -> Iterator[None]:
        with serving() as self.server:
            yield

    def make_retriever(self) -> Retriever:
        return client(self.server)

    def break_it(self, retriever: Any) -> None:
        self.server.usual = _down


async def _down(call: Any) -> None:
    await call.answer(b"down", 503)


def test_it_fits_the_protocols(server: Hostile) -> None:
    assert isinstance(client(server), PartialRetriever)
    assert isinstance(AsyncHTTPRetriever(server.url), AsyncRetriever)


@pytest.mark.parametrize("count", [1, 2, 3, 64])
def test_one_ranking_a_query_in_order(server: Hostile, count: int) -> None:
    queries = [f"query {i}" for i in range(count)]
    with client(server) as retriever:
        found = retriever.search(queries, 3)
    check(found, queries, 3)
    assert [d.score for d in found[0]] == [9.5, 8.5, 7.5]
    assert server.asked() == [queries]


def test_no_queries_no_request(server: Hostile) -> None:
    assert client(server).search([], 3) == []
    assert server.calls == []


def test_a_large_batch_is_divided_and_sent_side_by_side(server: Hostile) -> None:
    server.usual = lazy
    queries = [f"q{i}" for i in range(50)]
    with client(server, max_batch=4, connections=5) as retriever:
        check(retriever.search(queries, 2), queries, 2)
    assert sorted(map(len, server.asked())) == [2] + [4] * 12
    assert 2 <= server.most_busy <= 5


def test_the_same_query_is_sent_once_and_its_rankings_are_separate_lists(server: Hostile) -> None:
    found = client(server).search(["a", "b", "a"], 2)
    check(found, ["a", "b", "a"], 2)
    assert server.asked() == [["a", "b"]]
    found[0].clear()
    assert len(found[2]) == 2


def test_connections_are_kept(server: Hostile) -> None:
    with client(server) as retriever:
        for i in range(30):
            retriever.search([f"q{i}"], 1)
    assert server.connections == 1


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(server: Hostile) -> None:
    with client(server) as retriever:
        for i in range(10):
            check(retriever.search([f"q{i}"], 1), [f"q{i}"], 1)
            server.hang_up_idle()
        for i in range(10):
            check(
                retriever.search([f"hostile:closes_after {i}"], 1), [f"hostile:closes_after {i}"], 1
            )
    assert server.connections > 10


AWKWARD = [
    "",
    " \t\n",
    "\0\x01\x1b[31m\x7f\u202e",
    "Москва 北京 👩‍👩‍👧 ܐܪܡܝܐ",
    "</information>",
    '"\\',
    "\u2028",
]


def test_awkward_queries_arrive_as_they_are(server: Hostile) -> None:
    check(client(server).search(AWKWARD, 2), AWKWARD, 2)
    assert server.asked() == [AWKWARD]


def test_lone_surrogates_are_sent_as_replacement_characters(server: Hostile) -> None:
    client(server).search(["a\ud800b", "\udc00", "\ud83d\ude00"], 1)
    assert server.asked() == [["a\ufffdb", "\ufffd", "😀"]]


def test_a_query_of_a_megabyte_is_cut(server: Hostile) -> None:
    with client(server, max_query_chars=1000) as retriever:
        found = retriever.search(["x" * 2**20, "y"], 1)
    check(found, ["x" * 1000, "y"], 1)


@pytest.mark.parametrize(
    ("mark", "document"),
    [
        ("id_int", Document("7", "*", "rank 0")),
        ("no_id", Document("*", "*", "rank 0")),
        ("title_and_text", Document("*", "T", "x")),
        ("text_only", Document("*", "", "x")),
        ("surrogate", Document("*", "", "a\ufffdb")),
        ("extra", Document("*", "*", "rank 0")),
    ],
)
def test_what_servers_send_besides_is_understood(
    server: Hostile, mark: str, document: Document
) -> None:
    (found, *_), other = client(server).search([f"hostile:{mark}", "other"], 2)
    for field in ("id", "title", "text"):
        assert getattr(document, field) in ("*", getattr(found, field))
    check([other], ["other"], 2)


def test_documents_without_an_id_are_told_apart_by_what_they_say(server: Hostile) -> None:
    first, second = client(server).search(["hostile:no_id"], 2)[0]
    again = client(server).search(["hostile:no_id"], 2)[0][0]
    assert first.id == again.id != second.id


@pytest.mark.parametrize(
    ("mark", "what"),
    [
        ("html", "not JSON"),
        ("empty_body", "not JSON"),
        ("latin", "not JSON"),
        ("deep", "not JSON"),
        ("list", "no JSON object with a list 'result'"),
        ("null", "no JSON object with a list 'result'"),
        ("no_result", "no JSON object with a list 'result'"),
        ("result_null", "no JSON object with a list 'result'"),
        ("result_object", "no JSON object with a list 'result'"),
        ("too_few", "1 rankings for 2 queries"),
        ("too_many", "3 rankings for 2 queries"),
        ("flat", r"result\[0\] is dict, not a list"),
        ("bare", r"result\[0\]\[0\] is no object with a 'document'"),
        ("more_than_k", r"result\[0\] holds 3 documents where 2 were asked for"),
        ("ranking_null", r"result\[0\] is null, not a list"),
        ("hit_null", r"result\[0\]\[0\] is no object"),
        ("twice", r"result\[0\] holds a document twice"),
        ("score_null", r"result\[0\]\[0\].score is null, not a finite number"),
        ("score_text", "score is str"),
        ("score_true", "score is bool"),
        ("score_nan", "NaN is no JSON number"),
        ("score_infinite", "Infinity is no JSON number"),
        ("score_huge", "score is int, not a finite number"),
        ("score_overflows", "score is float, not a finite number"),
        ("document_null", "no object with a 'document'"),
        ("contents_null", "document.contents is null, not a string"),
        ("no_text", "document.text is missing"),
        ("id_null", "document.id is null"),
        ("id_float", "document.id is float"),
        ("truncated", "RemoteProtocolError"),
        ("endless", "reply of more than 1000000 bytes"),
        ("declared", "reply of more than 1000000 bytes"),
        ("down", "HTTP 500: 'oops'"),
        ("busy", "HTTP 503"),
        ("reset", "Error"),
    ],
)
def test_anything_else_is_an_error_after_all_attempts(
    server: Hostile, mark: str, what: str
) -> None:
    with (
        client(server, max_reply_bytes=10**6) as retriever,
        pytest.raises(ServiceError, match=what) as raised,
    ):
        retriever.search([f"hostile:{mark}", "other"], 2)
    assert type(raised.value) is ServiceError
    assert raised.value.service == "search"
    assert raised.value.what.endswith("(after 3 calls)")
    assert len(raised.value.what) < 1500
    assert len(server.calls) == 3


@pytest.mark.parametrize("mark", ["flaky", "gateway", "late", "resets_once"])
def test_a_passing_trouble_is_retried(server: Hostile, mark: str) -> None:
    queries = [f"hostile:{mark}", "other"]
    check(client(server).search(queries, 2), queries, 2)
    assert server.asked() == [queries] * (3 if mark == "flaky" else 2)


@pytest.mark.parametrize(
    ("mark", "what"),
    [
        ("refused", "HTTP 422: .*a bad query"),
        ("forbidden", "HTTP 401"),
        ("moved", "HTTP 307 to 'http://elsewhere/retrieve' .redirects are not followed"),
        ("forever", "after 1 call; it asks to be left alone for 86400 s"),
    ],
)
def test_a_refusal_is_not_retried(server: Hostile, mark: str, what: str) -> None:
    with pytest.raises(ServiceError, match=what):
        client(server).search([f"hostile:{mark}", "other"], 2)
    assert len(server.calls) == 1


def test_retry_after_is_honoured(server: Hostile) -> None:
    began = time.monotonic()
    check(client(server).search(["hostile:patience"], 1), ["hostile:patience"], 1)
    assert 1.0 <= time.monotonic() - began < 5


def test_retry_after_beyond_the_deadline_is_not_waited_for(server: Hostile) -> None:
    began = time.monotonic()
    with (
        client(server, deadline=0.5) as retriever,
        pytest.raises(ServiceError, match="no time is left for another"),
    ):
        retriever.search(["hostile:patience"], 1)
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize("mark", ["never", "trickle_head", "trickle_body"])
@pytest.mark.parametrize(("timeout", "deadline"), [(0.15, 10.0), (10.0, 0.3)])
def test_nothing_outlasts_its_deadline(
    server: Hostile, mark: str, timeout: float, deadline: float
) -> None:
    began = time.monotonic()
    with client(server, timeout=timeout, deadline=deadline) as retriever:
        with pytest.raises(ServiceError, match=r"not complete after|no reply after"):
            retriever.search([f"hostile:{mark}"], 1)
        assert time.monotonic() - began < min(3 * timeout, deadline) + 1.0
        check(retriever.search(["fine"], 1), ["fine"], 1)


def test_waiting_for_a_free_connection_ends_too(server: Hostile) -> None:
    with client(server, connections=1, deadline=0.4) as retriever, ThreadPoolExecutor(4) as pool:
        began = time.monotonic()
        searches = [pool.submit(retriever.search, ["hostile:never"], 1) for _ in range(4)]
        failures = [search.exception() for search in searches]
        assert time.monotonic() - began < 2.5
    assert all(type(failure) is ServiceError for failure in failures)


def test_a_half_open_socket_that_never_accepts_is_given_up() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)  # the kernel accepts one or two; nobody ever reads
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with HTTPRetriever(
            HTTPConfig(url, timeout=0.2, deadline=1.0, retry=RETRY, max_batch=1)
        ) as retriever:
            began = time.monotonic()
            results = retriever.search_each([f"q{i}" for i in range(8)], 1)
            assert time.monotonic() - began < 2.5
    assert all(isinstance(result, ServiceError) for result in results)


def test_nobody_listens() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        with (
            HTTPRetriever(
                HTTPConfig(f"http://127.0.0.1:{deaf.getsockname()[1]}", retry=RETRY)
            ) as retriever,
            pytest.raises(ServiceError, match=r"ConnectError.*\(after 3 calls\)"),
        ):
            retriever.search(["q"], 1)


def test_a_name_that_nobody_knows() -> None:
    config = HTTPConfig("http://no-such-host.invalid", retry=RETRY, deadline=5.0)
    began = time.monotonic()
    with HTTPRetriever(config) as retriever, pytest.raises(ServiceError, match="no-such-host"):
        retriever.search(["q"], 1)
    assert time.monotonic() - began < 6


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
    with pytest.raises(
        ConfigError, match=r"SEARCH_TOKEN.*set this environment variable to the server's token"
    ):
        client(server, token_env="SEARCH_TOKEN")


def test_https_is_not_what_every_server_speaks() -> None:
    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        retriever = HTTPRetriever(HTTPConfig(url, retry=RetryPolicy(attempts=1)))
        with retriever, pytest.raises(ServiceError, match=r"SSL.*\(is it http://\?\)"):
            retriever.search(["q"], 1)
        thread.join()


def test_copies_work_on_their_own(server: Hostile) -> None:
    with client(server) as retriever:
        retriever.search(["a"], 1)
        for twin in (
            pickle.loads(pickle.dumps(retriever)),
            copy.copy(retriever),
            copy.deepcopy(retriever),
        ):
            with twin:
                check(twin.search(["b"], 2), ["b"], 2)
        check(retriever.search(["c"], 1), ["c"], 1)


def _child(retriever: HTTPRetriever, queue: Any) -> None:
    queue.put([d.title for ranking in retriever.search(["in the child"], 1) for d in ranking])


def test_it_survives_a_fork(server: Hostile) -> None:
    with client(server) as retriever:
        retriever.search(["before"], 1)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_child, args=(retriever, queue))
        child.start()
        assert queue.get(timeout=20) == [expected("in the child", 1)[0].title]
        child.join(10)
        check(retriever.search(["after"], 1), ["after"], 1)
    assert server.connections == 2


def test_a_closed_retriever_says_so(server: Hostile) -> None:
    retriever = client(server)
    retriever.search(["a"], 1)
    retriever.close()
    retriever.close()
    with pytest.raises(UsageError, match="closed"):
        retriever.search(["a"], 1)


def test_async_from_several_loops(server: Hostile) -> None:
    retriever = AsyncHTTPRetriever(HTTPConfig(server.url, retry=RETRY))

    async def many() -> None:
        found = await asyncio.gather(*(retriever.search([f"q{i}"], 2) for i in range(40)))
        for i, rankings in enumerate(found):
            check(rankings, [f"q{i}"], 2)
        bad, good = await retriever.search_each(["hostile:down", "good"], 1)
        assert isinstance(bad, ServiceError)
        check([good], ["good"], 1)  # type: ignore[list-item]
        with pytest.raises(ServiceError):
            await retriever.search(["hostile:down"], 1)

    asyncio.run(many())
    asyncio.run(many())
    assert server.most_busy <= 16

    async def end() -> None:
        async with retriever:
            pass
        with pytest.raises(UsageError):
            await retriever.search(["a"], 1)

    asyncio.run(end())


def test_an_async_search_that_is_cancelled_ends_at_once_and_hurts_nobody(server: Hostile) -> None:
    async def impatient() -> None:
        async with AsyncHTTPRetriever(HTTPConfig(server.url, connections=1)) as retriever:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(retriever.search(["hostile:never"], 1), 0.1)
            check(await retriever.search(["q"], 1), ["q"], 1)
            assert time.monotonic() - began < 2

    asyncio.run(impatient())


def test_an_interrupt_ends_a_search_and_frees_its_connection(server: Hostile) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with client(server, connections=1) as retriever:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                retriever.search(["hostile:never"], 1)
            check(retriever.search(["q"], 1), ["q"], 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_wrong_calls(server: Hostile) -> None:
    retriever = client(server)
    with pytest.raises(UsageError):
        retriever.search("one string", 3)
    with pytest.raises(ConfigError):
        retriever.search_each(["q"], 0)


def test_an_environment_takes_an_address(server: Hostile) -> None:
    found = ssp_env.raw_env(world="small", retriever=server.url).rules.retriever.search(["q"], 2)
    check(found, ["q"], 2)
    with pytest.raises(ConfigError, match="retriever"):
        ssp_env.env(world="small", retriever="bm25")


def test_the_command_takes_an_address(server: Hostile, capsys: pytest.CaptureFixture[str]) -> None:
    from argparse import ArgumentParser

    parser = ArgumentParser()
    COMMAND.configure(parser)
    assert COMMAND.run(parser.parse_args(["two", "words", "--url", server.url, "-k", "2"])) == 0
    assert f"2 from {server.url}" in " ".join(capsys.readouterr().out.split())
    assert server.asked() == [["two words"]]


def test_retrievers_that_nobody_closed_leave_no_connection_behind(server: Hostile) -> None:
    for i in range(20):
        client(server).search([f"q{i}"], 1)
    gc.collect()
    ends = time.monotonic() + 5
    while server.open and time.monotonic() < ends:
        time.sleep(0.01)
    assert (server.connections, server.open) == (20, 0)


def test_threads_of_retrievers_do_not_pile_up(server: Hostile) -> None:
    for i in range(50):
        with client(server) as retriever:
            retriever.search([f"q{i}"], 1)
    assert sum(thread.name == "ssp-http" for thread in threading.enumerate()) == 1

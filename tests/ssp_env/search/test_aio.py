"""From blocking to async retrievers, and back."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Sequence

import pytest

from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.net.loop import LoopThread
from ssp_env.search.aio import Blocking, InThreads
from ssp_env.search.base import AsyncRetriever, Retriever
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.corpus import Corpus
from ssp_env.testing import RetrieverTests
from ssp_env.testing.material import PASSAGES
from ssp_env.types import Document


class Slow:
    """Says what it was asked, after a while; remembers how many searches were under way at a
    time."""

    def __init__(self) -> None:
        self.busy = self.most = 0
        self.lock = threading.Lock()

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        with self.lock:
            self.busy += 1
            self.most = max(self.most, self.busy)
        time.sleep(0.05)
        with self.lock:
            self.busy -= 1
        if "bad" in queries:
            raise ServiceError("search", "down")
        return [[Document(query, "", "")] for query in queries]


class Awaited:
    """The same, awaited; a class of its own so that a copy can be pickled."""

    def __init__(self) -> None:
        self.loops: set[int] = set()

    async def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        self.loops.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0.05)
        if "bad" in queries:
            raise ServiceError("search", "down")
        return [[Document(query, "", "")] for query in queries]


class TestThereAndBack(RetrieverTests):
    queries = ("capital of Austria", "Danube", "city in Italy")

    def make_retriever(self) -> Retriever:
        return Blocking(InThreads(BM25Retriever(Corpus(PASSAGES))))


def test_they_fit_the_protocols() -> None:
    assert isinstance(InThreads(Slow()), AsyncRetriever)
    assert isinstance(Blocking(Awaited()), Retriever)


@pytest.mark.parametrize("threads", [1, 4])
def test_the_event_loop_stays_free_and_threads_are_bounded(threads: int) -> None:
    slow = Slow()

    async def run() -> tuple[list[list[list[Document]]], int]:
        retriever, ticks = InThreads(slow, threads), 0
        searches = asyncio.gather(*(retriever.search([str(i)], 1) for i in range(8)))
        while not searches.done():
            await asyncio.sleep(0.005)
            ticks += 1
        retriever.close()
        return await searches, ticks

    found, ticks = asyncio.run(run())
    assert [ranking[0][0].id for ranking in found] == [str(i) for i in range(8)]
    assert slow.most <= threads
    assert ticks > 5


def test_errors_pass_through() -> None:
    with pytest.raises(ServiceError, match="down"):
        asyncio.run(InThreads(Slow()).search(["bad"], 1))
    with pytest.raises(ServiceError, match="down"):
        Blocking(Awaited()).search(["bad"], 1)
    with pytest.raises(ConfigError):
        InThreads(Slow(), 0)


def test_a_blocking_retriever_is_not_taken_for_an_async_one() -> None:
    blocking = Blocking(Slow())  # type: ignore[arg-type]
    with pytest.raises(
        UsageError, match="Blocking wraps async retrievers, and Slow is a blocking one"
    ):
        blocking.search(["a"], 1)
    blocking.close()


def test_threads_search_side_by_side_on_one_loop() -> None:
    awaited = Awaited()
    blocking = Blocking(awaited)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda i=i: found.append(blocking.search([str(i)], 1)[0][0].id))
        for i in range(40)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 1.5  # one after the other would be 2 s
    assert sorted(found) == sorted(map(str, range(40)))
    assert len(awaited.loops) == 1
    blocking.close()


def test_a_copy_has_a_loop_of_its_own_and_a_closed_one_starts_again() -> None:
    blocking = Blocking(Awaited())
    blocking.search(["a"], 1)
    twin = pickle.loads(pickle.dumps(blocking))
    assert twin.search(["b"], 1)[0][0].id == "b"
    blocking.close()
    blocking.close()
    assert blocking.search(["c"], 1)[0][0].id == "c"


def test_waiting_for_oneself_is_refused() -> None:
    thread = LoopThread("test")

    async def inner() -> int:
        return 1

    async def outer() -> int:
        return thread.run(inner())

    with pytest.raises(UsageError, match="await the async form"):
        thread.run(outer())
    thread.close()


def test_closing_cancels_what_still_runs() -> None:
    thread = LoopThread("test")
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            thread.run(asyncio.sleep(60))
        except BaseException as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.05)
    thread.close()
    waiting.join(5)
    assert not waiting.is_alive()
    assert len(failures) == 1

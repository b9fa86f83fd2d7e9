"""Cached rankings: in memory and on disk, between threads and processes, and what is never kept."""

from __future__ import annotations

import copy
import logging
import multiprocessing
import pickle
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp_env.errors import ConfigError, DataError, ServiceError, UsageError
from ssp_env.search.base import PartialRetriever, Retriever
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.cache.lru import LRU
from ssp_env.search.cache.retriever import CachedRetriever
from ssp_env.search.corpus import Corpus
from ssp_env.testing import RetrieverTests
from ssp_env.testing.material import PASSAGES
from ssp_env.types import Document


class Counting:
    """Ranks documents that say what was asked; ``bad`` queries fail, alone where ``partial``."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.bad: set[str] = set()

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        self.asked.append(list(queries))
        if self.bad & set(queries):
            raise ServiceError("search", "down")
        return [
            [Document(str(i), f"{query} {k}", "x\ud800", 0.1 * i) for i in range(len(query) % 4)]
            for query in queries
        ]


class Partial(Counting):
    def search_each(self, queries: Sequence[str], k: int) -> list[list[Document] | ServiceError]:
        self.asked.append(list(queries))
        good = Counting()
        return [
            ServiceError("search", q) if q in self.bad else good.search([q], k)[0] for q in queries
        ]


class TestCached(RetrieverTests):
    queries = ("capital of Austria", "Danube", "city in Italy")

    def make_retriever(self) -> Retriever:
        return CachedRetriever(BM25Retriever(Corpus(PASSAGES), cache_size=0))


class TestCachedOnDisk(TestCached):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "cache.sqlite"

    def make_retriever(self) -> Retriever:
        return CachedRetriever(
            BM25Retriever(Corpus(PASSAGES), cache_size=0), size=1, path=self.path, identity="x"
        )


def test_it_fits_the_protocols() -> None:
    assert isinstance(CachedRetriever(Counting()), PartialRetriever)


def test_only_the_misses_go_on_as_one_batch_each_once_and_order_is_kept() -> None:
    inner = Counting()
    cached = CachedRetriever(inner)
    cached.search(["b", "dddd"], 3)
    found = cached.search(["a", "b", "cc", "a", "dddd"], 3)
    assert inner.asked == [["b", "dddd"], ["a", "cc"]]
    assert found == Counting().search(["a", "b", "cc", "a", "dddd"], 3)
    assert [d.score for d in found[2]] == [0.0, 0.1]
    cached.search(["a"], 2)
    assert inner.asked[2:] == [["a"]]


def test_an_empty_ranking_is_kept_as_well() -> None:
    inner = Counting()
    cached = CachedRetriever(inner)
    assert cached.search(["", ""], 3) == cached.search([""], 3) * 2 == [[], []]
    assert inner.asked == [[""]]


@pytest.mark.parametrize("on_disk", [False, True])
def test_failures_are_never_kept(tmp_path: Path, on_disk: bool) -> None:
    inner = Partial()
    where: dict[str, Any] = {"path": tmp_path / "c", "identity": "x"} if on_disk else {}
    cached = CachedRetriever(inner, **where)
    inner.bad = {"bad"}
    good, bad = cached.search_each(["good", "bad"], 2)
    assert isinstance(good, list)
    assert isinstance(bad, ServiceError)
    with pytest.raises(ServiceError):
        cached.search(["bad", "good"], 2)
    inner.bad = set()
    assert cached.search(["bad", "good"], 2) == Counting().search(["bad", "good"], 2)
    assert inner.asked == [["good", "bad"], ["bad"], ["bad"]]


def test_each_query_of_a_retriever_that_cannot_tell_is_asked_alone_after_a_failure() -> None:
    inner = Counting()
    inner.bad = {"b"}
    results = CachedRetriever(inner).search_each(["a", "b", "c"], 2)
    assert [isinstance(result, ServiceError) for result in results] == [False, True, False]
    assert inner.asked == [["a", "b", "c"], ["a"], ["b"], ["c"]]


def test_callers_cannot_spoil_it() -> None:
    cached = CachedRetriever(Counting())
    first, twin = cached.search(["aa", "aa"], 3)
    first.clear()
    assert len(twin) == 2
    assert cached.search(["aa"], 3) == [twin]


def test_the_size_is_bounded() -> None:
    inner = Counting()
    cached = CachedRetriever(inner, size=2)
    for query in ("a", "b", "a", "c", "a", "b"):
        cached.search([query], 1)
    assert inner.asked == [["a"], ["b"], ["c"], ["b"]]
    assert len(cached._memory) == 2
    none = CachedRetriever(Counting(), size=0)
    assert none.search(["a"], 1) == none.search(["a"], 1)


def test_a_retriever_that_gives_too_little_is_found_out() -> None:
    class Short(Counting):
        def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
            return super().search(queries, k)[1:]

    with pytest.raises(UsageError, match="1 rankings for 2 queries"):
        CachedRetriever(Short()).search(["a", "b"], 1)
    with pytest.raises(UsageError):
        CachedRetriever(Counting()).search("text", 1)
    with pytest.raises(ConfigError):
        CachedRetriever(Counting()).search(["a"], 0)


def on_disk(
    path: Path, identity: str = "index 1", **changes: Any
) -> tuple[CachedRetriever, Counting]:
    inner = Counting()
    return CachedRetriever(inner, path=path, identity=identity, **changes), inner


def test_the_disk_outlasts_the_process(tmp_path: Path) -> None:
    queries = ["a", "бб", "\ud800", "x" * 100_001, "\0"]
    first, _ = on_disk(tmp_path / "c")
    found = first.search(queries, 3)
    first.close()
    second, inner = on_disk(tmp_path / "c")
    assert second.search(queries, 3) == found
    assert [d.score for r in second.search(queries, 3) for d in r] == [
        d.score for r in found for d in r
    ]
    assert inner.asked == []


def test_another_identity_or_k_shares_nothing(tmp_path: Path) -> None:
    on_disk(tmp_path / "c")[0].search(["a"], 3)
    other, inner = on_disk(tmp_path / "c", "index 2")
    other.search(["a"], 3)
    same, again = on_disk(tmp_path / "c")
    same.search(["a"], 4)
    same.search(["a"], 3)
    assert (inner.asked, again.asked) == ([["a"]], [["a"]])


def test_copies_share_the_file_and_nothing_else(tmp_path: Path) -> None:
    cached, _ = on_disk(tmp_path / "c")
    cached.search(["a"], 3)
    for twin in (pickle.loads(pickle.dumps(cached)), copy.deepcopy(cached)):
        assert len(twin._memory) == 0
        assert twin.search(["a"], 3) == cached.search(["a"], 3)
        assert twin.retriever.asked == [["a"]]  # the copy of what had been asked before


def test_the_file_stays_within_its_bounds_and_the_oldest_go_first(tmp_path: Path) -> None:
    class Long(Counting):
        def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
            return [[Document("x", "", query * 2000, 1.0)] for query in queries]

    cached = CachedRetriever(Long(), size=0, path=tmp_path / "c", identity="x", max_bytes=2**20)
    for start in range(0, 3000, 100):
        cached.search([f"{i:04}" for i in range(start, start + 100)], 1)
    cached.close()
    assert (tmp_path / "c").stat().st_size < 2.5 * 2**20
    inner = Counting()
    CachedRetriever(inner, path=tmp_path / "c", identity="x").search(["0000", "2999"], 1)
    assert inner.asked == [["0000"]]


def _hammer(path: Path, name: int, problems: Any) -> None:
    try:
        cached, _ = on_disk(path, size=0)
        for i in range(60):
            queries = [f"{(i * 7 + j * name) % 50}" for j in range(5)]
            if cached.search(queries, 2) != Counting().search(queries, 2):
                problems.put((name, queries))
        assert cached._disk is not None
        assert cached._disk._usable
    except BaseException as error:
        problems.put(repr(error))


def test_processes_share_a_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    problems = context.SimpleQueue()
    workers = [
        context.Process(target=_hammer, args=(tmp_path / "c", i, problems)) for i in range(1, 5)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert problems.empty()
    _, inner = cached, _ = on_disk(tmp_path / "c")
    cached.search([str(i) for i in range(7)], 2)
    assert inner.asked == []


def test_threads_share_a_retriever(tmp_path: Path) -> None:
    cached, _ = on_disk(tmp_path / "c", size=10)
    problems: list[object] = []

    def work(name: int) -> None:
        try:
            for i in range(40):
                queries = [f"{(i * 7 + j * name) % 50}" for j in range(5)]
                assert cached.search(queries, 2) == Counting().search(queries, 2)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def _use(cached: CachedRetriever, results: Any) -> None:
    results.put(cached.search(["a", "bb"], 2) == Counting().search(["a", "bb"], 2))


def test_it_survives_a_fork(tmp_path: Path) -> None:
    cached, _ = on_disk(tmp_path / "c", size=0)
    cached.search(["a"], 2)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_use, args=(cached, results))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert results.get() is True
    cached.search(["bb"], 2)
    assert cached.retriever.asked == [["a"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("content", [b"no database " * 100, b"SQLite format 3\0" + b"\xff" * 2000])
def test_a_file_of_another_kind_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "c"
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"cannot be used as a cache: .*; delete the file, or name another path"
    ):
        on_disk(path)
    assert path.read_bytes() == content


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "c") as other:
        other.execute("CREATE TABLE rankings (key, ranking)")
    with pytest.raises(DataError, match="not a cache of searches"):
        on_disk(tmp_path / "c")
    with pytest.raises(DataError, match=r"there is no folder .*/no/such: make it"):
        on_disk(tmp_path / "no" / "such" / "file")
    with pytest.raises(DataError, match="see that it can be read and written"):
        on_disk(tmp_path)


@pytest.mark.parametrize("given", ["http://127.0.0.1:8000", None])
def test_what_is_no_retriever_is_refused_at_once(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"cache\.retriever = .*HTTPRetriever"):
        CachedRetriever(given)


@pytest.mark.parametrize(
    "value",
    ["no json", "3", "[3]", '[["a", "b", "c"]]', '[["a", "b", 3, 0.5]]', '[["a","b","c","d"]]'],
)
def test_a_spoilt_row_is_never_an_answer(
    tmp_path: Path, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    cached, inner = on_disk(tmp_path / "c", size=0)
    expected = cached.search(["aa"], 3)
    with sqlite3.connect(tmp_path / "c") as database:
        database.execute("UPDATE rankings SET ranking = ?", (value,))
    with caplog.at_level(logging.WARNING):
        assert [cached.search(["aa"], 3) for _ in range(3)] == [expected] * 3
    assert len(inner.asked) == 4
    assert len(caplog.records) == 1
    assert "left alone from now on" in caplog.text


def test_a_cache_that_cannot_be_written_is_no_outage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cached, _ = on_disk(tmp_path / "c", size=0)
    with sqlite3.connect(tmp_path / "c") as database:
        database.execute("DROP TABLE rankings")
    with caplog.at_level(logging.WARNING):
        for query in ("a", "bb", "a"):
            assert cached.search([query], 3) == Counting().search([query], 3)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"size": -1}, "cache.size"),
        ({"path": "x"}, "cache.identity"),
        ({"path": "x", "identity": ""}, "cache.identity"),
        ({"path": "x", "identity": "i", "max_bytes": 10}, "cache.max_bytes"),
    ],
)
def test_settings_that_cannot_work_are_named(
    changes: dict[str, Any], field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as raised:
        CachedRetriever(Counting(), **changes)
    assert raised.value.field == field
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=60)
@given(st.integers(0, 4), st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=60))
def test_an_lru_does_what_a_slow_one_does(size: int, steps: list[tuple[int, bool]]) -> None:
    fast: LRU[int, int] = LRU(size)
    slow: list[tuple[int, int]] = []
    for number, (key, write) in enumerate(steps):
        old = dict(slow).get(key)
        assert old == fast.get(key)
        slow = [pair for pair in slow if pair[0] != key]
        if write:
            fast.put(key, number)
            slow = [*slow, (key, number)][-size:] if size else []
        elif old is not None:
            slow.append((key, old))
        assert len(fast) == len(slow)
    assert len(pickle.loads(pickle.dumps(fast))) == 0

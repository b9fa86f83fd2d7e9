"""Rankings that are kept in a directory, and what is never kept."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ssp_env.errors import DataError, ServiceError
from ssp_env.search.base import Retriever
from ssp_env.search.cache import CachedRetriever
from ssp_env.testing import RetrieverTests
from ssp_env.types import Document


class Counting:
    """Ranks documents that say what was asked; a batch with a ``bad`` query fails."""

    def __init__(self, name: str = "index 1") -> None:
        self.asked: list[list[str]] = []
        self.bad: set[str] = set()
        self.name = name

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        self.asked.append(list(queries))
        if self.bad & set(queries):
            raise ServiceError("search", "down")
        return [ranked(query, k) for query in queries]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def ranked(query: str, k: int) -> list[Document]:
    found = range(min(k, len(query) % 4))
    return [Document(str(i), f"{query} {k}", "x\ud800", -0.1 * i) for i in found]


def cached(path: Path, name: str = "index 1", **settings: Any) -> tuple[CachedRetriever, Counting]:
    inner = Counting(name)
    return CachedRetriever(inner, path, **settings), inner


class TestCached(RetrieverTests):
    queries = ("one", "two", "three")

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "cache"

    def make_retriever(self) -> Retriever:
        return cached(self.path)[0]


def test_only_the_misses_go_on_as_one_batch_each_once_and_order_is_kept(tmp_path: Path) -> None:
    retriever, inner = cached(tmp_path)
    retriever.search(["b", "dddd"], 3)
    found = retriever.search(["a", "b", "cc", "a", "dddd"], 3)
    assert inner.asked == [["b", "dddd"], ["a", "cc"]]
    assert found == [ranked(query, 3) for query in ("a", "b", "cc", "a", "dddd")]
    assert [d.score for d in found[2]] == [0.0, -0.1]
    found[0].clear()
    assert len(found[3]) == 1, "callers cannot spoil it"
    retriever.search(["a"], 2)
    assert inner.asked[2:] == [["a"]], "another k is another search"


def test_failures_are_never_kept_and_hit_only_what_asked(tmp_path: Path) -> None:
    retriever, inner = cached(tmp_path)
    inner.bad = {"bad"}
    good, bad = retriever.search_each(["good", "bad"], 2)
    assert isinstance(good, list)
    assert isinstance(bad, ServiceError)
    with pytest.raises(ServiceError):
        retriever.search(["bad", "good"], 2)
    inner.bad = set()
    assert retriever.search(["bad", "good"], 2) == [ranked("bad", 2), ranked("good", 2)]
    assert inner.asked == [["good", "bad"], ["good"], ["bad"], ["bad"], ["bad"]]


def test_the_directory_outlasts_the_process_for_what_is_searched(tmp_path: Path) -> None:
    queries = ["a", "бб", "\ud800", "x" * 100_001, "\0"]
    first, _ = cached(tmp_path)
    found = first.search(queries, 3)
    first.close()
    second, inner = cached(tmp_path)
    twin = pickle.loads(pickle.dumps(second))
    assert second.search(queries, 3) == twin.search(queries, 3) == found
    assert inner.asked == twin.retriever.asked == []
    other, another = cached(tmp_path, "index 2")
    other.search(["a"], 3)
    assert another.asked == [["a"]]


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    retriever, _ = cached(tmp_path / "c")
    with sqlite3.connect(tmp_path / "c" / "cache.db") as database:
        database.execute("DROP TABLE Cache")
    (tmp_path / "file").write_text("not a directory")
    for use in (lambda: retriever.search(["aa"], 3), lambda: cached(tmp_path / "file")):
        with pytest.raises(DataError, match="cannot be used as a cache"):
            use()

"""Requests that no retriever can answer are refused before anything is looked up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ssp_env.errors import ConfigError, UsageError
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.corpus import Corpus
from ssp_env.types import Document

RETRIEVER = BM25Retriever(
    Corpus([Document("a", "Vienna", "capital"), Document("b", "Danube", "river")])
)


@pytest.mark.parametrize(
    ("queries", "what"),
    [
        ("river", "not one string"),
        ([None], r"query 1 of 1 is None"),
        (["river", b"sea"], r"query 2 of 2 is bytes b'sea'"),
        (["river", 3, None], r"query 2 of 3 is int 3"),
        ((query for query in ["river"]), "not generator"),
        (None, "not NoneType"),
    ],
)
def test_queries_that_are_no_strings_are_named(queries: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        RETRIEVER.search(queries, 3)


@pytest.mark.parametrize("k", ["3", 2.5, None, True, 0, -1, np.float64(3)])
def test_a_k_that_is_no_whole_number_is_refused(k: Any) -> None:
    with pytest.raises(ConfigError, match=r"^k = "):
        RETRIEVER.search(["river"], k)


@pytest.mark.parametrize("k", [1, np.int64(1), np.uint8(1)])
@pytest.mark.parametrize("queries", [["river"], ("river",), np.array(["river"])])
def test_numpys_integers_and_strings_are_as_good_as_pythons(k: Any, queries: Any) -> None:
    [[document]] = RETRIEVER.search(queries, k)
    assert document.id == "b"

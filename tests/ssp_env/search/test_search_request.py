"""Requests that no retriever can answer are refused before anything is looked up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ssp_env.errors import ConfigError, UsageError
from ssp_env.search.base import check_request


@pytest.mark.parametrize(
    ("queries", "what"),
    [
        ("river", "not one string"),
        (["river", b"sea"], r"query 2 of 2 is bytes b'sea'"),
        ((query for query in ["river"]), "not generator"),
    ],
)
def test_queries_that_are_no_strings_are_named(queries: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        check_request(queries, 3)


def test_k_is_a_whole_number_from_1_up_also_numpys() -> None:
    for k in ("3", 2.5, None, True, 0, -1, np.float64(3)):
        with pytest.raises(ConfigError, match=r"^k = "):
            check_request(["river"], k)  # type: ignore[arg-type]
    check_request(np.array(["river"]), np.int64(1))  # type: ignore[arg-type]

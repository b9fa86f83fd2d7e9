"""What goes over the wire: requests, replies that may be anything, Retry-After."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.net.http import retry_after
from ssp_env.search.client.wire import WrongReply, read_reply, write_request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["document", "score", "id", "contents", "text", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
DOCUMENTS = st.fixed_dictionaries(
    {"contents": st.text(max_size=5)}, optional={"id": JSON, "extra": JSON}
)
HITS = st.fixed_dictionaries({"document": DOCUMENTS | JSON, "score": st.floats() | JSON})


def test_a_k_of_numpy_is_sent_as_a_number() -> None:
    assert json.loads(write_request(["a"], np.int64(2)))["topk"] == 2  # type: ignore[arg-type]


@given(
    st.lists(st.lists(HITS, max_size=3) | JSON, max_size=3) | JSON,
    st.integers(0, 3),
    st.integers(1, 3),
)
def test_a_reply_is_rankings_or_wrong(result: Any, count: int, k: int) -> None:
    try:
        rankings = read_reply(json.dumps({"result": result}).encode(), count, k)
    except WrongReply:
        return
    assert len(rankings) == count == len(result)
    for ranking, hits in zip(rankings, result, strict=True):
        assert len(ranking) == len(hits) <= k
        assert len({document.id for document in ranking}) == len(ranking)
        for document, hit in zip(ranking, hits, strict=True):
            assert document.score == hit["score"]
            assert math.isfinite(document.score)
            (document.id + document.title + document.text).encode()


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_any_bytes_are_wrong(raw: bytes) -> None:
    with pytest.raises(WrongReply):
        read_reply(raw, 1, 1)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (None, None, None),
        ("12", 12, 12),
        (" 0 ", 0, 0),
        ("-3", None, None),
        ("soon", None, None),
        ("1e9", None, None),
        ("9" * 400, None, None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("Wed, 21 Oct 2015 07:28:00", None, None),
    ],
)
def test_what_retry_after_asks_for(
    value: str | None, low: float | None, high: float | None
) -> None:
    seconds = retry_after(value)
    if low is None or high is None:
        assert seconds is None
    else:
        assert seconds is not None
        assert low <= seconds <= high


def test_retry_after_may_be_a_date_to_come() -> None:
    seconds = retry_after(format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True))
    assert seconds is not None
    assert 3500 <= seconds <= 3601

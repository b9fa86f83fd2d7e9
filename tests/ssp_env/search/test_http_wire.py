"""What a reply of a search server has to hold."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.search.client import WrongReply, read_reply
from ssp_env.types import Document

DOCUMENT = {"id": "1", "contents": '"Title"\nText'}
HIT = {"document": DOCUMENT, "score": 0.5}


def reply(result: Any) -> bytes:
    return json.dumps({"result": result}).encode()


@pytest.mark.parametrize(
    ("document", "read"),
    [
        (DOCUMENT, ("1", "Title", "Text")),
        (DOCUMENT | {"id": 7, "url": "x"}, ("7", "Title", "Text")),
        ({"id": "1", "title": "T", "text": "x"}, ("1", "T", "x")),
        ({"id": "1", "text": "x"}, ("1", "", "x")),
        ({"id": "1", "contents": "a\ud800b"}, ("1", "", "a\ufffdb")),
    ],
)
def test_what_servers_send_is_understood(document: Any, read: tuple[str, str, str]) -> None:
    [[found]] = read_reply(reply([[{"document": document, "score": 1, "rank": 1}]]), 1, 1)
    assert found == Document(*read, 1.0)


def test_documents_without_an_id_are_told_apart_by_what_they_say() -> None:
    hits = [{"document": {"contents": text}, "score": 1.0} for text in ("a", "b")]
    [[first, second]] = read_reply(reply([hits]), 1, 2)
    [[again, _]] = read_reply(reply([hits]), 1, 2)
    assert first.id == again.id != second.id


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b'{"result": [["\xe9"]]}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no JSON object with a list 'result'"),
        (reply(None), "no JSON object with a list 'result'"),
        (reply([None]), "no JSON object with a list 'result' of lists"),
        (reply([]), "0 rankings for 1 queries"),
        (reply([[HIT] * 3]), "3 documents where 2 were asked for"),
        (reply([[HIT] * 2]), "a document twice"),
        *((reply([[hit]]), "a hit that is not") for hit in (DOCUMENT, {"document": DOCUMENT})),
        (reply([[HIT | {"document": {"id": "1"}}]]), "a hit that is not"),
        (reply([[HIT | {"document": DOCUMENT | {"id": 1.5}}]]), "id or title is not a string"),
        *((reply([[HIT | {"score": s}]]), "a finite number") for s in (True, 10**400, math.nan)),
    ],
)
def test_anything_else_is_wrong_and_named(raw: bytes, what: str) -> None:
    with pytest.raises(WrongReply, match=what):
        read_reply(raw, 1, 2)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
DOCUMENTS = st.fixed_dictionaries({"contents": st.text(max_size=5)}, optional={"id": VALUES})
HITS = st.fixed_dictionaries({"document": DOCUMENTS | VALUES, "score": st.floats() | VALUES})


@given(st.lists(st.lists(HITS, max_size=3) | VALUES, max_size=2) | VALUES, st.integers(1, 3))
def test_a_reply_is_rankings_or_wrong(result: Any, k: int) -> None:
    try:
        rankings = read_reply(reply(result), 1, k)
    except WrongReply:
        return
    assert len(rankings[0]) <= k
    assert all(math.isfinite(document.score or 0.0) for document in rankings[0])

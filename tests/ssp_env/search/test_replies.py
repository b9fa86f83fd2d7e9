"""What servers of Search-R1's protocol and their kin answer, and how ``ssp serve`` hands it on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ssp_env.search.base import split_contents
from ssp_env.search.client import read_reply
from ssp_env.search.server import write_result
from ssp_env.types import Document

QUOTED = {"contents": '"Vienna"\nA city.'}
VIENNA = ("Vienna", "A city.", None)


@pytest.mark.parametrize(
    ("hits", "found"),
    [
        # Search-R1: a corpus by E5, by BM25 (no id), without scores; online (no score, no id).
        ([{"document": {"id": 7, **QUOTED}, "score": 0.5}], [("Vienna", "A city.", 0.5)]),
        ([{"document": {"title": "Vienna", "text": "A city.", **QUOTED}, "score": 9}],
         [("Vienna", "A city.", 9.0)]),
        ([QUOTED], [VIENNA]),
        ([{"document": QUOTED}], [VIENNA]),
        # Reranking: strings, as they are or with scores.
        (['"Vienna"\nA city.', "one line"], [VIENNA, ("", "one line", None)]),
        ([{"document": '"Vienna"\nA city.', "score": -3.5}], [("Vienna", "A city.", -3.5)]),
        # Null titles, ids and scores, and scores that are no numbers.
        ([{"document": {"id": None, "title": None, "text": "A."}, "score": None}],
         [("", "A.", None)]),
        ([{"document": {"title": None, "contents": "T\nx"}, "score": "NaN"}], [("T", "x", None)]),
        ([{"document": {"text": "A."}, "score": "0.25"}], [("", "A.", 0.25)]),
        ([{"document": {"title": 1984, "text": 5}}, {"document": {"contents": 1984}}],
         [("1984", "5", None), ("", "1984", None)]),
        # More than asked for, and repeats: the server's order counts.
        ([{"document": {"id": i, "contents": f"text {i}"}} for i in range(7)],
         [("", f"text {i}", None) for i in range(3)]),
        ([QUOTED, QUOTED, "b", "b"], [VIENNA, ("", "b", None)]),
        ([{"document": "a", "score": 1}, {"document": "b", "score": 2}],
         [("", "a", 1.0), ("", "b", 2.0)]),
        # Nothing to show.
        ([None, {"document": None}, {"document": {"id": 1, "contents": None}}, {"document": {}},
          " ", "x"],
         [("", "x", None)]),
        (None, []),
    ],
)  # fmt: skip
def test_what_such_servers_answer_is_read(hits: Any, found: list[Any]) -> None:
    (ranking,) = read_reply(json.dumps({"result": [hits]}).encode(), 1, 3)
    assert [(d.title, d.text, d.score) for d in ranking] == found
    assert len({document.id for document in ranking}) == len(ranking)


def test_pieces_of_a_page_share_its_id_and_are_told_apart() -> None:
    pieces = [{"document": {"id": "page", "contents": f"piece {i}"}} for i in (1, 2, 1)]
    one, two = read_reply(json.dumps({"result": [pieces, pieces[1:]]}).encode(), 2, 5)
    assert [document.text for document in one] == ["piece 1", "piece 2"]
    assert one[0].id == two[0].id == "page"
    assert read_reply(b'[[{"_id": "page", "text": "as in BEIR"}]]', 1, 5)[0][0].id == "page"
    assert one[1].id.startswith("page/")
    assert len({document.id for document in two}) == 2


def test_documents_and_scores_may_come_apart() -> None:
    documents = [
        [{"id": "1", **QUOTED}, {"id": "2", "contents": "b"}],
        [{"id": "3", "contents": "c"}],
    ]
    body = json.dumps([documents, [[2.5, 1.5], [0.5]]]).encode()
    first, second = read_reply(body, 2, 5)
    assert [(d.id, d.score) for d in (*first, *second)] == [("1", 2.5), ("2", 1.5), ("3", 0.5)]
    assert read_reply(json.dumps(documents).encode(), 2, 5) == [first, second]
    body = json.dumps([documents, [["2.5", "1.5"], [None]]]).encode()
    assert [d.score for found in read_reply(body, 2, 5) for d in found] == [2.5, 1.5, None]
    assert read_reply(b"[[[]], [[]]]", 1, 5) == [[]], "nothing was found"
    assert read_reply(b"[[[], []], [[], []]]", 2, 5) == read_reply(b"[[], []]", 2, 5) == [[], []]


def test_a_reranking_server_leaves_out_a_query_without_documents() -> None:
    assert read_reply(b'{"result": []}', 1, 3) == [[]]
    with pytest.raises(ValueError, match="a list of 2 lists"):
        read_reply(b'{"result": [["a"]]}', 2, 3)


@pytest.mark.parametrize(
    "body",
    [b"null", b"<html>", b"{}", b'{"result": {}}', b'{"result": [{}]}', b'{"result": [[3]]}',
     b'{"result": [[{"document": {"id": 1, "url": "x"}}]]}', b'{"error": "x"}'],
)  # fmt: skip
def test_what_is_no_answer_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_reply(body, 1, 3)


@pytest.mark.parametrize(
    ("title", "text"),
    [("Vienna", "A city."), ("", "one line"), ("", "two\nlines"), ("a\nb", "c"), ('"q"', "x"),
     ("", '""\nx'), ("T", ""), ("", "\nbegins with a break"), (" padded ", "x")],
)  # fmt: skip
def test_serve_hands_back_what_the_corpus_holds(title: str, text: str) -> None:
    held = Document("1", title, text, 0.5)
    body = write_result([[held]], scores=True)
    assert read_reply(body, 1, 1) == [[held]]
    sent = json.loads(body)["result"][0][0]["document"]
    if not title:
        assert sent["contents"] == text, "no line for a title that it has not"
    if split_contents(sent["contents"]) == (title, text):
        assert set(sent) == {"id", "contents"}, "Search-R1's fields and no other"
    assert (
        json.loads(write_result([[Document("1", "", "x")]], True))["result"][0][0]["score"] is None
    )

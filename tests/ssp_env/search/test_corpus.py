"""Corpora and their reader: formats, and errors that name file and line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ssp_env.errors import DataError
from ssp_env.search.corpus import Corpus, read_corpus, read_jsonl
from ssp_env.types import Document

ROWS: list[dict[str, object]] = [
    {"id": "1", "contents": '"Vienna"\nCapital of "Austria".\nSecond line.'},
    {"id": 2, "title": "Danube", "text": "A river."},
    {"id": "3", "contents": "no title here"},
]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def lines_of(rows: list[dict[str, object]]) -> list[str]:
    return [json.dumps(row) for row in rows]


def test_both_formats_and_blank_lines(tmp_path: Path) -> None:
    rows = lines_of(ROWS)
    corpus = read_corpus(write(tmp_path / "c.jsonl", rows[0], "", "  ", *rows[1:]))
    assert list(corpus) == [
        Document("1", "Vienna", 'Capital of "Austria".\nSecond line.'),
        Document("2", "Danube", "A river."),
        Document("3", "", "no title here"),
    ]
    assert corpus.by_id("2") is corpus[1]
    assert len(corpus[1:]) == 2
    with pytest.raises(KeyError):
        corpus.by_id("9")


def test_not_json_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", json.dumps(ROWS[0]), "", "{broken")
    with pytest.raises(DataError, match=r"c\.jsonl:3: not JSON") as caught:
        read_corpus(path)
    assert caught.value.line == 3


@pytest.mark.parametrize("encoded", [bytes, gzip.compress])
def test_gzip_is_told_by_content_and_a_byte_order_mark_is_passed_over(
    tmp_path: Path, encoded: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "c.jsonl"
    text = "\n".join(lines_of(ROWS))
    path.write_bytes(encoded(text.encode("utf-8-sig")))
    assert [row for _, row in read_jsonl(path)] == ROWS
    path.write_bytes(encoded("\ufeff".encode()))
    assert list(read_jsonl(path)) == []
    path.write_bytes(encoded(f"{text}\n\ufeff{text}".encode()))
    with pytest.raises(DataError, match=":4: not JSON"):
        list(read_jsonl(path))


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"contents": "x"}, "field 'id' is missing"),
        ({"id": "1", "text": "x"}, "field 'title' is missing (the line has: id, text)"),
        ({"id": True, "contents": "x"}, "field 'id' has the type bool"),
    ],
)
def test_missing_and_wrong_fields(tmp_path: Path, row: dict[str, object], what: str) -> None:
    path = write(tmp_path / "c.jsonl", json.dumps(ROWS[2]), json.dumps(row))
    with pytest.raises(DataError) as caught:
        read_corpus(path)
    assert what in str(caught.value)
    assert caught.value.line == 2


def test_an_id_that_occurs_twice_is_named() -> None:
    with pytest.raises(DataError, match="id '1' occurs twice"):
        Corpus([Document("1", "", "x"), Document("2", "", "y"), Document("1", "", "z")])


def test_corrupt_gzip(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines_of(ROWS * 50)).encode())[:-20])
    with pytest.raises(DataError, match=r"c\.jsonl\.gz: cannot be read"):
        list(read_jsonl(path))


def test_digest_tells_corpora_apart() -> None:
    base = [Document("1", "a", "b"), Document("2", "c", "d")]
    digest = Corpus(base).digest()
    assert digest == Corpus([Document("1", "a", "b", score=3.0), base[1]], name="other").digest()
    others = [
        base[::-1],
        base[:1],
        [Document("1", "ab", ""), base[1]],
        [Document("1", "a", "b"), Document("2", "c", "e")],
    ]
    assert len({digest, *(Corpus(documents).digest() for documents in others)}) == 5

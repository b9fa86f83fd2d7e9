"""Corpora and their reader: formats, and errors that name file and line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ssp_env.errors import DataError
from ssp_env.search.base import Corpus, join_contents, read_corpus, read_jsonl, split_contents
from ssp_env.types import Document

ROWS: list[dict[str, object]] = [
    {"id": "1", "contents": '"Vienna"\nCapital of "Austria".\nSecond line.'},
    {"id": 2, "title": "Danube", "text": "A river."},
    {"id": "3", "contents": "no title here"},
]
TEXT = "\n \n".join(map(json.dumps, ROWS))


@pytest.mark.parametrize("encoded", [bytes, gzip.compress])
def test_both_formats_plain_or_gzip_with_blank_lines_and_a_byte_order_mark(
    tmp_path: Path, encoded: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(encoded(TEXT.encode("utf-8-sig")))
    corpus = read_corpus(path)
    assert list(corpus) == [
        Document("1", "Vienna", 'Capital of "Austria".\nSecond line.'),
        Document("2", "Danube", "A river."),
        Document("3", "", "no title here"),
    ]
    assert corpus[1:] == tuple(corpus)[1:]
    path.write_bytes(encoded("\ufeff".encode()))
    assert list(read_jsonl(path)) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{broken", "not JSON"),
        ("\ufeff{}", "not JSON"),
        ("[1]", "list in place of an object"),
        ('{"contents": "x"}', 'needs "id".*the line has: contents'),
        ('{"id": "1", "text": "x"}', "the line has: id, text"),
        ('{"id": 1.5, "contents": "x"}', 'needs "id"'),
    ],
)
def test_a_line_that_is_no_passage_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(f"{json.dumps(ROWS[0])}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"c\.jsonl:3: .*{says}"):
        read_corpus(path)


def test_a_file_that_is_cut_and_an_id_that_occurs_twice(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress(TEXT.encode())[:-20])
    with pytest.raises(DataError, match=r"c\.jsonl\.gz: is cut off"):
        list(read_jsonl(path))
    with pytest.raises(DataError, match="id '1' occurs twice"):
        Corpus([Document("1", "", "x"), Document("2", "", "y"), Document("1", "", "z")])


def test_digest_tells_corpora_apart() -> None:
    base = [Document("1", "a", "b"), Document("2", "c", "d")]
    digest = Corpus(base).digest()
    assert digest == Corpus([Document("1", "a", "b", score=3.0), base[1]], name="other").digest()
    others = [base[::-1], base[:1], [Document("1", "ab", ""), base[1]]]
    assert len({digest, *(Corpus(documents).digest() for documents in others)}) == 4


@pytest.mark.parametrize("title", ["", "Danube", ' "quoted" ', '"', '""', "\t"])
def test_contents_are_read_back_as_title_and_text(title: str) -> None:
    for text in ("", "one\ntwo", '"x"\ny'):
        assert split_contents(join_contents(Document("1", title, text))) == (title, text)

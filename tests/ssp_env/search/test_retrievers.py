"""Corpora and their reader; rank fusion, reranking, kept rankings."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.errors import ConfigError, DataError, ServiceError
from ssp_env.game.config import MINI_GAME
from ssp_env.game.rules import Rules
from ssp_env.search.base import read_corpus, search_each
from ssp_env.search.index import build_index, open_index
from ssp_env.search.wrappers import (
    DEPTH,
    RRF_K,
    HybridRetriever,
    RerankedRetriever,
)
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld

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
    assert list(read_corpus(path)) == [
        Document("1", "Vienna", 'Capital of "Austria".\nSecond line.'),
        Document("2", "Danube", "A river."),
        Document("3", "", "no title here"),
    ]


BEIR = [
    {"_id": "1", "title": "Vienna", "text": "A city.", "metadata": {}},
    {"_id": "2", "title": "", "text": "No title."},
    {"_id": 3, "title": None, "text": "None either."},
]
READ = [Document("1", "Vienna", "A city."), Document("2", "", "No title.")]


def test_corpora_of_the_field_are_told_by_their_fields(tmp_path: Path) -> None:
    beir = tmp_path / "corpus.jsonl"
    beir.write_text("\n".join(map(json.dumps, BEIR)))
    assert list(read_corpus(beir)) == [*READ, Document("3", "", "None either.")]

    # DPR's psgs_w100.tsv: quotes are doubled, and a text may have tabs and line breaks in them.
    dpr = tmp_path / "psgs.tsv.gz"
    said = 'id\ttext\ttitle\n1\t"A ""city"",\twith\na break."\tVienna\n2\tPlain.\tRome\n'
    dpr.write_bytes(gzip.compress(said.encode("utf-8-sig")))
    long = Document("1", "Vienna", 'A "city",\twith\na break.')
    assert list(read_corpus(dpr)) == [long, Document("2", "Rome", "Plain.")]
    assert open_index(build_index(dpr, tmp_path / "i")).search(["city"], 1)[0] == [long]

    from pyarrow import Table
    from pyarrow.parquet import write_table

    rows = [{"id": 1, "contents": '"Vienna"\nA city.', "embedding": [0.5]}, {"id": 2, "text": "x"}]
    every = dict.fromkeys({**rows[0], **rows[1]})
    write_table(Table.from_pylist([{**every, **row} for row in rows]), tmp_path / "c.parquet")
    assert list(read_corpus(tmp_path / "c.parquet")) == [READ[0], Document("2", "", "x")]

    dpr.write_bytes(b"id\ttext\ttitle\n1\tA city.\n")
    with pytest.raises(DataError, match=r"gz:2: has 2 fields, but id, text, title are 3"):
        read_corpus(dpr)
    # MS MARCO's collection.tsv has no line of names: the first column holds numbers.
    # Its quotes are text, and some passages begin with one that nothing closes.
    dpr.write_bytes(b'1\t"A" city.\r\n2\t"Another\n3\tx\n')
    assert [each.text for each in read_corpus(dpr)] == ['"A" city.', '"Another', "x"]
    dpr.write_bytes(b"p1\tA city.\np2\tAnother\n")
    with pytest.raises(DataError, match=r"gz:2: a passage needs .*the line has p1, A city\."):
        read_corpus(dpr)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{broken", "neither JSON Lines"),
        ("[1]", "list in place of an object"),
        ('{"contents": "x"}', r'needs "id" \(or "_id"\) and, as strings.*the line has contents'),
        ('{"id": 1, "title": 3, "text": "x"}', "the line has id, title, text"),
        ('{"docid": 1, "passage": "x"}', "the line has docid, passage"),
    ],
)
def test_a_line_that_is_no_passage_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(f"{json.dumps(ROWS[0])}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"c\.jsonl:3: .*{says}"):
        read_corpus(path)


class Letters:
    """Finds documents that are letters: those of the query, or as ``rankings`` say.

    A batch that holds a ``bad`` query fails."""

    def __init__(self, name: str = "index 1", **rankings: str) -> None:
        self.rankings, self.name = rankings, name
        self.bad: set[str] = set()
        self.asked: list[tuple[list[str], int]] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        self.asked.append((list(queries), k))
        if self.bad & set(queries):
            raise ServiceError("search", "down")
        return [self.ranked(query, k) for query in queries]

    def ranked(self, query: str, k: int) -> list[Document]:
        letters = self.rankings.get(query, query)
        return [Document(each, f"title {query}", "x\ud800", 0.1) for each in letters[:k]]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


def ids(ranking: Sequence[Document]) -> str:
    return "".join(document.id for document in ranking)


def test_a_retriever_may_have_a_length_of_0(mini: MiniWorld, words: WordTokenizer) -> None:
    class Empty(Letters):
        def __len__(self) -> int:
            return 0

    retriever = Empty()
    assert Rules.build(mini, words, MINI_GAME, retriever=retriever).retriever is retriever


class Even:
    def scores(self, pairs: Sequence[tuple[str, Document]]) -> list[float]:
        return [0.0 for _ in pairs]


def test_each_part_is_asked_once_and_deep_enough_and_the_first_decides_equal_scores() -> None:
    parts = [Letters(q="ab", r="c"), Letters(q="ba", r="")]
    answers = HybridRetriever(parts).search(["q", "", "q", "r"], 1)
    assert [ids(ranking) for ranking in answers] == ["a", "", "a", "c"]
    HybridRetriever(parts).search(["q"], DEPTH + 5)
    for part in parts:
        assert part.asked == [(["q", "", "q", "r"], DEPTH), (["q"], DEPTH + 5)]
    parts[1].bad = {"q"}
    with pytest.raises(ServiceError, match="down"):
        HybridRetriever(parts).search(["q"], 3)
    for over in (HybridRetriever(parts), RerankedRetriever(parts[1], Even())):
        failed, found = over.search_each(["q", "r"], 3)
        assert isinstance(failed, ServiceError)
        assert isinstance(found, list)
        with pytest.raises(ConfigError, match="at least 1"):
            over.search(["r"], 0)
    with pytest.raises(ConfigError, match="give one for each of 2"):
        HybridRetriever(parts, [1.0])


def test_scores_may_be_those_of_faiss() -> None:
    found = [Document("1", "", "a", np.float32(0.5))]  # type: ignore[arg-type]
    retriever: Any = SimpleNamespace(search=lambda queries, k: [found for _ in queries])
    assert search_each(retriever, ["q", "r"], 1) == [found, found]


RANKINGS = st.lists(
    st.lists(st.sampled_from("abcdefghij"), max_size=12).map("".join), min_size=1, max_size=4
)


@given(RANKINGS, st.data())
def test_fusion_is_the_formula_for_any_rankings(letters: list[str], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(letters), max_size=len(letters)))
    [fused] = HybridRetriever([Letters(q=each) for each in letters], weights).search(["q"], 20)
    exact: dict[str, Fraction] = {}
    for ranking, weight in zip(letters, weights, strict=True):
        for rank, letter in enumerate(ranking, start=1):
            if letter not in ranking[: rank - 1]:
                exact[letter] = exact.get(letter, Fraction(0)) + Fraction(weight, RRF_K + rank)
    assert {document.id: document.score for document in fused} == pytest.approx(
        {letter: float(score) for letter, score in exact.items()}
    )
    scores = [document.score for document in fused]
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]


def test_the_rerankers_order_holds_in_one_call_and_equals_keep_the_retrievers() -> None:
    calls: list[list[tuple[str, str]]] = []

    class Backwards:
        """Likes letters late in the alphabet, in pairs of equals."""

        def scores(self, pairs: Sequence[tuple[str, Document]]) -> list[float]:
            calls.append([(query, document.id) for query, document in pairs])
            return [float((ord(document.id) - ord("a")) // 2) for _, document in pairs]

    reranked = RerankedRetriever(Letters(q="abcdefgh", p="ab"), Backwards(), depth=6)
    found = reranked.search(["q", "", "p"], 5)
    assert [ids(ranking) for ranking in found] == ["efcda", "", "ab"]
    assert [document.score for document in found[0]] == [2, 2, 1, 1, 0]
    assert reranked.search([""], 2) == [[]]
    assert calls == [[*(("q", letter) for letter in "abcdef"), ("p", "a"), ("p", "b")]]

"""Corpora and their reader; BM25 in memory and on disk; rank fusion, reranking, kept rankings."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import jsonl

from ssp_env.errors import ConfigError, DataError, ServiceError
from ssp_env.game.config import MINI_GAME
from ssp_env.game.rules import Rules
from ssp_env.search.base import Corpus, Retriever, read_corpus, search_each
from ssp_env.search.bm25 import BM25Retriever, tokenize
from ssp_env.search.index import build_index, open_index
from ssp_env.search.wrappers import (
    DEPTH,
    RRF_K,
    HybridRetriever,
    RerankedRetriever,
)
from ssp_env.testing import RetrieverTests
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


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{broken", "not JSON"),
        ("[1]", "list in place of an object"),
        ('{"contents": "x"}', 'needs "id".*the line has: contents'),
    ],
)
def test_a_line_that_is_no_passage_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(f"{json.dumps(ROWS[0])}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"c\.jsonl:3: .*{says}"):
        read_corpus(path)


CORPUS = Corpus(
    [
        Document("a", "Vienna", "The capital of Austria lies on the Danube."),
        Document("b", "Danube", "A river in Europe."),
        Document("c", "Twin one", "identical words"),
        Document("d", "Twin one", "identical words"),
        Document("e", "Šibenik", "Grad u Hrvatskoj, 北京."),
        Document("f", "", ""),
    ]
)


@pytest.fixture(scope="module", params=["memory", "disk"])
def retriever(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Retriever:
    if request.param == "memory":
        return BM25Retriever(CORPUS)
    folder = tmp_path_factory.mktemp("index")
    return open_index(build_index(jsonl(folder / "c.jsonl", CORPUS), folder / "i").parent)


def test_title_and_text_are_searched_and_equal_scores_are_in_order(retriever: Retriever) -> None:
    found = {"vienna": "a", "DANUBE!": "ba", "identical": "cd", "šibenik": "e", "北京": "e"}
    found |= dict.fromkeys(("", " \t\n", "\x00\x01\x7f", "?!…", "\ud800", "zzzunknown"), "")
    assert [ids(ranking) for ranking in retriever.search([*found], 5)] == [*found.values()]


class TestBM25(RetrieverTests):
    queries = ("danube", "identical words", "capital of europe")

    @pytest.fixture(autouse=True)
    def take(self, retriever: Retriever) -> None:
        self.retriever = retriever

    def make_retriever(self) -> Retriever:
        return self.retriever

    def test_copies_and_threads_answer_alike(self) -> None:
        alone = self.retriever.search(self.queries, 3)
        assert pickle.loads(pickle.dumps(self.retriever)).search(self.queries, 3) == alone
        with ThreadPoolExecutor(6) as pool:
            found = pool.map(lambda _: self.retriever.search(self.queries, 3), range(18))
            assert list(found) == [alone] * 18


def test_in_memory_rankings_and_scores_are_those_of_bm25s_ties_by_position() -> None:
    # Words as unevenly frequent as in real text, with many equal scores.
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, 301)
    rows = [rng.choice(300, rng.integers(0, 30), p=weights / weights.sum()) for _ in range(200)]
    texts = [" ".join(f"w{word}" for word in row) for row in rows]
    documents = [Document(f"d{i}", "", text) for i, text in enumerate(texts)]

    retriever = BM25Retriever(Corpus(documents))
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    index.index([tokenize(document.text) for document in documents], show_progress=False)
    everything = " ".join(f"w{i}" for i in range(300))
    for query in ("w0", "w250 w0 w1", everything):
        scores = index.get_scores([word for word in tokenize(query) if word in index.vocab_dict])
        order = [i for i in np.argsort(-scores, kind="stable") if scores[i] > 0]
        for k in (1, 3, 40, 500):
            found = [(document.id, document.score) for document in retriever.search([query], k)[0]]
            assert found == [(documents[i].id, float(scores[i])) for i in order[:k]]


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

"""BM25: its formula, in memory and on disk, and what it has in common with Lucene."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import log
from pathlib import Path

import numpy as np
import pytest
from scripted import jsonl

from ssp_env.errors import ConfigError
from ssp_env.game.rules import own_retriever
from ssp_env.search import postings
from ssp_env.search.base import Corpus, Retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.index import SearchConfig, build_index, open_index, open_search
from ssp_env.search.postings import BM25Index, kept_lengths
from ssp_env.testing import RetrieverTests
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld, SmallWorld

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


def test_title_and_text_are_searched_and_equal_scores_are_in_order(bm25: Retriever) -> None:
    found = {"vienna": "a", "DANUBE!": "ba", "identical": "cd", "šibenik": "e", "北京": "e"}
    found |= dict.fromkeys(("", " \t\n", "\x00\x01\x7f", "?!…", "\ud800", "zzzunknown"), "")
    assert [ids(ranking) for ranking in bm25.search([*found], 5)] == [*found.values()]


class TestBM25(RetrieverTests):
    queries = ("danube", "identical words", "capital of europe")

    @pytest.fixture(autouse=True)
    def take(self, bm25: Retriever) -> None:
        self.retriever = bm25

    def make_retriever(self) -> Retriever:
        return self.retriever

    def test_copies_and_threads_answer_alike(self) -> None:
        alone = self.retriever.search(self.queries, 3)
        assert pickle.loads(pickle.dumps(self.retriever)).search(self.queries, 3) == alone
        with ThreadPoolExecutor(6) as pool:
            found = pool.map(lambda _: self.retriever.search(self.queries, 3), range(18))
            assert list(found) == [alone] * 18


def ids(ranking: Sequence[Document]) -> str:
    return "".join(document.id for document in ranking)


def drawn(count: int, longest: int, seed: int = 0, words: int = 300) -> list[Document]:
    """Words as unevenly frequent as in real text; many short passages are exact copies."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1 / np.arange(1, words + 1))
    rows = [
        np.searchsorted(shares, shares[-1] * rng.random(rng.integers(longest)))
        for _ in range(count)
    ]
    return [Document(f"d{i}", "", " ".join(f"w{w}" for w in row)) for i, row in enumerate(rows)]


def by_formula(documents: Sequence[Document], query: str, k1: float, b: float) -> list[float]:
    """Lucene's BM25 of every passage, word by word, with parts in single precision."""
    texts = [document.text.split() for document in documents]
    holding = Counter(word for text in texts for word in set(text))
    average = sum(map(len, texts)) / len(texts)
    kept = kept_lengths(np.array([len(text) for text in texts])).tolist()
    scores = []
    for text, length in zip(texts, kept, strict=True):
        counts, score = Counter(text), np.float32(0)
        for word in query.split():
            if tf := counts[word]:
                df = holding[word]
                idf = np.float32(log(1 + (len(texts) - df + 0.5) / (df + 0.5)))
                part = float(idf) * (tf / (k1 * ((1 - b) + b * length / average) + tf))
                score += np.float32(part)
        scores.append(float(score))
    return scores


@pytest.mark.parametrize("few", [0, 2**16])
def test_rankings_are_the_formulas_whatever_is_left_out(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "_FEW", few)
    monkeypatch.setattr(postings, "_SLICES", 4)
    documents = drawn(200, 90)
    everything = " ".join(f"w{i}" for i in range(0, 300, 7))
    for k1, b in ((1.2, 0.75), (0.9, 0.4), (0.0, 1.0)):
        index = BM25Index(documents, k1, b)
        for query in ("w0", "w250 w0 w1", "w3 w299 w40 w1 w17", everything):
            scores = by_formula(documents, query, k1, b)
            order = [i for i in np.argsort(-np.array(scores), kind="stable") if scores[i] > 0]
            for k in (1, 3, 40, 500):
                assert index.best(query, k) == [(i, scores[i]) for i in order[:k]]


@pytest.mark.parametrize(
    ("world", "digest"), [(MiniWorld, "2e83520a033117b5"), (SmallWorld, "ae533ba35eb777dd")]
)
def test_rankings_of_the_shipped_worlds_stay_to_the_bit(
    world: type[MiniWorld], digest: str
) -> None:
    """The policies that ship were trained on them."""
    opened = world()
    queries = [question.text for question in opened.questions(0, 10)]
    queries += [document.title for document in opened.corpus]
    found = own_retriever(opened).search(queries, 10)
    text = json.dumps([[(each.id, each.score) for each in ranking] for ranking in found])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


def test_memory_and_disk_rank_alike(tmp_path: Path) -> None:
    documents = drawn(1500, 150, words=20_000)
    folder = build_index(jsonl(tmp_path / "c.jsonl", documents), tmp_path / "i")
    rng = np.random.default_rng(1)
    drawn_words = zip(rng.integers(20, 400, 1000), rng.integers(60, size=1000), strict=True)
    queries = [f"w{one} w{other} w{one * 37}" for one, other in drawn_words]
    sides = (BM25Retriever(Corpus(documents)), open_index(folder))
    both = [[[d.id for d in found] for found in side.search(queries, 10)] for side in sides]
    same = sum(one == other for one, other in zip(*both, strict=True))
    assert same >= 950, same


def test_k1_and_b_are_settings_where_a_search_can_take_them(tmp_path: Path) -> None:
    world = MiniWorld(entities=60)
    queries = [f"{document.title} mentor of" for document in world.corpus]

    def scores(**given: float) -> list[list[float | None]]:
        retriever = open_search(SearchConfig(**given), world)
        assert retriever is not None
        return [[document.score for document in found] for found in retriever.search(queries, 5)]

    found = [scores(k1=1.2), scores(k1=0.9), scores(b=0.4), scores(k1=0.9, b=0.4)]
    assert all(one != other for i, one in enumerate(found) for other in found[:i])
    for source, has in (("http://127.0.0.1:9", "has its own"), ("folder", "has Lucene's")):
        with pytest.raises(ConfigError, match=rf"search\.k1 = 0\.9: .*{has}: leave it out"):
            SearchConfig(source=source, k1=0.9)
    with pytest.raises(ConfigError, match=r"search\.b = 2"):
        SearchConfig(b=2)

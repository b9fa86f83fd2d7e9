"""Equal queries get equal answers, whatever is in their batch, over corpora of exact copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scripted import jsonl
from test_dense import HashEncoder

from ssp_env.search.base import Corpus, Retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.index import KINDS, build_index, open_index
from ssp_env.types import Document

BATCHES = (1, 330, 940)
DIMENSION = 384
"""FAISS searches by matrix products from 334 queries of it on."""


def copies(seed: int) -> list[Document]:
    """Passages of which one is there forty times, and the others up to four times, at random."""
    rng = np.random.default_rng(seed)
    texts = [f"text {i} of w{rng.integers(9)}" for i in range(60)]
    chosen = [texts[i] for i in rng.integers(60, size=110)] + [texts[0]] * 40
    rng.shuffle(chosen)
    return [Document(f"d{i}", "", text) for i, text in enumerate(chosen)]


def opened(kind: str, documents: list[Document], folder: Path) -> Retriever:
    if kind == "memory":
        return BM25Retriever(Corpus(documents))
    encoder = None if kind == "bm25" else HashEncoder(DIMENSION)
    source = jsonl(folder / "c.jsonl", documents)
    build_index(source, folder / "i", kind, encoder=encoder)
    return open_index(folder / "i", encoder=encoder)


@pytest.mark.parametrize("kind", ["memory", *KINDS])
@pytest.mark.parametrize("seed", [0, 1])
def test_equal_queries_get_equal_answers_in_batches_of_any_size(
    kind: str, seed: int, tmp_path: Path
) -> None:
    documents = copies(seed)
    retriever = opened(kind, documents, tmp_path)
    queries = [documents[0].text, *(f"text {i}" for i in range(999))]
    asked = (0, 1, 5, 17, 59)
    for k in (1, 50):
        alone = [retriever.search([queries[i]], k)[0] for i in asked]
        for size in BATCHES:
            found = retriever.search([*queries[60 : 60 + size], *(queries[i] for i in asked)], k)
            assert shown(found[-len(asked) :]) == shown(alone)


def shown(rankings: list[list[Document]]) -> list[list[tuple[str, float | None]]]:
    return [[(found.id, found.score) for found in ranking] for ranking in rankings]

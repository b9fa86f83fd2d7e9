"""BM25 over the corpus of a test file, in memory and on disk."""

from __future__ import annotations

import pytest
from scripted import jsonl

from ssp_env.search.base import Corpus, Retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.index import build_index, open_index


@pytest.fixture(scope="module", params=["memory", "disk"])
def bm25(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Retriever:
    """Finds the passages of the module's ``CORPUS``."""
    corpus: Corpus = request.module.CORPUS
    if request.param == "memory":
        return BM25Retriever(corpus)
    folder = tmp_path_factory.mktemp("index")
    return open_index(build_index(jsonl(folder / "c.jsonl", corpus), folder / "i").parent)

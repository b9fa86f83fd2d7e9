"""Reranking: the reranker's order, its depth, one call a batch, a real cross-encoder."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ssp_env.errors import ModelError, ServiceError
from ssp_env.search.fuse import CrossEncoderReranker, RerankedRetriever
from ssp_env.types import Document


class Fixed:
    """A retriever that finds the first of 20 documents, best first."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        found = [Document(str(i), "", f"text {i}", -float(i)) for i in range(20)]
        return [found[:k] if query else [] for query in queries]


class Backwards:
    """A reranker that likes what comes late, in pairs of equals."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, str]]] = []

    def scores(self, pairs: Sequence[tuple[str, Document]]) -> list[float]:
        self.calls.append([(query, document.id) for query, document in pairs])
        return [float(int(document.id) // 2) for _, document in pairs]


def ids(ranking: Sequence[Document]) -> list[int]:
    return [int(document.id) for document in ranking]


def test_the_rerankers_order_holds_and_equals_keep_the_retrievers() -> None:
    [ranking] = RerankedRetriever(Fixed(), Backwards(), depth=6).search(["q"], 5)
    assert [(document.id, document.score) for document in ranking] == [
        ("4", 2),
        ("5", 2),
        ("2", 1),
        ("3", 1),
        ("0", 0),
    ]


def test_it_sees_depth_documents_or_k_in_one_call_for_the_batch() -> None:
    reranker = Backwards()
    retriever = RerankedRetriever(Fixed(), reranker, depth=3)
    assert [ids(ranking) for ranking in retriever.search(["a", "", "b"], 2)] == [[2, 0], [], [2, 0]]
    assert ids(retriever.search(["c"], 5)[0]) == [4, 2, 3, 0, 1]
    assert reranker.calls == [
        [(q, str(i)) for q in "ab" for i in range(3)],
        [("c", str(i)) for i in range(5)],
    ]
    assert retriever.search([""], 2) == [[]]
    assert len(reranker.calls) == 2


def test_a_reranker_that_forgets_documents_is_an_outage() -> None:
    class Forgetful:
        def scores(self, pairs: Sequence[tuple[str, Document]]) -> list[float]:
            return [1.0]

    with pytest.raises(ServiceError, match="1 scores for 20 documents"):
        RerankedRetriever(Fixed(), Forgetful()).search(["q"], 3)


# A real cross-encoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sentence_transformers", reason="needs the extra 'dense'")
    from small_models import bert_cross_encoder

    return bert_cross_encoder(tmp_path_factory.mktemp("models") / "cross-encoder")


def test_a_cross_encoder_scores_pairs_with_its_raw_output(folder: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    documents = [Document("", "vienna", text) for text in ("here", "a b c d")]
    pairs = [(query, each) for query in ("where", "who is it") for each in documents]
    scores = CrossEncoderReranker(folder, device="cpu").scores(pairs)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        texts = [(query, f"vienna\n{document.text}") for query, document in pairs]
        inputs = [tokenizer(*text, return_tensors="pt") for text in texts]
        expected = [model(**each).logits.item() for each in inputs]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert len({round(score, 4) for score in expected}) == 4


def test_a_cross_encoder_reranks_odd_queries_too(folder: Path) -> None:
    reranker = CrossEncoderReranker(folder, device="cpu")
    retriever = RerankedRetriever(Fixed(), reranker)
    for query in ("q", "\ud800", "\x00", "北京", "word " * 5000):
        [ranking] = retriever.search([query], 20)
        scores = [document.score for document in ranking]
        assert sorted(ids(ranking)) == list(range(20))
        assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]
    again = pickle.loads(pickle.dumps(retriever))
    assert again.search(["q"], 3) == retriever.search(["q"], 3)


@pytest.mark.usefixtures("folder")
def test_models_that_cannot_rerank_are_refused(tmp_path: Path) -> None:
    from small_models import bert_cross_encoder, bert_encoder

    with pytest.raises(ModelError, match="never downloaded"):
        CrossEncoderReranker("cross-encoder/ms-marco-MiniLM-L6-v2")
    with pytest.raises(ModelError, match="no cross-encoder that can be loaded"):
        CrossEncoderReranker(tmp_path)
    with pytest.raises(ModelError, match="has 3 outputs"):
        CrossEncoderReranker(bert_cross_encoder(tmp_path / "three", labels=3))
    with pytest.raises(ModelError, match="was not trained as a cross-encoder, but as BertModel"):
        CrossEncoderReranker(bert_encoder(tmp_path / "encoder"))

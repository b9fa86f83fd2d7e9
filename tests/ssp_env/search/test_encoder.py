"""Models from directories: prefixes, unit vectors, identity, what cannot be loaded."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from small_models import bert_cross_encoder, bert_encoder

from ssp_env.errors import ModelError
from ssp_env.search.encoder import CrossEncoderReranker, SentenceTransformerEncoder
from ssp_env.types import Document

# Not imported here: that takes seconds, in every process that collects the tests.
pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason="needs the extra 'dense'"
)

TEXTS = ["where is vienna", "vienna is in austria", "", "\x00\x01\x1f", "a\ud800b", "北京 Š 🙂"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_encoder(tmp_path_factory.mktemp("models") / "small-bert")


@pytest.fixture(scope="module")
def plain(folder: Path) -> SentenceTransformerEncoder:
    return SentenceTransformerEncoder(folder, device="cpu")


def test_any_text_has_a_float32_vector_of_unit_length_in_order_and_threads(
    plain: SentenceTransformerEncoder,
) -> None:
    vectors = plain.encode_passages(TEXTS)
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(TEXTS), plain.info.dimension))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda text: plain.encode_passages([text])[0], TEXTS))
    np.testing.assert_allclose(alone, vectors, atol=1e-5)
    assert plain.encode_queries([]).shape == (0, plain.info.dimension)


def test_prefixes_come_first_and_the_digest_tells_them_weights_and_limit_apart(
    folder: Path, plain: SentenceTransformerEncoder, tmp_path: Path
) -> None:
    e5 = SentenceTransformerEncoder(copytree(folder, tmp_path / "e5-small-v2"))
    for prefix, encode in (("query", e5.encode_queries), ("passage", e5.encode_passages)):
        by_hand = plain.encode_passages([f"{prefix}: {text}" for text in TEXTS])
        np.testing.assert_allclose(encode(TEXTS), by_hand, atol=1e-6)

    def digest(folder: Path) -> str:
        return SentenceTransformerEncoder(folder, ("", "")).info.digest

    moved = copytree(folder, tmp_path / "elsewhere")
    (moved / "README.md").write_text("words")
    limited = copytree(folder, tmp_path / "limited")
    settings = json.loads((limited / "tokenizer_config.json").read_text())
    (limited / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 10}))
    reseeded = bert_encoder(tmp_path / "reseeded", seed=1)
    assert digest(moved) == plain.info.digest
    assert len({plain.info.digest, e5.info.digest, digest(limited), digest(reseeded)}) == 4


def test_a_cross_encoder_scores_pairs_with_its_raw_output(folder: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    cross = bert_cross_encoder(tmp_path / "cross-encoder")
    documents = [Document("", "vienna", text) for text in ("here", "a b c d", "\ud800")]
    pairs = [(query, each) for query in ("where", "who is it") for each in documents]
    tokenizer = AutoTokenizer.from_pretrained(cross)
    model = AutoModelForSequenceClassification.from_pretrained(cross).eval()
    texts = [(q, f"vienna\n{found.text}".replace("\ud800", "\ufffd")) for q, found in pairs]
    with torch.no_grad():
        inputs = [tokenizer(*text, return_tensors="pt") for text in texts]
        expected = [model(**each).logits.item() for each in inputs]
    reranker = CrossEncoderReranker(cross, device="cpu")
    for each in (reranker, pickle.loads(pickle.dumps(reranker))):
        np.testing.assert_allclose(each.scores(pairs), expected, atol=1e-5)

    with pytest.raises(ModelError, match="has 3 outputs"):
        CrossEncoderReranker(bert_cross_encoder(tmp_path / "three", labels=3))
    with pytest.raises(ModelError, match="was not trained as a cross-encoder, but as BertModel"):
        CrossEncoderReranker(folder)

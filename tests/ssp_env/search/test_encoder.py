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
from ssp_env.search.encoder import (
    CrossEncoderReranker,
    SentenceTransformerEncoder,
    choose_prefixes,
)
from ssp_env.types import Document

# Not imported here: that takes seconds, in every process that collects the tests.
pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason="needs the extra 'dense'"
)

E5_PREFIXES, NO_PREFIXES = ("query: ", "passage: "), ("", "")
TEXTS = ["where is vienna", "vienna is in austria", "a", "the danube flows through ten countries"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_encoder(tmp_path_factory.mktemp("models") / "small-bert")


@pytest.fixture(scope="module")
def plain(folder: Path) -> SentenceTransformerEncoder:
    return SentenceTransformerEncoder(folder, device="cpu")


def test_an_e5_gets_its_prefixes(folder: Path, plain: SentenceTransformerEncoder) -> None:
    encoder = SentenceTransformerEncoder(copytree(folder, folder.parent / "e5-small-v2"))
    for prefix, encode in (("query", encoder.encode_queries), ("passage", encoder.encode_passages)):
        by_hand = plain.encode_passages([f"{prefix}: {text}" for text in TEXTS])
        np.testing.assert_allclose(encode(TEXTS), by_hand, atol=1e-6)
    np.testing.assert_array_equal(plain.encode_queries(TEXTS), plain.encode_passages(TEXTS))


@pytest.mark.parametrize(
    ("name", "prompts", "expected"),
    [
        ("intfloat/e5-base-v2", {"query": "", "document": ""}, E5_PREFIXES),
        ("all-MiniLM-L6-v2", {"query": "", "document": ""}, NO_PREFIXES),
        ("me5y", {}, NO_PREFIXES),
        ("e5-mine", {"query": "Q: ", "passage": "P: "}, ("Q: ", "P: ")),
        ("models--intfloat--e5-base-v2/snapshots/0123abc", {}, E5_PREFIXES),
    ],
)
def test_prefixes_follow_the_models_prompts_then_its_name(
    name: str, prompts: dict[str, str], expected: tuple[str, str]
) -> None:
    assert choose_prefixes(Path(name), prompts) == expected


def test_vectors_are_float32_of_unit_length_in_the_order_of_the_texts(
    plain: SentenceTransformerEncoder,
) -> None:
    vectors = plain.encode_passages(TEXTS)
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(TEXTS), plain.info.dimension))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda text: plain.encode_passages([text])[0], TEXTS))
    np.testing.assert_allclose(alone, vectors, atol=1e-5)
    assert plain.encode_queries([]).shape == (0, plain.info.dimension)


@pytest.mark.parametrize("text", ["", "\x00\x01\x1f", "a\ud800b", "北京 Šibenik 🙂"])
def test_any_text_has_a_vector(plain: SentenceTransformerEncoder, text: str) -> None:
    assert np.isfinite(plain.encode_queries([text])).all()


def test_the_digest_tells_weights_prefixes_and_limit_apart_and_nothing_else(
    folder: Path, tmp_path: Path
) -> None:
    def digest(folder: Path, **settings: object) -> str:
        return SentenceTransformerEncoder(folder, device="cpu", **settings).info.digest  # type: ignore[arg-type]

    moved = copytree(folder, tmp_path / "elsewhere")
    (moved / "README.md").write_text("words")
    assert digest(moved) == digest(folder)
    limited = copytree(folder, tmp_path / "limited")
    settings = json.loads((limited / "tokenizer_config.json").read_text())
    (limited / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 10}))
    others = [
        digest(bert_encoder(tmp_path / "reseeded", seed=1)),
        digest(folder, prefixes=E5_PREFIXES),
        digest(limited),
    ]
    assert len({digest(folder), *others}) == 4


def test_models_are_read_from_safetensors_in_a_directory(folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    with pytest.raises(ModelError, match="never downloaded"):
        SentenceTransformerEncoder("intfloat/e5-base-v2")
    with pytest.raises(ModelError, match="no encoder that can be loaded"):
        SentenceTransformerEncoder(tmp_path)
    copy = copytree(folder, tmp_path / "pickled")
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="safetensors"):
        SentenceTransformerEncoder(copy)


def test_a_cross_encoder_scores_pairs_with_its_raw_output(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = bert_cross_encoder(tmp_path / "cross-encoder")
    documents = [Document("", "vienna", text) for text in ("here", "a b c d", "\ud800")]
    pairs = [(query, each) for query in ("where", "who is it") for each in documents]
    reranker = CrossEncoderReranker(folder, device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        texts = [
            (query, f"vienna\n{document.text}".replace("\ud800", "\ufffd"))
            for query, document in pairs
        ]
        inputs = [tokenizer(*text, return_tensors="pt") for text in texts]
        expected = [model(**each).logits.item() for each in inputs]
    for each in (reranker, pickle.loads(pickle.dumps(reranker))):
        np.testing.assert_allclose(each.scores(pairs), expected, atol=1e-5)


def test_models_that_cannot_rerank_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has 3 outputs"):
        CrossEncoderReranker(bert_cross_encoder(tmp_path / "three", labels=3))
    with pytest.raises(ModelError, match="was not trained as a cross-encoder, but as BertModel"):
        CrossEncoderReranker(folder)

"""Encoders: prefixes, unit vectors, identity, odd texts, models that cannot be loaded."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from small_models import bert_encoder

from ssp_env.errors import ConfigError, ModelError
from ssp_env.search.encoder import SentenceTransformerEncoder, choose_prefixes

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


def prefixes(encoder: SentenceTransformerEncoder) -> tuple[str, str]:
    return encoder.info.query_prefix, encoder.info.passage_prefix


def test_an_e5_gets_its_prefixes_and_others_get_none(
    folder: Path, plain: SentenceTransformerEncoder
) -> None:
    e5 = copytree(folder, folder.parent / "e5-small-v2")
    encoder = SentenceTransformerEncoder(e5, device="cpu")
    assert (prefixes(encoder), prefixes(plain)) == (E5_PREFIXES, NO_PREFIXES)
    for prefix, encode in (("query", encoder.encode_queries), ("passage", encoder.encode_passages)):
        by_hand = plain.encode_passages([f"{prefix}: {text}" for text in TEXTS])
        np.testing.assert_allclose(encode(TEXTS), by_hand, atol=1e-6)
    np.testing.assert_array_equal(plain.encode_queries(TEXTS), plain.encode_passages(TEXTS))


@pytest.mark.parametrize(
    ("name", "prompts", "expected"),
    [
        ("intfloat/e5-base-v2", {"query": "", "document": ""}, E5_PREFIXES),
        ("multilingual-e5-large", {}, E5_PREFIXES),
        ("all-MiniLM-L6-v2", {"query": "", "document": ""}, NO_PREFIXES),
        ("me5y", {}, NO_PREFIXES),
        ("e5-mine", {"query": "Q: ", "passage": "P: "}, ("Q: ", "P: ")),
        ("bge", {"query": "Search: "}, ("Search: ", "")),
        ("models--intfloat--e5-base-v2/snapshots/0123abc", {}, E5_PREFIXES),
    ],
)
def test_prefixes_follow_the_models_prompts_then_its_name(
    name: str, prompts: dict[str, str], expected: tuple[str, str]
) -> None:
    assert choose_prefixes(Path(name), prompts) == expected


@pytest.mark.parametrize("name", ["multilingual-e5-large-instruct", "intfloat/e5-mistral-7b"])
def test_an_e5_that_needs_an_instruction_is_refused_without_one(name: str) -> None:
    with pytest.raises(ConfigError, match="prefixes"):
        choose_prefixes(Path(name), {})


def test_vectors_are_float32_of_unit_length_in_the_order_of_the_texts(
    plain: SentenceTransformerEncoder,
) -> None:
    vectors = plain.encode_passages(TEXTS)
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(TEXTS), plain.info.dimension))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(plain.encode_passages([text])[0], vector, atol=1e-5)
    assert plain.encode_queries([]).shape == (0, plain.info.dimension)


@pytest.mark.parametrize(
    "text",
    ["", " ", "\x00\x01\x1f", "a\ud800b", "北京 Šibenik 🙂", "x" * 1_000_000, "y " * 500_000],
)
def test_any_text_has_a_vector(plain: SentenceTransformerEncoder, text: str) -> None:
    assert np.isfinite(plain.encode_queries([text])).all()


def test_the_digest_tells_weights_prefixes_and_limit_apart_and_nothing_else(
    folder: Path, tmp_path: Path
) -> None:
    def digest(folder: Path, **settings: object) -> str:
        return SentenceTransformerEncoder(folder, device="cpu", **settings).info.digest  # type: ignore[arg-type]

    original = digest(folder)
    moved = copytree(folder, tmp_path / "elsewhere")
    (moved / "README.md").write_text("words")
    assert digest(moved) == original
    limited = copytree(folder, tmp_path / "limited")
    settings = json.loads((limited / "tokenizer_config.json").read_text())
    (limited / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 10}))
    others = [
        digest(bert_encoder(tmp_path / "reseeded", seed=1)),
        digest(folder, prefixes=E5_PREFIXES),
        digest(limited),
    ]
    assert len({original, *others}) == 4


def test_a_pickled_encoder_is_the_same_encoder(folder: Path) -> None:
    encoder = SentenceTransformerEncoder(folder, device="cpu", prefixes=E5_PREFIXES)
    again = pickle.loads(pickle.dumps(encoder))
    assert again.info == encoder.info
    np.testing.assert_array_equal(again.encode_queries(TEXTS), encoder.encode_queries(TEXTS))


def test_threads_may_share_an_encoder(plain: SentenceTransformerEncoder) -> None:
    texts = [f"{'word ' * (i % 40)}{i}" for i in range(64)]
    alone = [plain.encode_queries([text]) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda text: plain.encode_queries([text]), texts))
    np.testing.assert_array_equal(np.concatenate(together), np.concatenate(alone))


def test_nothing_is_looked_for_outside_the_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="never downloaded"):
        SentenceTransformerEncoder("intfloat/e5-base-v2")
    with pytest.raises(ModelError, match="no encoder that can be loaded"):
        SentenceTransformerEncoder(tmp_path)


def test_pickled_weights_are_not_read(folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    copy = copytree(folder, tmp_path / "pickled")
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="safetensors"):
        SentenceTransformerEncoder(copy)


def test_numbers_that_are_not_finite_are_an_error_not_a_vector(
    plain: SentenceTransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    monkeypatch.setattr(plain._model, "encode", lambda *texts, **options: rows)
    unit = np.array([[0.6, 0.8], [0, 0]], np.float32)
    np.testing.assert_array_equal(plain.encode_queries(["a", "b"]), unit)
    rows[1, 1] = np.nan
    with pytest.raises(ModelError, match="gives vectors that are not finite"):
        plain.encode_queries(["a", "b"])

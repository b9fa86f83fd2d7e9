"""GGUF files: the split of text that they name, and an embedding that they hold twice.

A file is made on the spot: a small Qwen2 with random weights and a byte-level vocabulary."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import models, pre_tokenizers

from ssp_agents.gguf import SPLITS, _pre_tokenizer
from ssp_agents.models import from_gguf, load_model
from ssp_env.errors import ModelError
from ssp_env.tokenizers import HuggingFaceTokenizer

gguf = pytest.importorskip("gguf")

WIDTH, INNER = 32, 64
MERGES = ["Ċ Ċ", "Ġ Ġ", "1 9", "Ġ a", "c a", "ca t", "9 0"]


def write(path: Path, pre: str | None, *, copies: bool = False, apart: bool = False) -> Path:
    """A GGUF file; ``copies``: its embedding twice, rounded to 5 bits and to 8."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merged = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*letters, *merged, "<|im_start|>", "<|im_end|>"]
    writer = gguf.GGUFWriter(path, "qwen2")
    for name, value in {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": WIDTH,
        "feed_forward_length": INNER,
        "head_count": 2,
        "head_count_kv": 2,
        "layer_norm_rms_eps": 1e-6,
        "rope_freq_base": 10_000.0,
    }.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_pad_token_id(len(tokens) - 1)

    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return rng.normal(0, 0.1, shape).astype(np.float32)

    embedding = drawn(len(tokens), WIDTH)
    for kind, name in (("Q5_0", "token_embd"), ("Q8_0", "output"))[: 1 + copies]:
        kept = drawn(len(tokens), WIDTH) if apart and name == "output" else embedding
        rounded = gguf.GGMLQuantizationType[kind]
        stored = gguf.quants.quantize(kept, rounded)
        writer.add_tensor(f"{name}.weight", stored, raw_dtype=rounded)
    shapes = {
        "attn_norm.weight": (WIDTH,),
        "ffn_norm.weight": (WIDTH,),
        "ffn_gate.weight": (INNER, WIDTH),
        "ffn_up.weight": (INNER, WIDTH),
        "ffn_down.weight": (WIDTH, INNER),
        "attn_output.weight": (WIDTH, WIDTH),
        **{f"attn_{part}.weight": (WIDTH, WIDTH) for part in "qkv"},
        **{f"attn_{part}.bias": (WIDTH,) for part in "qkv"},
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}", drawn(*shape))
    writer.add_tensor("output_norm.weight", drawn(WIDTH))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.save(path.with_suffix(".npy"), embedding)
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssp_agents.models.cache_folder", lambda: tmp_path / "cache")


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("smollm", "\n\n1990", ["ĊĊ", "1", "9", "9", "0"]),
        ("starcoder", "cat  2", ["cat", "ĠĠ", "2"]),
        ("deepseek-coder", "\n\n19", ["Ċ", "Ċ", "1", "9"]),
        ("deepseek-v3", "\n\n1990", ["ĊĊ", "19", "9", "0"]),
        ("qwen2", "\n\n1990", ["ĊĊ", "1", "9", "9", "0"]),
        ("llama-bpe", "\n\n1990", ["ĊĊ", "19", "9", "0"]),
        ("gpt-2", "\n\n1990", ["Ċ", "Ċ", "19", "90"]),
    ],
)
def test_text_is_split_as_the_file_says(
    pre: str, text: str, tokens: list[str], tmp_path: Path
) -> None:
    folder = from_gguf(write(tmp_path / f"{pre}.gguf", pre))
    tokenizer = HuggingFaceTokenizer.load(folder)
    assert tokenizer.inner.tokenize(text) == tokens
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("<|im_end|>") == [tokenizer.eos_id]


def test_a_split_that_is_not_known_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "new.gguf", "brand-new")
    with pytest.raises(ModelError, match=r"new.gguf names a split .*'brand-new'.*tokenizer.json"):
        from_gguf(file)
    assert not list((tmp_path / "cache").glob("new-*"))
    with caplog.at_level(logging.WARNING):
        from_gguf(write(tmp_path / "old.gguf", None))
    assert "old.gguf does not say how its tokenizer splits text" in caplog.text


def test_the_class_is_named_as_other_programs_look_it_up(tmp_path: Path) -> None:
    """llama.cpp's converter takes no directory without it."""
    folder = from_gguf(write(tmp_path / "model.gguf", "qwen2"))
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["Qwen2ForCausalLM"]


@pytest.mark.parametrize("apart", [False, True])
def test_two_copies_of_one_embedding(
    apart: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The one of 8 bits stays; matrices that are no copies stay both."""
    file = write(tmp_path / "twice.gguf", "qwen2", copies=True, apart=apart)
    with caplog.at_level(logging.WARNING):
        folder = from_gguf(file)
    config = json.loads((folder / "config.json").read_text())
    assert config.get("tie_word_embeddings", True) is not apart
    assert ("holds its embedding twice (Q5_0, Q8_0)" in caplog.text) is not apart
    model, embedding = load_model(folder), torch.tensor(np.load(file.with_suffix(".npy")))
    error = (model.get_input_embeddings().weight - embedding).abs().max()
    assert (error < 0.003) is not apart
    same = torch.equal(model.get_output_embeddings().weight, model.get_input_embeddings().weight)
    assert same is not apart


REAL = {
    "qwen3": "qwen2",
    "llama3_1": "llama-bpe",
    "deepseek_v3": "deepseek-v3",
    "gptoss": "gpt-4o",
    "mistral_nemo": "tekken",
}


@pytest.mark.parametrize(("folder", "name"), REAL.items())
def test_splits_are_those_that_the_makers_published(folder: str, name: str) -> None:
    file = Path(os.environ.get("SSP_TOKENIZERS", "/nowhere"), folder, "tokenizer.json")
    if not file.is_file():
        pytest.skip("SSP_TOKENIZERS names no folder with this tokenizer")
    theirs = json.loads(file.read_text(encoding="utf-8"))
    ours = RawTokenizer(models.BPE())
    ours.pre_tokenizer = _pre_tokenizer(SPLITS[name])
    made = RawTokenizer.from_str(json.dumps(theirs))
    for text in (
        "It's 1990,\n\n 12,345\t (a) the_word  x",
        "I'LL go\r\n \n東京は ÉTÉ 한국 42٣",
        "\n 5",
    ):
        split = ours.pre_tokenizer.pre_tokenize_str(text)
        assert split == made.pre_tokenizer.pre_tokenize_str(text)
    assert bool(theirs["model"].get("ignore_merges")) == SPLITS[name].whole_words
    normalizer = theirs["normalizer"] or {}
    assert (normalizer.get("type") == "NFC") == SPLITS[name].composes

"""Tokenizers: the bytes behind ids, outside text that stays text, and loading; each kind also
passes the mixin in testing/test_mixins.py."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import hf_tokenizers as hf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import spell

from ssp_env.errors import ModelError
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import BPETokenizer, HuggingFaceTokenizer, WordTokenizer
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.mini_language import vocabulary


def test_transformers_loads_the_packaged_bpe_to_the_same_ids() -> None:
    folder = files("ssp_env.tokenizers").joinpath("data", "bpe")
    ours, theirs = BPETokenizer(), HuggingFaceTokenizer.load(str(folder))
    assert theirs.pieces == ours.pieces
    assert (theirs.eos_id, theirs.pad_id) == (ours.eos_id, ours.pad_id)
    text = "<search> Šibenik, 1912 </search><|end|>"
    assert theirs.encode(text) == ours.encode(text)
    assert theirs.encode_data(text) == ours.encode_data(text)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=20)
BYTE_LEVEL = [HuggingFaceTokenizer(hf.byte_level(tags=tags)) for tags in (False, True)]
METASPACE = HuggingFaceTokenizer(hf.metaspace())


@given(tokenizer=st.sampled_from([*BYTE_LEVEL, METASPACE]), text=TEXT)
def test_pieces_are_the_decoded_text(tokenizer: HuggingFaceTokenizer, text: str) -> None:
    """Also where letters fall back on bytes: a piece is then a byte, not a replacement
    character."""
    ids = tokenizer.encode_data(text)
    spelled = spell(tokenizer, ids).decode()
    assert tokenizer.decode(ids) == text
    assert (spelled.removeprefix(" ") if tokenizer is METASPACE else spelled) == text


def test_loading(tmp_path: Path) -> None:
    """Read once, and again when its files change."""
    with pytest.raises(ModelError, match="holds no tokenizer"):
        HuggingFaceTokenizer.load(tmp_path)
    inner = hf.byte_level(chat=True)
    inner.save_pretrained(tmp_path)
    tokenizer = HuggingFaceTokenizer.load(tmp_path)
    assert tokenizer.encode("what is <|im_end|>") == list(inner.encode("what is <|im_end|>"))
    assert tokenizer.chat_frame()[1] == "<|im_end|>\n<|im_start|>assistant\n"
    assert HuggingFaceTokenizer.load(tmp_path) is tokenizer

    hf.byte_level(tags=True).save_pretrained(tmp_path)
    assert HuggingFaceTokenizer.load(tmp_path).vocab_size > tokenizer.vocab_size
    (tmp_path / "tokenizer.json").write_text("{ broken")
    with pytest.raises(ModelError, match="cannot be loaded"):
        HuggingFaceTokenizer.load(tmp_path)


def test_the_tiny_tokenizer_has_the_same_ids() -> None:
    pytest.importorskip("torch")
    from ssp_agents.shipped.tiny.bootstrap import tiny_tokenizer

    words, tiny = WordTokenizer(vocabulary(), Tags().all()), HuggingFaceTokenizer(tiny_tokenizer())
    assert (tiny.pad_id, tiny.eos_id) == (words.pad_id, words.eos_id)
    assert list(tiny.pieces) == list(words.pieces)
    texts = [document.text for document in MiniWorld(seed=8, entities=60).corpus]
    texts += ["<think> zebra</think><search>Who?</search>", "<sea<search>rch> ‹search›"]
    for text in (*texts, "a_b 7-8\nété 東京", "<eos> <pad>", ""):
        assert tiny.encode_data(text) == words.encode_data(text), text
        assert "<eos>" in text or tiny.encode(text) == words.encode(text), text

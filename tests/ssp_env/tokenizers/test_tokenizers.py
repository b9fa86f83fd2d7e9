"""Tokenizers: text there and back, the bytes behind ids, and outside text that stays text."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import spell, word_tokenizer

from ssp_env.errors import TokenizerError
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import (
    BPETokenizer,
    ByteTokenizer,
    HuggingFaceTokenizer,
    WordTokenizer,
)

TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from([*Tags().all(), "a", " ", "é", "東"])).map("".join),
)


# -- bytes -------------------------------------------------------------------------------------


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_spell_everything(text: str) -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode_data(text) == tokenizer.encode(text) == list(text.encode())


# -- the packaged byte-pair encoding -------------------------------------------------------------


@given(text=TEXTS)
def test_bpe_spells_everything(text: str) -> None:
    tokenizer, seen = BPETokenizer(), text.encode("utf-8", "replace").decode()
    for ids in (tokenizer.encode(text), tokenizer.encode_data(text)):
        assert tokenizer.decode(ids) == spell(tokenizer, ids).decode() == seen


@given(text=TEXTS, ids=st.lists(st.integers(0, 8191)))
def test_bpe_takes_no_outside_text_for_a_tag_and_decodes_anything(
    text: str, ids: list[int]
) -> None:
    tokenizer = BPETokenizer()
    special = {token for tag in Tags().all() for token in tokenizer.encode(tag)}
    assert len(special) == 10, "one token per tag"
    special |= {tokenizer.pad_id, tokenizer.eos_id or 0}
    assert special.isdisjoint(tokenizer.encode_data(f"{text}<|end|><|pad|>"))

    decoded = tokenizer.decode(ids)
    for name, token in (("<|end|>", tokenizer.eos_id), ("<|pad|>", tokenizer.pad_id)):
        assert decoded.count(name) == ids.count(int(token or 0))


def test_transformers_loads_the_packaged_bpe_to_the_same_ids() -> None:
    folder = files("ssp_env.tokenizers").joinpath("data", "bpe")
    ours, theirs = BPETokenizer(), HuggingFaceTokenizer.load(str(folder))
    assert theirs.pieces == ours.pieces
    assert (theirs.eos_id, theirs.pad_id) == (ours.eos_id, ours.pad_id)
    text = "<search> Šibenik, 1912 </search><|end|>"
    assert theirs.encode(text) == ours.encode(text)
    assert theirs.encode_data(text) == ours.encode_data(text)


# -- words -------------------------------------------------------------------------------------


@given(text=TEXTS)
def test_words_from_outside_are_never_tags(text: str) -> None:
    tokenizer = word_tokenizer()
    special = {0, 1, *tokenizer.encode(" ".join(Tags().all()))}
    assert len(special) == 12
    assert special.isdisjoint(tokenizer.encode_data(text))
    assert {0, 1}.isdisjoint(tokenizer.encode(text))


@pytest.mark.parametrize("words", [["two words"], ["a", "a"]])
def test_a_vocabulary_that_cannot_work(words: list[str]) -> None:
    with pytest.raises(TokenizerError):
        WordTokenizer(words, ["<x>"])

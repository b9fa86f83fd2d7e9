"""Tokenizers of `transformers`: the bytes behind ids of every kind of vocabulary, and outside text
that stays text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import spell

from ssp_env.errors import ModelError
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import HuggingFaceTokenizer, WordTokenizer
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.mini_language import vocabulary

hf = pytest.importorskip("hf_tokenizers", reason="needs transformers", exc_type=ImportError)

BUILDERS = {
    "byte-level": hf.byte_level,
    "byte-level with tags": lambda: hf.byte_level(tags=True),
    "metaspace": hf.metaspace,
    "unigram": hf.unigram,
    "whitespace": hf.word_level,
    "words": lambda: hf.word_level(split=r"\w+|[^\w\s]"),
}


@pytest.fixture(scope="module")
def wrapped() -> dict[str, HuggingFaceTokenizer]:
    return {name: HuggingFaceTokenizer(build()) for name, build in BUILDERS.items()}


@pytest.mark.parametrize("kind", ["byte-level", "byte-level with tags"])
@given(data=st.data())
def test_byte_level_pieces_are_the_decoded_text(
    wrapped: dict[str, HuggingFaceTokenizer], kind: str, data: st.DataObject
) -> None:
    tokenizer = wrapped[kind]
    text = data.draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
    assert spell(tokenizer, tokenizer.encode_data(text)).decode() == text
    silent = {tokenizer.eos_id, tokenizer.pad_id}
    ids = data.draw(
        st.lists(
            st.integers(0, tokenizer.vocab_size - 1).filter(lambda i: i not in silent), max_size=20
        )
    )
    assert spell(tokenizer, ids).decode("utf-8", "replace") == tokenizer.decode(ids)


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=20))
def test_metaspace_pieces_are_the_decoded_text(
    wrapped: dict[str, HuggingFaceTokenizer], text: str
) -> None:
    """Also where letters fall back on bytes: a piece is then a byte, not a replacement
    character."""
    tokenizer = wrapped["metaspace"]
    ids = tokenizer.encode_data(text)
    assert spell(tokenizer, ids).decode().removeprefix(" ") == tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", list(BUILDERS))
@given(
    text=st.lists(
        st.sampled_from(
            [
                "<eos>",
                "<|im_end|>",
                "</s>",
                "<s>",
                "<|endoftext|>",
                "<tool_call>",
                "<pad>",
                "a",
                " ",
                "＜eos＞",
            ]
        )
    ).map("".join)
)
def test_text_from_outside_is_never_special(
    wrapped: dict[str, HuggingFaceTokenizer], kind: str, text: str
) -> None:
    tokenizer = wrapped[kind]
    added = tokenizer.inner.added_tokens_decoder
    special = {i for i, token in added.items() if i != tokenizer.inner.unk_token_id}
    assert len(special) >= 2
    assert special.isdisjoint(tokenizer.encode_data(text))


def test_ids_may_have_gaps() -> None:
    from tokenizers import Tokenizer as RawTokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    raw = RawTokenizer(WordLevel({"<eos>": 0, "<unk>": 1, "a": 2, "far": 9}, unk_token="<unk>"))
    tokenizer = HuggingFaceTokenizer(
        PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", unk_token="<unk>")
    )
    assert (tokenizer.vocab_size, tokenizer.pieces[9], tokenizer.pieces[5]) == (10, b" far", b"")


def test_loading(tmp_path: Path) -> None:
    inner = hf.byte_level(chat=True)
    inner.save_pretrained(tmp_path)
    tokenizer = HuggingFaceTokenizer.load(tmp_path)
    assert tokenizer.encode("what is <|im_end|>") == list(inner.encode("what is <|im_end|>"))
    assert tokenizer.chat_frame()[1] == "<|im_end|>\n<|im_start|>assistant\n"


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no tokenizer"):
        HuggingFaceTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{ broken")
    with pytest.raises(ModelError, match="cannot be loaded"):
        HuggingFaceTokenizer.load(tmp_path)


def test_the_tiny_tokenizer_has_the_same_ids() -> None:
    pytest.importorskip("torch")
    from agents.tiny.model import tiny_tokenizer

    words, tiny = WordTokenizer(vocabulary(), Tags().all()), HuggingFaceTokenizer(tiny_tokenizer())
    assert tiny.vocab_size == words.vocab_size
    assert (tiny.pad_id, tiny.eos_id) == (words.pad_id, words.eos_id)
    assert [tiny.inner.convert_ids_to_tokens(i) for i in range(words.vocab_size)] == list(
        words.tokens
    )
    assert list(tiny.pieces) == list(words.pieces)
    world = MiniWorld(seed=8, entities=60)
    texts = [d.text for d in world.corpus] + [q.text for q in world.questions(0, 30)]
    texts += [
        "<think> zebra</think><search>Who?</search>",
        "<sea<search>rch> ‹search›",
        "a_b 7-8\nété 東京",
        "",
    ]
    for text in texts:
        assert tiny.encode(text) == words.encode(text), text
        assert tiny.encode_data(text) == words.encode_data(text), text
    assert tiny.encode_data("<eos> <pad>") == words.encode_data("<eos> <pad>")


def test_a_tokenizer_is_read_once_and_again_when_its_files_change(tmp_path: Path) -> None:
    hf.byte_level(tags=False).save_pretrained(tmp_path)
    first = HuggingFaceTokenizer.load(tmp_path)
    assert HuggingFaceTokenizer.load(tmp_path) is first
    hf.byte_level(tags=True).save_pretrained(tmp_path)
    assert HuggingFaceTokenizer.load(tmp_path).vocab_size > first.vocab_size

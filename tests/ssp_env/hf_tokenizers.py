"""Tokenizers of every kind; those of models are built on the spot. Needs `transformers`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from scripted import word_tokenizer
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers import Tokenizer as RawTokenizer
from transformers import PreTrainedTokenizerFast

from benchmarks.fuzz.hostile import CHAT, MARKERS
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import BPETokenizer, ByteTokenizer, HuggingFaceTokenizer, Tokenizer

TEXT = [
    "search answer question information think what is the mentor of the rival ?",
    "a researcher searched for an answer to the question , and the information was there .",
    "searching , answering , questioning : <b>rival</b> mentors inform the nation",
] * 4


def byte_level(
    *, tags: bool = False, chat: bool = False, **options: Any
) -> PreTrainedTokenizerFast:
    """Byte-level BPE, as most models of today have it.

    Args:
        tags: whether the protocol's tags are single tokens (added, not declared special, as in
            reasoning models).
        chat: whether it has a chat template.
        options: of ``PreTrainedTokenizerFast``.
    """
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe = {"initial_alphabet": alphabet, "special_tokens": MARKERS, "show_progress": False}
    raw.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=340, **bpe))
    if tags:
        added = (*Tags().all(), "<tool_call>", "<|python_tag|>", "<|eom_id|>", "<|eot_id|>")
        raw.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in added])
    options = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", **options}
    inner = PreTrainedTokenizerFast(tokenizer_object=raw, **options)
    if chat:
        inner.chat_template = CHAT
    return inner


def metaspace(**options: Any) -> PreTrainedTokenizerFast:
    """BPE over spaces turned into letters, with bytes to fall back on and a begin-of-sequence
    token, as in Llama 2."""
    raw = RawTokenizer(models.BPE(unk_token="<unk>"))
    marked = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.normalizer = marked
    raw.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=150, show_progress=False))
    learnt = json.loads(raw.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *learnt["vocab"]]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    merges = [tuple(merge) for merge in learnt["merges"]]
    full = RawTokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    full.normalizer = marked
    steps = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    full.decoder = decoders.Sequence(steps)
    full.add_special_tokens(["<unk>", "<s>", "</s>"])
    full.post_processor = processors.TemplateProcessing(
        "<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=full, **{**names, **options})


def unigram() -> PreTrainedTokenizerFast:
    """A unigram model whose special tokens are ordinary words of its vocabulary too, with a
    normaliser (NFKC)."""
    letters = sorted({letter for text in TEXT for letter in text} | set("<>/|_"))
    vocabulary = [("<unk>", -9.0), ("<eos>", -0.1), *((tag, -0.1) for tag in Tags().all())]
    vocabulary += [(letter, -5.0) for letter in letters if letter != " "] + [("▁", -2.0)]
    raw = RawTokenizer(models.Unigram(vocabulary, unk_id=0))
    raw.normalizer = normalizers.NFKC()
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    raw.add_special_tokens(["<unk>", "<eos>"])
    raw.add_tokens([AddedToken(tag, special=False, normalized=True) for tag in Tags().all()])
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", unk_token="<unk>")


LLAMA2_CHAT = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %} {{ m['content'] }} </s>"
    "{% else %}<s>[INST] {{ m['content'] }} [/INST]{% endif %}{% endfor %}"
)
"""Where a space is put after every added token, as well as at the beginning of a text."""
TRIMMING_CHAT = CHAT.replace("{{ m['content'] }}", "{{ m['content'] | trim }}")
"""As Llama 3's and Gemma's: white space around a message is left out."""


def sentencepiece(**options: Any) -> PreTrainedTokenizerFast:
    """As :func:`metaspace`, by a pre-tokenizer that puts a space before a text and behind every
    added token, with a chat template."""
    inner = metaspace(**options)
    spec = json.loads(inner.backend_tokenizer.to_str())
    spec["normalizer"] = None
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}
    spec["pre_tokenizer"] = space
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    raw = RawTokenizer.from_str(json.dumps(spec))
    inner = PreTrainedTokenizerFast(tokenizer_object=raw, **{**names, **options})
    inner.chat_template = LLAMA2_CHAT
    return inner


def wordpiece() -> PreTrainedTokenizerFast:
    """Words and what they go on with (``##``), in which tags are tokens of their own."""
    letters = sorted({letter for text in TEXT for letter in text if letter != " "})
    letters += [c for c in map(chr, range(33, 127)) if c not in letters]
    vocabulary = ["[PAD]", "[UNK]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    model = models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]")
    raw = RawTokenizer(model)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece(cleanup=False)
    raw.add_special_tokens(["[PAD]", "[UNK]", "[SEP]"])
    raw.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in Tags().all()])
    names = {"pad_token": "[PAD]", "eos_token": "[SEP]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, **names)


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": ByteTokenizer,
    "bpe": BPETokenizer,
    "words": word_tokenizer,
    "byte-level BPE": lambda: HuggingFaceTokenizer(byte_level()),
    "with tags and chat": lambda: HuggingFaceTokenizer(byte_level(tags=True, chat=True)),
    "byte fallback": lambda: HuggingFaceTokenizer(metaspace()),
    "space before a text": lambda: HuggingFaceTokenizer(sentencepiece()),
    "unigram": lambda: HuggingFaceTokenizer(unigram()),
    "wordpiece": lambda: HuggingFaceTokenizer(wordpiece()),
}
"""A tokenizer of every kind."""

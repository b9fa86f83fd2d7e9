"""Byte, word and BPE tokenizers, small enough to be built on the spot."""

from __future__ import annotations

from functools import cache

from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as RawTokenizer
from transformers import PreTrainedTokenizerFast

from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer, WordTokenizer

TEXT = [
    "search answer question information think what is the mentor of the rival ?",
    "<search> where </search> <answer> there </answer> <question> who ? </question>",
]
MARKERS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GLUED = ["a<sear", "ch>b", "</search>b", "</question>?", "r</answer", "x</information>"]
"""Tokens that hold tags, or parts of them, together with other text."""
NAMES = ("bytes", "words", "bpe", "bpe-tags")


@cache
def tokenizer(name: str) -> Tokenizer:
    """One of :data:`NAMES`.

    ``bpe-tags`` has one token per tag and a chat template; ``bpe`` glues tags to other text.
    """
    match name:
        case "bytes":
            return ByteTokenizer()
        case "words":
            words = ["what", "is", "the", "mentor", "rival", "who", "search", "answer"]
            words += [*"<>/\\{}?.a7é", "東京", "Москва"]
            return WordTokenizer(words, Tags().all())

    return HuggingFaceTokenizer(_bpe(tags=name == "bpe-tags"))


@cache
def special_ids(name: str) -> frozenset[int]:
    """Ids that outside text must never become: tags in one token, end, padding, chat markers."""
    made = tokenizer(name)
    single = {made.encode(tag)[0] for tag in Tags().all() if len(made.encode(tag)) == 1}
    decoder = made.inner.added_tokens_decoder if isinstance(made, HuggingFaceTokenizer) else {}
    added = {i for i, token in decoder.items() if token.content not in GLUED}

    return frozenset(
        single | added | {made.pad_id} | ({made.eos_id} if made.eos_id is not None else set())
    )


def _bpe(tags: bool) -> PreTrainedTokenizerFast:
    raw = RawTokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=alphabet, special_tokens=MARKERS, show_progress=False
    )
    raw.train_from_iterator(TEXT, trainer)
    more = (*Tags().all(), "<tool_call>") if tags else GLUED
    raw.add_tokens([AddedToken(token, special=False, normalized=False) for token in more])
    inner = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    if tags:
        inner.chat_template = CHAT

    return inner

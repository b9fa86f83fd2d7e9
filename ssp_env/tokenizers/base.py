"""The interface of a tokenizer, and helpers of those that ship."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back, and the bytes behind every single id.

    Sampled ids are never decoded and encoded again. ``pieces`` lets the game find tags in them: the
    concatenation of the pieces of a turn is the text that tags are looked for in.

    A tokenizer that does not know every text may name the id of its unknown token as
    ``unknown_id``: ``reset`` then refuses an answer that would become that. It may have the methods
    :func:`encode_parts` and :func:`first_tokens` ask for, where tokens depend on what stands around
    a text, and ``end_ids``, where ``eos_id`` is not the only token that ends a turn."""

    vocab_size: int
    """Number of ids; actions are 0 .. vocab_size - 1."""
    pad_id: int
    """Fills up arrays; never part of a transcript."""
    eos_id: int | None
    """Ends a turn when a policy samples it; ``None`` if there is none."""
    pieces: Sequence[bytes]
    """UTF-8 bytes that each id contributes to a text; empty for ids that stand for no text."""

    def encode(self, text: str) -> list[int]:
        """Ids of text that *we* wrote (prompts): tags in it become the tags' ids."""

    def encode_data(self, text: str) -> list[int]:
        """Ids of text from outside: nothing in it may become a special token."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included."""


def end_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that end a turn when a policy samples one of them: the tokenizer's own ``end_ids``, if it
    has them, else ``eos_id`` alone."""
    ends: Iterable[int] | None = getattr(tokenizer, "end_ids", None)
    if ends is not None:
        return frozenset(ends)
    return frozenset() if tokenizer.eos_id is None else frozenset({tokenizer.eos_id})


def encode_parts(
    tokenizer: Tokenizer, parts: Sequence[tuple[str, bool]], continues: bool = False
) -> list[int]:
    """Ids of one text that is made of parts.

    Args:
        parts: texts in order, and for each whether we wrote it (tags in it are tags) or it is from
            outside (nothing in it may become a special token, alone or with what is around it).
        continues: whether the text goes on another one. Tokenizers that put a space before a text,
            as Llama 2's does, put none before it then.

    By the tokenizer's own method ``encode_parts(parts, continues)``, if it has one: the ids are
    those of the whole text. Else each part is encoded by itself."""
    method = getattr(tokenizer, "encode_parts", None)
    if method is not None:
        return list(method(parts, continues))
    encoded = (tokenizer.encode(t) if ours else tokenizer.encode_data(t) for t, ours in parts)
    return [token for ids in encoded for token in ids]


def decode_rest(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Text of ids that go on a text, by the tokenizer's own method ``decode_rest``, if it has one:
    some tokenizers leave out a space at the beginning of what they decode."""
    method = getattr(tokenizer, "decode_rest", None)
    return tokenizer.decode(ids) if method is None else str(method(ids))


def first_tokens(tokenizer: Tokenizer, text: str, limit: int) -> str:
    """The beginning of a text from outside, of this many tokens at most, without half letters.

    By the tokenizer's own method ``first_tokens(text, limit)``, if it has one.

    >>> from ssp_env.tokenizers import ByteTokenizer
    >>> first_tokens(ByteTokenizer(), "Rhône", 4)
    'Rhô'
    """
    method = getattr(tokenizer, "first_tokens", None)
    if method is not None:
        return str(method(text, limit))
    ids = tokenizer.encode_data(text)
    if len(ids) <= limit:
        return text
    cut = tokenizer.decode(ids[:limit])
    # The bytes of a letter may be cut in two.
    return cut if text.startswith(cut) else cut.rstrip("\ufffd")


def encodable(text: str) -> str:
    """The text with question marks for lone surrogates, which UTF-8 does not know."""
    return text.encode("utf-8", "replace").decode("utf-8")


def byte_level_alphabet() -> dict[str, int]:
    """Bytes by the characters that stand for them in byte-level vocabularies."""
    # GPT-2's table: printable characters stand for themselves, all other bytes for 256 and on.
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {chr(256 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | stand_ins

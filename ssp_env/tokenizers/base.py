"""The interface of a tokenizer, and helpers of those that ship."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back, and the bytes behind every single id.

    Sampled ids are never decoded and encoded again. ``pieces`` lets the game find tags in them: the
    concatenation of the pieces of a turn is the text that tags are looked for in.

    A tokenizer that does not know every text may name the id of its unknown token as
    ``unknown_id``: ``reset`` then refuses an answer that would become that."""

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


def encodable(text: str) -> str:
    """The text with question marks for lone surrogates, which UTF-8 does not know."""
    return text.encode("utf-8", "replace").decode("utf-8")


def byte_level_alphabet() -> dict[str, int]:
    """Bytes by the characters that stand for them in byte-level vocabularies."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {chr(256 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | stand_ins

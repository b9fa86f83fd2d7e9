"""Bytes as tokens: spells everything, in any script."""

from __future__ import annotations

from collections.abc import Sequence


class ByteTokenizer:
    """Ids 0-255 are bytes; 256 ends a turn; 257 pads. Tags take several tokens."""

    vocab_size = 258
    eos_id: int | None = 256
    pad_id = 257

    def __init__(self) -> None:
        self.pieces: Sequence[bytes] = (*(bytes([b]) for b in range(256)), b"", b"")

    def encode(self, text: str) -> list[int]:
        """UTF-8 bytes of the text; lone surrogates become question marks."""
        return list(text.encode("utf-8", "replace"))

    encode_data = encode

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the bytes; broken sequences become the replacement character."""
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", "replace")

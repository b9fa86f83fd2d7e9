"""The packaged byte-pair encoding: spells everything, in about a quarter of the tokens of bytes.

It was fitted to the passages of wiki-mini; ``data/NOTICE-bpe.md`` has its licence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ssp_env.tokenizers.huggingface import byte_level_alphabet, encodable

END, PAD = "<|end|>", "<|pad|>"


class BPETokenizer:
    """8,192 ids: padding, end, the ten tags under their default names, bytes, and merged bytes.

    Text from outside never becomes a tag's token: it is spelled in smaller ones. Tags of other
    names take several tokens. ``transformers`` loads the same file, to the same ids."""

    def __init__(self) -> None:
        self._inner, self._data, self.pieces = _packaged()
        self.vocab_size = len(self.pieces)
        self.eos_id: int | None = self._inner.token_to_id(END)
        self.pad_id: int = self._inner.token_to_id(PAD)

    def __reduce__(self) -> tuple[type[BPETokenizer], tuple[()]]:
        # All instances are alike, so copies and pickles need not hold the vocabulary.
        return BPETokenizer, ()

    def encode(self, text: str) -> list[int]:
        """Ids of text that we wrote; lone surrogates become question marks."""
        return list(self._inner.encode(encodable(text)).ids)

    def encode_data(self, text: str) -> list[int]:
        """Ids of text from outside; tags and special tokens in it are spelled out."""
        return list(self._data.encode(encodable(text)).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; broken sequences become the replacement character."""
        text = b"".join(self.pieces[i] or (self._inner.id_to_token(i) or "").encode() for i in ids)
        return text.decode("utf-8", "replace")


@cache
def _packaged() -> tuple[Any, Any, Sequence[bytes]]:
    """The tokenizer, its copy that knows no tags, and the bytes behind each id."""
    # Imported here: games over words and bytes need no such library.
    from tokenizers import Tokenizer

    source = files("ssp_env.tokenizers").joinpath("data", "bpe", "tokenizer.json")
    text = source.read_text(encoding="utf-8")
    inner, data = Tokenizer.from_str(text), Tokenizer.from_str(text)
    data.encode_special_tokens = True

    spelled = {char: byte for byte, char in byte_level_alphabet().items()}
    special = inner.get_added_tokens_decoder()
    pieces = []
    for i in range(inner.get_vocab_size()):
        token = inner.id_to_token(i) or ""
        if i not in special:
            pieces.append(bytes(spelled[char] for char in token))
        else:
            pieces.append(b"" if token in (END, PAD) else token.encode())
    return inner, data, tuple(pieces)

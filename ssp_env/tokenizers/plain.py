"""Tokenizers without a model: bytes, the words of a closed vocabulary, and a packaged BPE."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ssp_env.errors import TokenizerError
from ssp_env.tokenizers.base import byte_level_alphabet, encodable
from ssp_env.tokenizers.joining import Joiner, Joining, for_data

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
WORD = r"\w+|[^\w\s]"
"""A word: a run of letters and digits, or a single other character."""
_BPE_END, _BPE_PAD = "<|end|>", "<|pad|>"


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
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", "replace")

    def first_tokens(self, text: str, limit: int) -> str:
        """The beginning of a text, of this many bytes at most, without half letters."""
        return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


class WordTokenizer:
    """One id per word. Tags are single tokens; words outside the vocabulary become ``<unk>``.

    The ids are ``<pad>``, ``<eos>``, ``<unk>``, then the tags, then the words, each in the given
    order.

    >>> tokenizer = WordTokenizer(["who", "is", "Eve"], ["<answer>"])
    >>> tokenizer.encode("<answer> Eve !"), tokenizer.encode_data("<answer> Eve !")
    ([3, 6, 2], [2, 2, 2, 6, 2])
    """

    pad_id = 0
    eos_id: int | None = 1
    unknown_id = 2

    def __init__(self, words: Iterable[str], tags: Iterable[str]) -> None:
        """``tags`` are spelled in full, such as ``<search>``."""
        self.tags = tuple(tags)
        self.words = tuple(words)
        for word in self.words:
            if re.fullmatch(WORD, word) is None:
                raise TokenizerError(f"{word!r} is not a single word; a word matches {WORD}")

        self.tokens = (PAD, EOS, UNKNOWN, *self.tags, *self.words)
        self.vocab_size = len(self.tokens)
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self._ids) != self.vocab_size:
            raise TokenizerError("a word or tag occurs twice in the vocabulary")

        tag_pieces = (tag.encode() for tag in self.tags)
        # A word brings its space along, so that the pieces of a turn spell it as decode() does.
        word_pieces = (b" " + word.encode() for word in self.words)
        self.pieces: Sequence[bytes] = (b"", b"", b" <unk>", *tag_pieces, *word_pieces)

        self._plain = re.compile(WORD)
        self._tagged = re.compile("|".join([*map(re.escape, self.tags), WORD]))
        self._word_ids = {word: self._ids[word] for word in self.words}

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(token, self.unknown_id) for token in self._tagged.findall(text)]

    def encode_data(self, text: str) -> list[int]:
        """Ids of the text's words; a tag in it is spelled out as the characters it is made of."""
        return [self._word_ids.get(token, self.unknown_id) for token in self._plain.findall(text)]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.tokens[i] for i in ids)

    def first_tokens(self, text: str, limit: int) -> str:
        """The beginning of a text, of this many words at most."""
        ends = [word.end() for word in itertools.islice(self._plain.finditer(text), limit + 1)]
        return text if len(ends) <= limit else text[: ends[limit - 1] if limit else 0]


class BPETokenizer(Joining):
    """8,192 ids: padding, end, the ten tags under their default names, bytes, and merged bytes.

    Spells everything, in about a quarter of the tokens of bytes. It was fitted to the passages of
    wiki-mini; ``data/NOTICE-bpe.md`` has its licence.

    Text from outside never becomes a tag's token: it is spelled in smaller ones. Tags of other
    names take several tokens. ``transformers`` loads the same file, to the same ids."""

    def __init__(self) -> None:
        self._inner, self._joiner, self.pieces = _packaged()
        self.vocab_size = len(self.pieces)
        self.eos_id: int | None = self._inner.token_to_id(_BPE_END)
        self.pad_id: int = self._inner.token_to_id(_BPE_PAD)

    def __reduce__(self) -> tuple[type[BPETokenizer], tuple[()]]:
        # All instances are alike, so copies and pickles need not hold the vocabulary.
        return BPETokenizer, ()

    def encode(self, text: str) -> list[int]:
        return list(self._inner.encode(encodable(text)).ids)

    def decode(self, ids: Sequence[int]) -> str:
        text = b"".join(self.pieces[i] or (self._inner.id_to_token(i) or "").encode() for i in ids)
        return text.decode("utf-8", "replace")


@cache
def _packaged() -> tuple[Any, Joiner, Sequence[bytes]]:
    """The tokenizer, what joins parts by it, and the bytes behind each id."""
    # Imported here: games over words and bytes need no such library.
    from tokenizers import Tokenizer

    text = (Path(__file__).parent / "data/bpe/tokenizer.json").read_text(encoding="utf-8")
    inner = Tokenizer.from_str(text)

    spelled, special = byte_level_alphabet(), inner.get_added_tokens_decoder()
    pieces = []
    for i in range(inner.get_vocab_size()):
        token = inner.id_to_token(i) or ""
        if i not in special:
            pieces.append(bytes(spelled[char] for char in token))
        else:
            pieces.append(b"" if token in (_BPE_END, _BPE_PAD) else token.encode())
    data = for_data(inner, lambda content: True)
    joiner = Joiner(inner.encode, inner, data, special, special, data.encode("?").ids)
    return inner, joiner, tuple(pieces)

"""Words as tokens, over a closed vocabulary: small actions for small models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ssp_env.errors import TokenizerError

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
WORD = r"\w+|[^\w\s]"
"""What a word is: a run of letters and digits, or a single other character."""


class WordTokenizer:
    """One id per word. Tags are single tokens; words outside the vocabulary become ``<unk>``.

    The ids are ``<pad>``, ``<eos>``, ``<unk>``, then the tags, then the words, each in the given
    order."""

    pad_id = 0
    eos_id: int | None = 1
    unknown_id = 2

    def __init__(self, words: Iterable[str], tags: Iterable[str]) -> None:
        """
        Args:
            words: the vocabulary, each entry a single word.
            tags: tags of the protocol in full, such as ``<search>``.

        Raises:
            TokenizerError: an entry that is not one word, that no text can spell, or that occurs
                twice.
        """
        self.tags = tuple(tags)
        self.words = tuple(words)
        for entry in (*self.tags, *self.words):
            if re.search("[\ud800-\udfff]", entry) is not None:
                raise TokenizerError(
                    f"{entry!r} holds half a surrogate pair, which no text can spell"
                )

        for word in self.words:
            if re.fullmatch(WORD, word) is None:
                raise TokenizerError(f"{word!r} is not a single word; a word matches {WORD}")

        self.tokens = (PAD, EOS, UNKNOWN, *self.tags, *self.words)
        self.vocab_size = len(self.tokens)
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self._ids) != self.vocab_size:
            raise TokenizerError("a word or tag occurs twice in the vocabulary")

        # After <pad>, <eos>, <unk> and the tags.
        first_word = 3 + len(self.tags)
        self.pieces: Sequence[bytes] = (
            b"",
            b"",
            b" <unk>",
            *(tag.encode() for tag in self.tags),
            *(b" " + word.encode() for word in self.words),
        )

        self._plain = re.compile(WORD)
        self._tagged = re.compile("|".join([*map(re.escape, self.tags), WORD]))
        self._word_ids = {word: i for i, word in enumerate(self.words, start=first_word)}

    def encode(self, text: str) -> list[int]:
        """Ids of the text's words and tags."""
        return [self._ids.get(token, self.unknown_id) for token in self._tagged.findall(text)]

    def encode_data(self, text: str) -> list[int]:
        """Ids of the text's words; a tag in it is spelled out as the characters it is made of."""
        return [self._word_ids.get(token, self.unknown_id) for token in self._plain.findall(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """The tokens, with a space between them."""
        return " ".join(self.tokens[i] for i in ids)

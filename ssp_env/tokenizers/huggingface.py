"""Any tokenizer of the `transformers` library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ssp_env.errors import MissingExtra, ModelError, TokenizerError
from ssp_env.tokenizers.base import byte_level_alphabet, encodable
from ssp_env.tokenizers.joining import Joiner, Parts, for_data

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""A byte in a vocabulary with byte fallback."""
_MARKUP = re.compile(r"<.+>")
"""Added tokens that mean something to a model even if nobody declared them special, such as
``<tool_call>``."""


class HuggingFaceTokenizer:
    """Wraps a fast tokenizer of `transformers`.

    The bytes of a token are read off what the tokenizer itself decodes, so byte-level, metaspace
    and word-level vocabularies all work."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            what = f"{type(tokenizer).__name__} is a slow tokenizer"
            raise TokenizerError(f"{what}; convert it to a tokenizer.json")
        self.inner = tokenizer
        # Not len(tokenizer): ids may have gaps.
        self.vocab_size = max(tokenizer.get_vocab().values()) + 1
        self.eos_id: int | None = tokenizer.eos_token_id
        self.unknown_id: int | None = tokenizer.unk_token_id

        pad = self.eos_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        if pad is None:
            fix = "name one in its tokenizer_config.json, as pad_token or eos_token"
            raise TokenizerError(f"the tokenizer has no token to pad with; {fix}")
        self.pad_id: int = pad

        # Prompts are encoded by the tokenizer itself, outside text by a copy that knows no markup.
        backend, added = tokenizer.backend_tokenizer, tokenizer.added_tokens_decoder
        self._added = {i: token.content for i, token in added.items()}
        reserved = {i for i, t in added.items() if t.special or _MARKUP.fullmatch(t.content)}
        reserved = (reserved - {self.unknown_id} | {self.eos_id, self.pad_id}) - {None}
        data = for_data(backend, lambda text: _MARKUP.fullmatch(text) is not None)
        question_mark = data.encode("?", add_special_tokens=False).ids
        stand_in = question_mark if self.unknown_id is None else [self.unknown_id]
        self._joiner = Joiner(self._encoding, backend, data, reserved, self._added, stand_in)
        self.pieces: Sequence[bytes] = self._read_pieces()
        self.chat_frame()  # refuses a template that cannot be used

    @classmethod
    def load(cls, directory: str | Path) -> HuggingFaceTokenizer:
        """Loads the tokenizer of a model directory, offline."""
        files = [f for f in Path(directory).glob("tokenizer*.json") if f.is_file()]
        if not files:
            raise ModelError(f"{directory} holds no tokenizer (tokenizer.json is missing)")
        # When its files were written, so that others are not taken for them.
        return cls._load(Path(directory), max(f.stat().st_mtime_ns for f in files))

    @classmethod
    @lru_cache(maxsize=8)
    def _load(cls, path: Path, written: int) -> HuggingFaceTokenizer:
        """A run loads its tokenizer a dozen times; reading 150,000 tokens off takes seconds."""
        try:
            # Imported here, and after a look at the files: it takes seconds.
            from transformers import AutoTokenizer
        except ImportError as error:
            raise MissingExtra("a tokenizer of a model directory", "train") from error

        try:
            inner = AutoTokenizer.from_pretrained(path, local_files_only=True)
        except Exception as error:  # the Rust library raises bare ones
            raise ModelError(f"the tokenizer of {path} cannot be loaded: {error}") from error
        return cls(inner)

    def encode(self, text: str) -> list[int]:
        """Ids of text that we wrote; special tokens in it are recognised, none is added."""
        return list(self.inner.encode(encodable(text), add_special_tokens=False))

    def encode_data(self, text: str) -> list[int]:
        """Ids of text from outside; special tokens in it are spelled out as plain text."""
        return self._joiner.data(text)

    def encode_parts(self, parts: Parts, continues: bool = False) -> list[int]:
        """Ids of one text; see :func:`ssp_env.tokenizers.base.encode_parts`."""
        return self._joiner.join(parts, continues)

    def first_tokens(self, text: str, limit: int) -> str:
        """The beginning of a text from outside, of this many tokens at most."""
        return self._joiner.first(text, limit)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included; the text that :meth:`encode` was given."""
        if not self._joiner.divides:
            return self._decode(ids)

        # A space that the tokenizer puts behind an added token is none of the text's.
        texts, start = list[str](), 0
        for place, token in enumerate([*ids, None]):
            if token is None or token in self._added:
                texts.append(self._decode(ids[start:place]) if start < place else "")
                texts.append("" if token is None else self._added[token])
                start = place + 1
        return "".join(texts)

    def _decode(self, ids: Sequence[int]) -> str:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(self.inner.decode(list(ids), **options))

    def _encoding(self, text: str) -> Any:
        """The Rust library's encoding of a text that we wrote."""
        backend = self.inner.backend_tokenizer
        # Whoever shares the tokenizer may have had it cut and fill up texts.
        backend.no_truncation()
        backend.no_padding()
        return backend.encode(text, add_special_tokens=False)

    def chat_frame(self, roles: Sequence[str] = ("user",)) -> tuple[str, ...]:
        """Texts of the chat template before, between and after messages of these roles, with the
        beginning of the reply at the end.

        Without a template, each message is a line of its own, behind the begin-of-sequence token if
        the tokenizer starts texts with one."""
        if not getattr(self.inner, "chat_template", None):
            bos = self.inner.bos_token
            begins = bos is not None and self.inner.encode("a")[:1] == [self.inner.bos_token_id]
            return (bos if begins else "", *["\n"] * (len(roles) - 1), "")

        # Loaded with `transformers`, of which this tokenizer is one.
        from jinja2 import TemplateError

        messages = [{"role": role, "content": f"SSP0{i}TEXT"} for i, role in enumerate(roles)]
        fix = "take another prompt set, or a tokenizer_config.json with another template"
        try:
            # Some templates insert today's date; this is the one that they fall back on.
            text = self.inner.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, date_string="26 Jul 2024"
            )
        except TemplateError as error:
            what = f"the chat template does not take messages by {', '.join(roles)}"
            raise TokenizerError(f"{what} ({error}); {fix}") from error

        parts = re.split(r"SSP0(\d+)TEXT", str(text))
        for i, role in enumerate(roles):
            if parts[1::2].count(str(i)) != 1:
                raise TokenizerError(f"the chat template leaves out the {role} message; {fix}")
        return tuple(parts[0::2])

    def _read_pieces(self) -> tuple[bytes, ...]:
        backend = self.inner.backend_tokenizer

        byte_level = type(backend.decoder).__name__ == "ByteLevel"
        byte_fallback = getattr(backend.model, "byte_fallback", False)
        decoder = byte_level_alphabet()

        added = self.inner.added_tokens_decoder
        silent = {self.eos_id, self.pad_id}
        tokens = self.inner.convert_ids_to_tokens(list(range(self.vocab_size)))

        # A token is read off behind another one, since decoders treat the beginning of a text
        # differently.
        anchor_ids = backend.encode("a", add_special_tokens=False).ids or [len(tokens) - 1]
        anchor = self.inner.decode(anchor_ids, clean_up_tokenization_spaces=False)

        pieces = []
        for i, token in enumerate(tokens):
            if token is None or i in silent:
                pieces.append(b"")
            elif i in added and i != self.inner.unk_token_id:
                pieces.append(added[i].content.encode())
            elif byte_level and all(char in decoder for char in token):
                pieces.append(bytes(decoder[char] for char in token))
            elif byte_fallback and (byte := _BYTE.fullmatch(token)):
                pieces.append(bytes.fromhex(byte[1]))
            else:
                text = self.inner.decode([*anchor_ids, i], clean_up_tokenization_spaces=False)
                pieces.append(text.removeprefix(anchor).encode())
        return tuple(pieces)

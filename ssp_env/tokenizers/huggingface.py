"""Any tokenizer of the `transformers` library."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ssp_env.errors import MissingExtra, ModelError, TokenizerError

_SENTINEL = "SSP0USER0TEXT0"


class HuggingFaceTokenizer:
    """Wraps a fast tokenizer that was loaded, or that lies in a model directory.

    The bytes of a token are read off what the tokenizer itself decodes, so byte-level, metaspace and
    word-level vocabularies all serve.
    """

    def __init__(self, tokenizer: Any) -> None:
        """
        Args:
            tokenizer: a ``PreTrainedTokenizerFast``.

        Raises:
            TokenizerError: a slow tokenizer, or one without any id to pad with.
        """
        if not getattr(tokenizer, "is_fast", False):
            raise TokenizerError(f"{type(tokenizer).__name__} is a slow tokenizer; convert it to a tokenizer.json")
        self.inner = tokenizer
        self.vocab_size = len(tokenizer)
        self.eos_id: int | None = tokenizer.eos_token_id
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        if pad is None:
            raise TokenizerError("the tokenizer has neither a pad nor an end-of-sequence token; set one in its config")
        self.pad_id: int = pad
        self._data_backend = copy.deepcopy(tokenizer.backend_tokenizer)
        self._data_backend.encode_special_tokens = True
        self.pieces: Sequence[bytes] = self._read_pieces()

    @classmethod
    def load(cls, directory: str | Path) -> HuggingFaceTokenizer:
        """Loads the tokenizer of a model directory, offline.

        Raises:
            ModelError: the directory holds no tokenizer.
            MissingExtra: `transformers` is not installed.
        """
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise MissingExtra("a tokenizer of a model directory", "pip install 'ssp-env[train]'") from error
        path = Path(directory)
        if not (path / "tokenizer.json").is_file() and not (path / "tokenizer_config.json").is_file():
            raise ModelError(f"{path} holds no tokenizer (tokenizer.json is missing)")
        try:
            return cls(AutoTokenizer.from_pretrained(path, local_files_only=True))
        except (OSError, ValueError) as error:
            raise ModelError(f"the tokenizer of {path} cannot be loaded: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Ids of text that we wrote; special tokens in it are recognised, none is added."""
        return list(self.inner.encode(text, add_special_tokens=False))

    def encode_data(self, text: str) -> list[int]:
        """Ids of text from outside; special tokens in it are spelled out as plain text."""
        return list(self._data_backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included."""
        return str(self.inner.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def chat_frame(self) -> tuple[str, str]:
        """What the chat template puts before and after a user's message; empty without a template."""
        if not getattr(self.inner, "chat_template", None):
            return "", ""
        messages = [{"role": "user", "content": _SENTINEL}]
        text = self.inner.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        before, _, after = text.partition(_SENTINEL)
        return before, after

    def _read_pieces(self) -> tuple[bytes, ...]:
        backend = self.inner.backend_tokenizer
        byte_level = type(backend.decoder).__name__ == "ByteLevel"
        decoder = {char: byte for byte, char in _byte_level_alphabet().items()}
        added = self.inner.added_tokens_decoder
        silent = {self.eos_id, self.pad_id}
        anchor_ids = backend.encode("a", add_special_tokens=False).ids
        anchor = self.inner.decode(anchor_ids, clean_up_tokenization_spaces=False)
        pieces = []
        for i, token in enumerate(self.inner.convert_ids_to_tokens(list(range(self.vocab_size)))):
            if token is None or i in silent:
                pieces.append(b"")
            elif i in added:
                pieces.append(added[i].content.encode())
            elif byte_level:
                pieces.append(bytes(decoder[char] for char in token))
            else:
                text = self.inner.decode([*anchor_ids, i], clean_up_tokenization_spaces=False)
                pieces.append(text.removeprefix(anchor).encode())
        return tuple(pieces)


def _byte_level_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(printable))
    return table

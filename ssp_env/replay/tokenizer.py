"""Which tokenizer a game was played with, and how to come by it again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ssp_env.errors import ConfigError, DataError, TokenizerError
from ssp_env.tokenizers import (
    BPETokenizer,
    ByteTokenizer,
    HuggingFaceTokenizer,
    Tokenizer,
    WordTokenizer,
)

_SHIPPED = ("bytes", "bpe", "words")
"""Kinds that a document describes in full."""


@dataclass(frozen=True)
class SavedTokenizer:
    """A tokenizer by name, by its vocabulary, or by the digests of its files."""

    kind: str
    """``bytes``, ``bpe``, ``words``, ``transformers``, or the class of one that is code of the
    user's own."""
    vocab_size: int
    pieces_sha256: str
    """Over the bytes behind every id, and the end and padding ids."""
    words: tuple[str, ...] = ()
    """Vocabulary of ``words``."""
    tags: tuple[str, ...] = ()
    """Tags that are single tokens of ``words``."""
    directory: str | None = None
    """Where a ``transformers`` tokenizer lay."""
    file_sha256: str | None = None
    """Of the ``tokenizer.json`` in that directory."""
    spec_sha256: str | None = None
    """Of the same as it was loaded: it identifies a tokenizer that lies in no directory."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> SavedTokenizer:
        """What there is to say about a tokenizer."""
        size, pieces = tokenizer.vocab_size, _digest_of_pieces(tokenizer)
        if type(tokenizer) is ByteTokenizer:
            return cls("bytes", size, pieces)
        if type(tokenizer) is BPETokenizer:
            return cls("bpe", size, pieces)
        if type(tokenizer) is WordTokenizer:
            return cls("words", size, pieces, tokenizer.words, tokenizer.tags)
        if not isinstance(tokenizer, HuggingFaceTokenizer):
            return cls(f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}", size, pieces)

        spec = json.loads(tokenizer.inner.backend_tokenizer.to_str())
        spec["truncation"] = spec["padding"] = None  # encoding a batch changes these
        loaded = _sha256(json.dumps(spec, sort_keys=True).encode())

        name = tokenizer.inner.name_or_path
        file = Path(name) / "tokenizer.json"
        if not name or not file.is_file():
            return cls("transformers", size, pieces, spec_sha256=loaded)

        directory, digest = str(file.parent.resolve()), _sha256(file.read_bytes())
        return cls(
            "transformers",
            size,
            pieces,
            directory=directory,
            file_sha256=digest,
            spec_sha256=loaded,
        )

    def open(self, given: Tokenizer | str | Path | None = None) -> Tokenizer:
        """The tokenizer, ready for use.

        Args:
            given: the tokenizer, or its directory; needed where the document cannot say what it is
                made of.

        Raises:
            ConfigError: ``given`` is another one, or it is needed and missing.
            DataError: the vocabulary in the document is not the one that it was saved with.
        """
        if given is None:
            return self._found()
        tokenizer = HuggingFaceTokenizer.load(given) if isinstance(given, str | Path) else given
        if not self._is(tokenizer):
            shown = str(given) if isinstance(given, str | Path) else type(given).__name__
            raise ConfigError(
                "tokenizer", shown, f"the game was played with another one: {self._description()}"
            )
        return tokenizer

    def fault(self) -> tuple[str, str] | None:
        """A field and what is wrong with it, where the vocabulary in the document does not give its
        own digest."""
        return _fault(self) if self.kind in _SHIPPED else None

    def _found(self) -> Tokenizer:
        match self.kind:
            case "bytes" | "bpe" | "words":
                if (fault := self.fault()) is not None:
                    raise DataError("saved game", f"field 'tokenizer.{fault[0]}' {fault[1]}")
                return _made(self)
            case "transformers" if self.directory is not None:
                file = Path(self.directory) / "tokenizer.json"
                if file.is_file():
                    return _loaded(self, self.directory, _sha256(file.read_bytes()))
        raise ConfigError(
            "tokenizer", None, f"give the one that the game was played with: {self._description()}"
        )

    def _is(self, tokenizer: Tokenizer) -> bool:
        other = SavedTokenizer.of(tokenizer)
        if any(
            getattr(self, name) != getattr(other, name)
            for name in ("kind", "vocab_size", "pieces_sha256", "words")
        ):
            return False
        same_file = self.file_sha256 is not None and self.file_sha256 == other.file_sha256
        return same_file or self.spec_sha256 == other.spec_sha256

    def _description(self) -> str:
        if self.kind != "transformers":
            return f"{self.kind}, {self.vocab_size} tokens"
        if self.file_sha256 is None:
            return f"one of transformers with {self.vocab_size} tokens"
        return f"{self.directory}, whose tokenizer.json has the SHA-256 {self.file_sha256}"


@lru_cache(maxsize=4)
def _made(saved: SavedTokenizer) -> Tokenizer:
    """Kept, since the games of a batch share one."""
    match saved.kind:
        case "bytes":
            return ByteTokenizer()
        case "bpe":
            return BPETokenizer()
    return WordTokenizer(saved.words, saved.tags)


@lru_cache(maxsize=4)
def _fault(saved: SavedTokenizer) -> tuple[str, str] | None:
    try:
        made = SavedTokenizer.of(_made(saved))
    except TokenizerError as error:
        return "words", f"is not a vocabulary: {error}"
    if made.vocab_size != saved.vocab_size:
        return (
            "vocab_size",
            f"is {saved.vocab_size}, but the tokenizer {saved.kind!r} has {made.vocab_size} tokens",
        )
    if made.pieces_sha256 == saved.pieces_sha256:
        return None
    if saved.kind == "bytes":
        return "pieces_sha256", "is not the digest of bytes: the document was altered"
    if saved.kind == "bpe":
        return "pieces_sha256", "is not that of this version's packaged tokenizer"
    return (
        "words",
        "(or 'tokenizer.tags') does not give the digest 'tokenizer.pieces_sha256': the document "
        "was altered",
    )


@lru_cache(maxsize=4)
def _loaded(saved: SavedTokenizer, directory: str, file_sha256: str) -> Tokenizer:
    """Kept as well, as long as the file has this digest."""
    return saved.open(directory)


def _digest_of_pieces(tokenizer: Tokenizer) -> str:
    lengths = json.dumps([tokenizer.eos_id, tokenizer.pad_id, *map(len, tokenizer.pieces)])
    return _sha256(lengths.encode() + b"".join(tokenizer.pieces))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

"""The rules that the games of a file were played by, in one header line: settings, names of parts,
prompts, tokenizer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.game import PROPOSER_REWARDS
from ssp_env.game.record import LINE
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import (
    BPETokenizer,
    ByteTokenizer,
    HuggingFaceTokenizer,
    Tokenizer,
    WordTokenizer,
)
from ssp_env.version import __version__

FORMAT = 6
"""Version of the format. It goes up whenever a field comes, goes or changes its meaning."""
_KINDS = {
    ByteTokenizer: "bytes",
    BPETokenizer: "bpe",
    WordTokenizer: "words",
    HuggingFaceTokenizer: "transformers",
}


@dataclass(frozen=True)
class SavedTokenizer:
    """A tokenizer by name, by its vocabulary, or by its directory."""

    kind: str
    """``bytes``, ``bpe``, ``words``, ``transformers``, or the class of a tokenizer of your own."""
    vocab_size: int
    sha256: str
    """Over the bytes behind every id, and the end and padding ids."""
    words: tuple[str, ...] = ()
    """Vocabulary of ``words``."""
    tags: tuple[str, ...] = ()
    """Tags that are single tokens of ``words``."""
    directory: str | None = None
    """Directory of a ``transformers`` tokenizer."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> SavedTokenizer:
        """The description of a tokenizer."""
        kind = _KINDS.get(type(tokenizer), dotted(tokenizer))
        kept: Any = tokenizer
        size, digest = tokenizer.vocab_size, _digest(kept)
        if kind == "words":
            assert isinstance(tokenizer, WordTokenizer)
            return cls(kind, size, digest, tokenizer.words, tokenizer.tags)
        if isinstance(tokenizer, HuggingFaceTokenizer) and (name := tokenizer.inner.name_or_path):
            return cls(kind, size, digest, directory=str(Path(name).resolve()))
        return cls(kind, size, digest)

    def open(self, given: Tokenizer | str | Path | None = None) -> Tokenizer:
        """The tokenizer, ready for use.

        Args:
            given: the tokenizer, or its directory; needed where the header cannot say what it is
                made of.

        Raises:
            ConfigError: ``given`` is another one, or it is needed and missing, or the vocabulary in
                the header does not have its digest.
        """
        own = f"{self.kind}, {self.vocab_size} tokens"
        own += f", from {self.directory}" if self.directory else ""
        if given is None and self.directory and Path(self.directory, "tokenizer.json").is_file():
            given = self.directory

        if isinstance(given, str | Path):
            tokenizer: Tokenizer = HuggingFaceTokenizer.load(given)
        elif given is not None:
            tokenizer = given
        elif self.kind in ("bytes", "bpe", "words"):
            tokenizer = _packaged(self.kind, self.words, self.tags)
        else:
            fix = f"give the one that the game was played with: {own}"
            raise ConfigError("tokenizer", None, fix)

        other = SavedTokenizer.of(tokenizer)
        if (self.kind, self.sha256) != (other.kind, other.sha256):
            fix = f"the game was played with another one: {own}"
            raise ConfigError("tokenizer", given or other.kind, fix)
        return tokenizer


# Kept, since the games of a file share a tokenizer.
@lru_cache(maxsize=4)
def _packaged(kind: str, words: tuple[str, ...], tags: tuple[str, ...]) -> Tokenizer:
    match kind:
        case "bytes":
            return ByteTokenizer()
        case "bpe":
            return BPETokenizer()
    return WordTokenizer(words, tags)


@lru_cache(maxsize=4)
def _digest(tokenizer: Any) -> str:
    lengths = json.dumps([tokenizer.eos_id, tokenizer.pad_id, *map(len, tokenizer.pieces)])
    return hashlib.sha256(lengths.encode() + b"".join(tokenizer.pieces)).hexdigest()


@dataclass(frozen=True)
class SavedParts:
    """Names of the code that took part. Its results are saved; the code is not."""

    world: str
    retriever: str
    judge: str
    verifier: str | None
    """``None``: the policy itself."""
    noise: str
    filters: dict[str, str]
    """Function by reason code, in order."""
    proposer_reward: str
    """A name of the config, or a function of your own."""
    solver_reward: str


@dataclass(frozen=True)
class SavedRules:
    """The header line of a file: it holds for all games that follow."""

    __pydantic_config__ = LINE

    format: int
    package: str
    """Version of the package that wrote the games."""
    tokens: bool
    """True if the games hold token ids and log-probabilities, without which none is replayed."""
    config: GameConfig
    parts: SavedParts
    prompts: dict[str, str]
    """The prompt set itself, so that it need not lie anywhere when a game is replayed."""
    frame: tuple[str, str]
    """Text of the chat template around a prompt."""
    tokenizer: SavedTokenizer
    fingerprint: str | None
    """Hash of all that a result depends on (:mod:`ssp_env.game.rules`), where it is known."""

    @classmethod
    def of(cls, rules: Rules) -> SavedRules:
        """The header for games that are played by some rules."""
        return cls(
            format=FORMAT,
            package=__version__,
            tokens=True,
            config=rules.config,
            parts=SavedParts(
                world=rules.world.name,
                retriever=dotted(rules.retriever),
                judge=dotted(rules.judge),
                verifier=None if rules.verifier is None else dotted(rules.verifier),
                noise=dotted(rules.noise),
                filters={code: dotted(rule) for code, rule in rules.filters.items()},
                proposer_reward=name_of(rules.proposer_reward),
                solver_reward=dotted(rules.solver_reward),
            ),
            prompts=dict(rules.prompts.texts),
            frame=rules.prompts.frame,
            tokenizer=SavedTokenizer.of(rules.tokenizer),
            fingerprint=None,
        )


def name_of(part: Any) -> str:
    """The name that the config has for a proposer reward; the dotted one of anything else."""
    shipped = [name for name, reward in PROPOSER_REWARDS.items() if reward is part]
    return shipped[0] if shipped else dotted(part)


def dotted(part: Any) -> str:
    """Module and name of a function, or of the class of an object."""
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{named.__qualname__}"

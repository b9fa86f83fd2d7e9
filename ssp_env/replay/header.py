"""The rules that the games of a file were played by, in one header line: settings, names of parts,
prompts, tokenizer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, TokenizerError
from ssp_env.game.config import GameConfig
from ssp_env.game.filters import FILTERS, Filter
from ssp_env.game.legal import Grammar
from ssp_env.game.record import LINE
from ssp_env.game.rewards import PROPOSER_REWARDS, ProposerReward, SolverReward, right_answer
from ssp_env.game.rules import Rules
from ssp_env.judge.base import Judge
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


@dataclass(frozen=True)
class SavedTokenizer:
    """A tokenizer by name, by its vocabulary, or by the digests of its files."""

    kind: str
    """``bytes``, ``bpe``, ``words``, ``transformers``, or the class of a tokenizer of your own."""
    vocab_size: int
    pieces_sha256: str
    """Over the bytes behind every id, and the end and padding ids."""
    words: tuple[str, ...] = ()
    """Vocabulary of ``words``."""
    tags: tuple[str, ...] = ()
    """Tags that are single tokens of ``words``."""
    directory: str | None = None
    """Directory of a ``transformers`` tokenizer."""
    file_sha256: str | None = None
    """Of the ``tokenizer.json`` in that directory."""
    spec_sha256: str | None = None
    """Of the same as it was loaded: it identifies a tokenizer that lies in no directory."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> SavedTokenizer:
        """The description of a tokenizer."""
        lengths = json.dumps([tokenizer.eos_id, tokenizer.pad_id, *map(len, tokenizer.pieces)])
        pieces = _sha256(lengths.encode() + b"".join(tokenizer.pieces))
        size = tokenizer.vocab_size

        if type(tokenizer) is ByteTokenizer:
            return cls("bytes", size, pieces)
        if type(tokenizer) is BPETokenizer:
            return cls("bpe", size, pieces)
        if type(tokenizer) is WordTokenizer:
            return cls("words", size, pieces, tokenizer.words, tokenizer.tags)
        if not isinstance(tokenizer, HuggingFaceTokenizer):
            return cls(_dotted(tokenizer), size, pieces)

        spec = json.loads(tokenizer.inner.backend_tokenizer.to_str())
        spec["truncation"] = spec["padding"] = None  # encoding a batch changes these
        loaded = _sha256(json.dumps(spec, sort_keys=True).encode())
        name = tokenizer.inner.name_or_path
        file = Path(name) / "tokenizer.json"
        if not name or not file.is_file():
            return cls("transformers", size, pieces, spec_sha256=loaded)
        folder, digest = str(file.parent.resolve()), _sha256(file.read_bytes())
        return cls("transformers", size, pieces, (), (), folder, digest, loaded)

    def open(self, given: Tokenizer | str | Path | None = None) -> Tokenizer:
        """The tokenizer, ready for use.

        Args:
            given: the tokenizer, or its directory; needed where the header cannot say what it is
                made of.

        Raises:
            ConfigError: ``given`` is another one, or it is needed and missing, or the vocabulary in
                the header does not have its digest.
        """
        if given is None and self.kind in ("bytes", "bpe", "words"):
            return _made(self)
        directory = self.directory if given is None else given
        if isinstance(directory, str | Path):
            file = Path(directory, "tokenizer.json")
            if file.is_file():
                return _loaded(self, str(directory), _sha256(file.read_bytes()))
        if given is None:
            fix = f"give the one that the game was played with: {self._description()}"
            raise ConfigError("tokenizer", None, fix)

        return self._checked(given)

    def _checked(self, given: Tokenizer | str | Path) -> Tokenizer:
        tokenizer = HuggingFaceTokenizer.load(given) if isinstance(given, str | Path) else given
        other = SavedTokenizer.of(tokenizer)
        same_file = self.file_sha256 is not None and self.file_sha256 == other.file_sha256
        if (
            (self.kind, self.vocab_size, self.pieces_sha256, self.words)
            != (other.kind, other.vocab_size, other.pieces_sha256, other.words)
        ) or not (same_file or self.spec_sha256 == other.spec_sha256):
            shown = str(given) if isinstance(given, str | Path) else type(given).__name__
            fix = f"the game was played with another one: {self._description()}"
            raise ConfigError("tokenizer", shown, fix)
        return tokenizer

    def _description(self) -> str:
        if self.kind != "transformers":
            return f"{self.kind}, {self.vocab_size} tokens"
        if self.file_sha256 is None:
            return f"one of transformers with {self.vocab_size} tokens"
        return f"{self.directory}, whose tokenizer.json has the SHA-256 {self.file_sha256}"


@lru_cache(maxsize=4)
def _made(saved: SavedTokenizer) -> Tokenizer:
    """A packaged tokenizer; kept, since the games of a file share one."""
    made: Tokenizer
    try:
        match saved.kind:
            case "bytes":
                made = ByteTokenizer()
            case "bpe":
                made = BPETokenizer()
            case _:
                made = WordTokenizer(saved.words, saved.tags)
    except TokenizerError as error:
        raise ConfigError("tokenizer.words", "...", f"not a vocabulary: {error}") from None

    if SavedTokenizer.of(made) != saved:
        fix = "the vocabulary in the header does not have its digest: the file was altered, or "
        fix += "another version of ssp-env wrote it"
        raise ConfigError("tokenizer.pieces_sha256", saved.pieces_sha256, fix)
    return made


@lru_cache(maxsize=4)
def _loaded(saved: SavedTokenizer, directory: str, file_sha256: str) -> Tokenizer:
    """A tokenizer of a directory; kept as long as its file has this digest."""
    return saved._checked(directory)


@dataclass(frozen=True)
class SavedPrompts:
    """The prompt set itself, so that it need not lie anywhere when a game is replayed."""

    texts: dict[str, str]
    frame: tuple[str, str]


@dataclass(frozen=True)
class SavedParts:
    """Names of the code that took part. Its results are saved; the code is not."""

    world: str
    grammar: bool
    """True if the world's grammar takes part in masks of legal moves."""
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

    @classmethod
    def of(cls, rules: Rules) -> SavedParts:
        """The parts of some rules."""
        return cls(
            world=rules.world.name,
            grammar=isinstance(rules.world, Grammar),
            retriever=_dotted(rules.retriever),
            verifier=None if rules.verifier is None else _dotted(rules.verifier),
            noise=_dotted(rules.noise),
            filters={code: _dotted(rule) for code, rule in rules.filters.items()},
            **cls.scorers(rules.judge, rules.proposer_reward, rules.solver_reward),
        )

    @staticmethod
    def scorers(
        judge: Judge | None,
        proposer_reward: ProposerReward | None,
        solver_reward: SolverReward | None,
    ) -> dict[str, Any]:
        """The names of those that are given, by field."""
        given = {"judge": judge, "proposer_reward": proposer_reward, "solver_reward": solver_reward}
        shipped = {id(reward): name for name, reward in PROPOSER_REWARDS.items()}
        return {
            field: shipped.get(id(part)) or _dotted(part)
            for field, part in given.items()
            if part is not None
        }

    def shipped_filter(self, code: str) -> Filter | None:
        """The package's own filter of this name; ``None`` if it is code of the user's own."""
        shipped = FILTERS.get(code)
        return shipped if shipped is not None and _dotted(shipped) == self.filters[code] else None

    @property
    def pays_solver_itself(self) -> bool:
        """True if the solver was paid by a function of the user's own."""
        return self.solver_reward != _dotted(right_answer)

    @property
    def pays_proposer_itself(self) -> bool:
        """True if the proposer was paid by a function of the user's own."""
        return self.proposer_reward not in PROPOSER_REWARDS


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
    prompts: SavedPrompts
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
            parts=SavedParts.of(rules),
            prompts=SavedPrompts(dict(rules.prompts.texts), rules.prompts.frame),
            tokenizer=SavedTokenizer.of(rules.tokenizer),
            fingerprint=None,
        )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _dotted(part: Any) -> str:
    """Module and name of a function, or of the class of an object."""
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{named.__qualname__}"

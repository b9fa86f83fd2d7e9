"""What the games of a file were played by: rules, prompts, tokenizer. One line for many games."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ssp_env.game.config import GameConfig
from ssp_env.game.filters import FILTERS, Filter
from ssp_env.game.legal import Grammar
from ssp_env.game.rewards import PROPOSER_REWARDS, ProposerReward, SolverReward, right_answer
from ssp_env.game.rules import Rules
from ssp_env.judge.base import Judge
from ssp_env.replay.codec import Reader
from ssp_env.replay.tokenizer import SavedTokenizer
from ssp_env.version import __version__

FORMAT = 3
"""Version of the format. It goes up whenever a field comes, goes or changes its meaning."""


@dataclass(frozen=True)
class SavedPrompts:
    """The prompt set itself, so that it need not lie anywhere when a game is replayed."""

    texts: dict[str, str]
    frame: tuple[str, str]


@dataclass(frozen=True)
class SavedParts:
    """Names of the code that took part. What it said is saved; the code is not."""

    world: str
    grammar: bool
    """Whether the world's grammar takes part in masks of legal moves."""
    retriever: str
    judge: str
    verifier: str | None
    """``None``: the policy itself."""
    noise: str
    filters: dict[str, str]
    """Function by reason code, in order."""
    proposer_reward: str
    """A name of the config, or a function of the user's own."""
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
        names: dict[str, Any] = {
            field: _dotted(part) for field, part in given.items() if part is not None
        }

        for name, shipped in PROPOSER_REWARDS.items():
            if shipped is proposer_reward:
                names["proposer_reward"] = name
        return names

    def shipped_filter(self, code: str) -> Filter | None:
        """The package's own filter of this name; ``None`` if it is code of the user's own."""
        shipped = FILTERS.get(code)
        return shipped if shipped is not None and _dotted(shipped) == self.filters[code] else None

    @property
    def pays_solver_itself(self) -> bool:
        """Whether the solver was paid by a function of the user's own."""
        return self.solver_reward != _dotted(right_answer)

    @property
    def pays_proposer_itself(self) -> bool:
        """Whether the proposer was paid by a function of the user's own."""
        return self.proposer_reward not in PROPOSER_REWARDS


@dataclass(frozen=True)
class SavedRules:
    """What games were played by: the header line of a file, and of all games that follow it."""

    format: int
    package: str
    """Version of the package that wrote the games."""
    tokens: bool
    """Whether the games hold token ids and log-probabilities, without which none is replayed."""
    config: GameConfig
    parts: SavedParts
    prompts: SavedPrompts
    tokenizer: SavedTokenizer
    fingerprint: str | None
    """Hash of all that a result depends on (:mod:`ssp_env.game.fingerprint`), where it is known."""

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


def read_header(row: dict[str, Any], reader: Reader) -> SavedRules:
    """A header line.

    Raises:
        DataError: another version's, or a field that is missing or wrong.
    """
    version = row["format"]
    if type(version) is not int or version < 1:
        raise reader.wrong("format", f"is {version!r}, not a version number")
    if version > FORMAT:
        what = f"is {version}, but this version of ssp-env reads format {FORMAT}: upgrade it"
        raise reader.wrong("format", what)
    if version < FORMAT:
        what = f"is {version}, which an older version of ssp-env wrote and reads"
        raise reader.wrong("format", what)

    header = reader.read(SavedRules, row)
    if (fault := header.tokenizer.fault()) is not None:
        raise reader.wrong(f"tokenizer.{fault[0]}", fault[1])
    return header


def _dotted(part: Any) -> str:
    """Where a function, or the class of an object, is defined."""
    named = part if hasattr(part, "__qualname__") else type(part)
    return f"{named.__module__}.{named.__qualname__}"

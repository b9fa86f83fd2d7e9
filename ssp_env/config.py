"""Settings of the game. Frozen, validated when made, a docstring under each field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from ssp_env.errors import ConfigError, nearest
from ssp_env.game.protocol import Tags

VERIFIERS = ("auto", "world", "policy", "openai", "none")
DEFAULT_FILTERS = ("empty_question", "no_search", "short_question", "long_question", "spoiler")

C = TypeVar("C")


@dataclass(frozen=True)
class GameConfig:
    """Rules of one game. The defaults are the paper's (its table of hyper-parameters)."""

    attempts: int = 5
    """Solver trajectories a question (the paper's n)."""
    proposals: int = 1
    """Proposer trajectories an answer; more than 1 makes groups, as GRPO for the proposer needs them."""
    max_searches: int = 10
    """Search calls that a trajectory may make; one more ends it."""
    top_k: int = 3
    """Documents a search returns."""
    max_prompt_tokens: int = 4096
    """Longest prompt; a game that needs a longer one is invalid."""
    max_response_tokens: int = 8192
    """Most tokens after the prompt, what was retrieved included."""
    max_document_tokens: int = 512
    """A longer passage is cut to this many tokens before a policy sees it."""
    max_query_tokens: int = 128
    """A search call with a longer query ends its trajectory."""
    min_question_chars: int = 20
    """A shorter question is invalid."""
    max_question_chars: int = 1000
    """A longer question is invalid."""
    asked_searches: tuple[int, int] = (1, 3)
    """The proposer's prompt names a number of searches drawn from this range (both ends included); not enforced."""
    filters: tuple[str, ...] = DEFAULT_FILTERS
    """Rules that a proposed question must pass, by name, in order; see :mod:`ssp_env.game.filters`."""
    verifier: str = "policy"
    """Who checks that a question is answerable from documents: ``policy`` (Algorithm 1), ``world`` (a symbolic
    reader, where the world has one), ``openai`` (a model behind an API), ``none``, or ``auto``: ``world`` where it can
    read, else ``policy``."""
    closed_book: bool = False
    """Also reject a question that the solver answers from memory, in one try with no documents at all."""
    noise_documents: int = 4
    """Documents mixed in for verification that this game's proposer did not retrieve."""
    proposer_reward: str = "1-p"
    """Proposer's reward from the mean solve rate p: ``1-p`` (the paper's) or ``4p(1-p)``."""
    invalid_reward: float = 0.0
    """Proposer's reward for an invalid question. The paper shows that a negative one can collapse the game."""
    tags: Tags = field(default_factory=Tags)
    """Names of the protocol's tags."""
    prompts: str = "plain"
    """Prompt set: ``plain``, ``mini``, or a directory of your own (a ``Path`` is taken as well, and kept as text)."""

    def __post_init__(self) -> None:
        from ssp_env.game.filters import FILTERS
        from ssp_env.game.rewards import PROPOSER_REWARDS

        typed(self, "game")
        at_least(self, "game", 1, "attempts", "proposals", "max_searches", "top_k", "max_prompt_tokens")
        at_least(self, "game", 1, "max_response_tokens", "max_document_tokens", "max_query_tokens")
        at_least(self, "game", 0, "min_question_chars", "noise_documents")
        if self.max_question_chars < self.min_question_chars:
            fix = f"must not be below min_question_chars = {self.min_question_chars}"
            raise ConfigError("game.max_question_chars", self.max_question_chars, fix)
        asked = self.asked_searches
        if len(asked) != 2 or not 1 <= asked[0] <= asked[1] <= self.max_searches:
            fix = f"give (low, high) with 1 <= low <= high <= max_searches = {self.max_searches}"
            raise ConfigError("game.asked_searches", asked, fix)
        if not math.isfinite(self.invalid_reward):
            raise ConfigError("game.invalid_reward", self.invalid_reward, "give a finite number")
        for name in self.filters:
            one_of("game.filters", name, FILTERS)
        one_of("game.verifier", self.verifier, VERIFIERS)
        one_of("game.proposer_reward", self.proposer_reward, PROPOSER_REWARDS)


@dataclass(frozen=True)
class ViewConfig:
    """What an agent sees of the trajectory that it writes. The defaults show all of it."""

    window: int | None = None
    """Show the last this many tokens, the latest one in the last place; the whole trajectory from its beginning, when
    ``None``."""
    one_hot: bool = False
    """Show every token of the window as a one-hot vector, for networks that take floats; needs a ``window``."""
    legal_moves: bool = False
    """Mask every token that no well-formed turn could go on with. Needs a tokenizer with one token a tag."""

    def __post_init__(self) -> None:
        typed(self, "view")
        if self.window is not None:
            at_least(self, "view", 1, "window")
        if self.one_hot and self.window is None:
            raise ConfigError("view.one_hot", True, "set view.window as well: a whole trajectory is too long for it")


def typed(config: Any, prefix: str) -> None:
    """Checks the types of all fields, and turns lists into tuples and whole numbers into floats where they are meant.

    Raises:
        ConfigError: names the field.
    """
    for field_ in fields(config):
        name = field_.name
        object.__setattr__(config, name, of_type(field_.type, getattr(config, name), f"{prefix}.{name}"))


def at_least(config: Any, prefix: str, minimum: float, *names: str) -> None:
    """Checks that numeric fields are not below ``minimum``.

    Raises:
        ConfigError: names the field.
    """
    for name in names:
        # Put this way round, so that NaN fails as well.
        if not getattr(config, name) >= minimum:
            raise ConfigError(f"{prefix}.{name}", getattr(config, name), f"must be at least {minimum}")


def one_of(field_name: str, value: str, known: Any) -> None:
    """Checks that a name is a known one.

    Raises:
        ConfigError: offers the nearest names.
    """
    if value not in known:
        raise ConfigError(field_name, value, nearest(value, known))


def from_mapping(kind: type[C], values: Mapping[str, Any], prefix: str, default: C | None = None) -> C:
    """Makes a config dataclass from plain values, as they come from YAML.

    Args:
        kind: which dataclass.
        values: field name -> value.
        prefix: what errors put before a field's name.
        default: where the other fields come from; the dataclass' own defaults when not given.

    Raises:
        ConfigError: an unknown field (offers the nearest), a value of another type or out of range.
    """
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    ready: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{prefix}.{name}", value, nearest(name, known))
        ready[name] = of_type(known[name].type, value, f"{prefix}.{name}")
    return kind(**ready) if default is None else replace(default, **ready)  # type: ignore[type-var]


def of_type(annotation: Any, value: Any, name: str) -> Any:
    """The value in the very type of an annotation, given as text (``from __future__ import annotations``).

    Raises:
        ConfigError: a value of another type. Annotations other than those of the configs are not looked at.
    """
    text = str(annotation)
    kind = text.removesuffix(" | None")
    if value is None and kind != text:
        return None
    if kind == "Tags" and isinstance(value, dict):
        return from_mapping(Tags, value, name)
    if kind.startswith("tuple[") and isinstance(value, list | tuple):
        item = kind.removeprefix("tuple[").removesuffix("]").split(",")[0]
        return tuple(of_type(item, inner, name) for inner in value)
    if kind == "str" and isinstance(value, Path):
        return str(value)
    # YAML 1.1, which PyYAML reads, takes 1e-6 for text; everybody means a number.
    if kind == "float" and isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
        return float(value)
    expected = _TYPES.get(kind.partition("[")[0])
    if expected is None:
        return value
    if not isinstance(value, expected) or (isinstance(value, bool) and kind != "bool"):
        raise ConfigError(name, value, f"a value of the type {text} is needed, not {type(value).__name__}")
    return _NUMBERS.get(kind, lambda same: same)(value)


_TYPES: dict[str, Any] = {
    "int": (Integral,),
    "float": (Real,),
    "bool": (bool,),
    "str": (str,),
    "str | Path": (str, Path),
    "tuple": (tuple,),
    "Tags": (Tags,),
}
_NUMBERS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float}
"""numpy's numbers, as sweeps draw them, become Python's own."""


MINI_GAME = GameConfig(
    max_searches=4,
    top_k=2,
    max_prompt_tokens=256,
    max_response_tokens=256,
    max_document_tokens=64,
    max_query_tokens=16,
    min_question_chars=10,
    asked_searches=(1, 1),
    verifier="auto",
    prompts="mini",
)
"""Rules for the mini-wiki and its word vocabulary: short budgets, and the world itself as the verifier."""

SMALL_GAME = replace(
    MINI_GAME,
    attempts=1,
    max_searches=1,
    top_k=1,
    max_prompt_tokens=64,
    max_response_tokens=64,
    noise_documents=1,
)
"""Rules for the small world: one search, one attempt, a few tokens."""

SMALL_VIEW = ViewConfig(window=48, one_hot=True, legal_moves=True)
"""What small networks can learn from: one-hot words, and a mask of legal moves."""

"""From plain settings or objects of your own to rules: one way in, for every door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from ssp_env.errors import ConfigError, nearest
from ssp_env.game.config import UNMASKED, GameConfig, ViewConfig, suited
from ssp_env.game.filters import Filter
from ssp_env.game.noise import NoiseSource
from ssp_env.game.protocol import Tags
from ssp_env.game.rewards import ProposerReward, SolverReward
from ssp_env.game.rules import Rules
from ssp_env.judge.base import Judge, Verifier
from ssp_env.search.base import Retriever
from ssp_env.settings import read, read_value
from ssp_env.tokenizers import (
    BPETokenizer,
    ByteTokenizer,
    HuggingFaceTokenizer,
    Tokenizer,
    WordTokenizer,
)
from ssp_env.types import World
from ssp_env.worlds import WORLDS, open_world

C = TypeVar("C", GameConfig, ViewConfig)


class Setup(TypedDict, total=False):
    """What every door takes; all of it is optional.

    Names and mappings are plain data, as a sweep needs them.

    ``docs/settings.md`` has all of this in tables, with the fields of ``game`` and ``view``, and
    the worlds' options."""

    world: World | str
    """Corpus and answers: a world, or the name of one that ships (default ``mini``)."""
    world_options: Mapping[str, Any]
    """Settings of a world that is named."""
    tokenizer: Tokenizer | str | Path
    """A tokenizer; or ``bpe`` (packaged, for any text), ``bytes``, ``words`` (of a world that has a
    vocabulary), or a directory with a ``tokenizer.json``. Words where the world has a vocabulary,
    else ``bpe``, when not given."""
    game: GameConfig | Mapping[str, Any]
    """The rules. A mapping is laid over the world's own defaults; a ``GameConfig`` replaces all of
    them."""
    view: ViewConfig | Mapping[str, Any]
    """What an agent sees; as for ``game``."""
    search: str | Mapping[str, Any]
    """Where searches are answered, as plain data: an index directory, the address of a server that
    speaks Search-R1's protocol, such as ``http://127.0.0.1:8000``, or a mapping of the fields of
    :class:`~ssp_env.search.config.SearchConfig`: ``{"server": {"url": ..., "token_env": ...}}``.
    The world's own retriever (BM25 over its corpus) when not given."""
    retriever: Retriever
    """A retriever of your own, in place of ``search``."""
    judge: Judge
    """The world's own when not given: exact match in generated worlds, else
    :class:`~ssp_env.judge.lenient.LenientJudge`."""
    verifier: Verifier
    """In place of the one that ``game.verifier`` names."""
    filters: Mapping[str, Filter]
    """More rules for a question, by reason code, after those that ``game.filters`` names."""
    noise: NoiseSource
    """In place of the kind that ``game.noise_kind`` names."""
    proposer_reward: ProposerReward
    """In place of the one that ``game.proposer_reward`` names."""
    solver_reward: SolverReward
    """1 for a right answer, 0 otherwise, when not given."""
    rules: Rules
    """Ready rules, in place of all of the above but ``view``."""


@dataclass(frozen=True)
class ResolvedSetup:
    """What a door's settings resolve to: the rules of the game, and what an agent sees of it."""

    rules: Rules
    view: ViewConfig


def set_up(setup: Setup, *own: str) -> ResolvedSetup:
    """Builds and checks everything before any game starts.

    Args:
        setup: what the door was given.
        own: keywords that the door takes itself, to be offered for an unknown one.

    Raises:
        ConfigError: a setting that cannot work, by name and value.
        TokenizerError: a tokenizer that cannot spell the tags.
    """
    for name in setup:
        if name not in Setup.__annotations__:
            hint = nearest(name, [*Setup.__annotations__, *own])
            raise ConfigError(name, setup[name], f"no such setting; {hint}")  # type: ignore[literal-required]

    if "rules" in setup:
        for name in setup.keys() - {"rules", "view"}:
            raise ConfigError(name, setup[name], "the rules are ready already; leave this out")  # type: ignore[literal-required]
        if not isinstance(setup["rules"], Rules):
            raise ConfigError(
                "rules", setup["rules"], "give ready rules, such as env.unwrapped.rules"
            )
        return ResolvedSetup(
            setup["rules"], _config(ViewConfig, setup.get("view"), ViewConfig(), "view")
        )

    world = setup.get("world", "mini")
    if isinstance(world, str):
        options = setup.get("world_options", {})
        if not isinstance(options, Mapping):
            raise ConfigError("world_options", options, "give a mapping of the world's settings")
        world = open_world(world, **options)
    elif setup.get("world_options"):
        raise ConfigError(
            "world_options",
            setup["world_options"],
            "give them to the world itself, or name the world",
        )
    elif not hasattr(world, "corpus"):
        raise ConfigError("world", world, f"give a World, or the name of one: {', '.join(WORLDS)}")

    default_game, default_view = suited(world.name)
    game = _config(GameConfig, setup.get("game"), default_game, "game")
    view = _config(ViewConfig, setup.get("view"), default_view, "view")

    tokenizer = _tokenizer(setup.get("tokenizer"), world, game.tags)
    rules = Rules.build(
        world,
        tokenizer,
        game,
        retriever=_retriever(setup),
        judge=setup.get("judge"),
        verifier=setup.get("verifier"),
        filters=setup.get("filters"),
        noise=setup.get("noise"),
        proposer_reward=setup.get("proposer_reward"),
        solver_reward=setup.get("solver_reward"),
    )

    # The prompts have to be spelled in the world's own words.
    if setup.get("tokenizer", "words") == "words" and isinstance(tokenizer, WordTokenizer):
        _check_prompts(rules, tokenizer, view)
    return ResolvedSetup(rules, view)


def _check_prompts(rules: Rules, tokenizer: WordTokenizer, view: ViewConfig) -> None:
    """
    Raises:
        ConfigError: a prompt with words that the world's vocabulary does not hold.
    """
    strange = rules.prompts.prompt_containing(tokenizer.unknown_id)
    if strange is not None:
        fix = (
            f"the world {rules.world.name!r} has no words for its {strange}.txt; choose "
            f"'mini', or tokenizer='bytes'"
        )
        fix += f" with {UNMASKED}" if view.legal_moves else ""
        note = "a GameConfig is taken whole, while a mapping is laid over the world's own settings"
        raise ConfigError("game.prompts", rules.config.prompts, f"{fix} ({note})")


def _config(kind: type[C], given: C | Mapping[str, Any] | None, default: C, name: str) -> C:
    if given is None:
        return default
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(name, given, f"give a {kind.__name__}, or a mapping of its fields")
    return read(kind, given, name, default=default)


def _retriever(setup: Setup) -> Retriever | None:
    """What was given as ``retriever``, or named by ``search``; ``None``: the world's own.

    Raises:
        ConfigError: both were given, one cannot work, or the retriever is not one.
        DataError: the index directory cannot be used.
    """
    retriever = setup.get("retriever")
    if "search" not in setup:
        if retriever is not None and not isinstance(retriever, Retriever):
            fix = "give a Retriever; an address or an index directory goes into search"
            raise ConfigError("retriever", retriever, fix)
        return retriever

    if retriever is not None:
        raise ConfigError("search", setup["search"], "a retriever is given as well; leave one out")

    # Imported here: it brings httpx along, which a search in process can do without.
    from ssp_env.search.config import SearchConfig, open_search

    return open_search(read_value(SearchConfig, setup["search"], "search"))


def _tokenizer(given: Tokenizer | str | Path | None, world: World, tags: Tags) -> Tokenizer:
    vocabulary = getattr(world, "vocabulary", None)
    if given is None:
        given = "bpe" if vocabulary is None else "words"

    if isinstance(given, Tokenizer):
        return given

    match given:
        case "bpe":
            return BPETokenizer()
        case "bytes":
            return ByteTokenizer()
        case "words":
            if vocabulary is None:
                fix = (
                    f"the world {world.name!r} has no vocabulary; make a WordTokenizer of your "
                    f"own, or choose 'bpe'"
                )
                raise ConfigError("tokenizer", given, fix)
            return WordTokenizer(vocabulary, tags.all())

    if not isinstance(given, str | Path) or not Path(given).is_dir():
        fix = (
            "give a Tokenizer (HuggingFaceTokenizer makes one of a transformers tokenizer), "
            "'bpe', 'bytes', 'words', or "
        )
        fix += "a directory with a tokenizer.json"
        raise ConfigError("tokenizer", given, fix)
    return HuggingFaceTokenizer.load(given)

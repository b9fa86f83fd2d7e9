"""From plain settings or objects of your own to rules: one way in, for every interface."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from ssp_env.errors import ConfigError, named_values, nearest
from ssp_env.game.config import UNMASKED, GameConfig, ViewConfig, world_defaults
from ssp_env.game.prompts import tags_of
from ssp_env.game.rules import Parts, Rules
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


class Setup(Parts, total=False):
    """Keywords of every interface; all of them are optional.

    Names and mappings are plain data, as a sweep needs them."""

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
    """The agents' view; as for ``game``."""
    search: str | Mapping[str, Any]
    """In place of a ``retriever``, as plain data: an index directory, the address of a server that
    speaks Search-R1's protocol, such as ``http://127.0.0.1:8000``, or a mapping of the fields of
    :class:`~ssp_env.search.index.SearchConfig`: ``{"source": ..., "token_env": ...}``."""
    rules: Rules
    """Ready rules, in place of all of the above but ``view``."""


class ResolvedSetup(NamedTuple):
    """Rules of the game, and the agents' view of it."""

    rules: Rules
    view: ViewConfig


_OF_SOME = ("other", "questions", "render_mode", "role")
"""Keywords that some interfaces take beside these, to be offered for an unknown one."""


def set_up(setup: Setup) -> ResolvedSetup:
    """Rules and view from an interface's keywords, with everything checked before any game
    starts."""
    given = cast(dict[str, Any], setup)
    for name in given.keys() - Setup.__annotations__.keys():
        hint = nearest(name, {*Setup.__annotations__, *_OF_SOME} - {name})
        raise ConfigError(name, given[name], f"no such setting here; {hint}")

    if "rules" in setup:
        for name in given.keys() - {"rules", "view"}:
            raise ConfigError(name, given[name], "the rules are ready already; leave this out")
        if not isinstance(setup["rules"], Rules):
            fix = "give Rules, as Rules.build() makes them; settings of the rules are game={...}"
            raise ConfigError("rules", setup["rules"], fix)
        _refuse_frozen(setup["rules"])
        view = _config(ViewConfig, setup.get("view"), ViewConfig())
        return ResolvedSetup(setup["rules"], view)

    fix = "give a mapping of the world's settings, such as {'seed': 1}"
    options = named_values("world_options", setup.get("world_options", {}), fix)
    named = world = setup.get("world", "mini")
    if isinstance(world, str):
        world = open_world(world, **options)
    elif options:
        fix = "give them to the world itself, or name the world"
        raise ConfigError("world_options", options, fix)
    elif not hasattr(world, "corpus"):
        raise ConfigError("world", world, f"give a World, or the name of one: {', '.join(WORLDS)}")

    # A world of yours that has the name of one that ships gets its rules too.
    default_game, default_view = world_defaults(named if isinstance(named, str) else world.name)
    game = _config(GameConfig, setup.get("game"), default_game)
    view = _config(ViewConfig, setup.get("view"), default_view)

    tokenizer = _tokenizer(setup.get("tokenizer"), world, game)
    parts: dict[str, Any] = {name: given.get(name) for name in Parts.__annotations__}
    if "search" in setup:
        if parts["retriever"] is not None:
            fix = "a retriever is given as well; leave one out"
            raise ConfigError("search", setup["search"], fix)
        # Imported here: it brings httpx along, which a search in process can do without.
        from ssp_env.search.index import SearchConfig, open_search

        parts["retriever"] = open_search(SearchConfig.of(setup["search"]), world)
    rules = Rules.build(world, tokenizer, game, **parts)
    _refuse_frozen(rules)

    # The prompts have to be spelled in the world's own words.
    words_of_world = setup.get("tokenizer", "words") == "words" and isinstance(
        tokenizer, WordTokenizer
    )
    if words_of_world and (strange := rules.prompts.unspelled()) is not None:
        other = f"tokenizer='bytes'{f' with {UNMASKED}' if view.legal_moves else ''}"
        fix = f"the world has no words for its {strange}.txt; choose 'mini', or {other}"
        raise ConfigError("game.prompts", game.prompts, fix)
    return ResolvedSetup(rules, view)


def _refuse_frozen(rules: Rules) -> None:
    if rules.verifier is None and rules.config.verifier == "frozen":
        fix = "an environment has no policy of its own to freeze, training has (`ssp train`, "
        fix += "SSPConfig); choose policy, world or none, or pass a verifier"
        raise ConfigError("game.verifier", "frozen", fix)


def _config(kind: type[C], given: C | Mapping[str, Any] | None, default: C) -> C:
    if given is None or isinstance(given, kind):
        return given or default
    fix = f"give a {kind.__name__}, or a mapping of its fields"
    return default.replace(**named_values(kind.section, given, fix))


def _tokenizer(given: Tokenizer | str | Path | None, world: World, game: GameConfig) -> Tokenizer:
    if isinstance(given, Tokenizer):
        return given

    vocabulary = getattr(world, "vocabulary", None)
    match given or ("bpe" if vocabulary is None else "words"):
        case "bpe":
            return BPETokenizer()
        case "bytes":
            return ByteTokenizer()
        case "words":
            if vocabulary is None:
                fix = f"the world {world.name!r} has no vocabulary; choose 'bpe'"
                raise ConfigError("tokenizer", given, fix)
            return WordTokenizer(vocabulary, tags_of(game.prompts, game.tools).all())
        case str() | Path() as directory if Path(directory).is_dir():
            return HuggingFaceTokenizer.load(directory)

    fix = "give a Tokenizer, 'bpe', 'bytes', 'words', or a directory with a tokenizer.json"
    raise ConfigError("tokenizer", given, fix)

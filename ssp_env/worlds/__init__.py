"""Worlds: closed places to search in, and a registry that opens them by name."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from ssp_env.errors import ConfigError, nearest
from ssp_env.settings import read_value
from ssp_env.types import World

if TYPE_CHECKING:
    from ssp_env.worlds.wiki import WikiMini

__all__ = ["WORLDS", "open_world", "wiki_mini"]

WORLDS = {
    "mini": "ssp_env.worlds.mini.world:MiniWorld",
    "small": "ssp_env.worlds.mini.small:SmallWorld",
    "wiki-mini": "ssp_env.worlds.wiki:WikiMini",
    "files": "ssp_env.worlds.files:FileWorld",
}
"""Name of each world, and where its factory is; the module is imported when the world is opened."""


def wiki_mini() -> WikiMini:
    """Opens wiki-mini; its :attr:`~ssp_env.worlds.wiki.WikiMini.retriever` searches it."""
    from ssp_env.worlds.wiki import WikiMini

    return WikiMini()


def open_world(name: str, /, **options: Any) -> World:
    """Opens a world by name.

    Args:
        name: one of :data:`WORLDS`.
        options: settings of that world's factory.

    Raises:
        ConfigError: no such world, a setting that it does not have or that is of another type or
            out of range, or one that it cannot do without.
    """
    if name not in WORLDS:
        raise ConfigError("world", name, f"no such world; {nearest(name, WORLDS)}")

    module, _, attribute = WORLDS[name].partition(":")
    factory = getattr(import_module(module), attribute)
    known = inspect.signature(factory).parameters
    makes = inspect.getattr_static(factory, "__init__") if inspect.isclass(factory) else factory
    hints = get_type_hints(makes) if known else {}

    for option, value in options.items():
        if option not in known:
            hint = nearest(option, known) if known else "it has none at all"
            fix = f"the world {name!r} has no such setting; {hint}"
            raise ConfigError(f"world_options.{option}", value, fix)
        options[option] = read_value(hints[option], value, f"world_options.{option}")

    # Signature first, so that a missing setting is not mistaken for an error inside the world.
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise ConfigError(
            "world_options", options, f"the world {name!r} needs more: {error}"
        ) from None

    try:
        return cast(World, factory(**options))
    except ConfigError as error:  # a world speaks of itself, its user of world_options
        raise ConfigError(
            re.sub(r"\Aworld\.", "world_options.", error.field), error.value, error.fix
        ) from None

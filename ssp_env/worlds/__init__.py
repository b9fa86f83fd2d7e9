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
    factory = _factory(name)
    options = _checked_options(name, factory, options)
    try:
        return cast(World, factory(**options))
    except ConfigError as error:  # a world speaks of itself, its user of world_options
        field = re.sub(r"\Aworld\.", "world_options.", error.field)
        raise ConfigError(field, error.value, error.fix) from None


def check_world(name: str, /, **options: Any) -> None:
    """Checks a world's name and settings; opens all but ``files``, which may take long to read.

    Raises:
        ConfigError: as :func:`open_world` does.
    """
    if name == "files":
        _checked_options(name, _factory(name), options)
    else:
        open_world(name, **options)


def _factory(name: str) -> Any:
    if name not in WORLDS:
        raise ConfigError("world", name, f"no such world; {nearest(name, WORLDS)}")

    module, _, attribute = WORLDS[name].partition(":")
    return getattr(import_module(module), attribute)


def _checked_options(name: str, factory: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The settings of a world, each of its type.

    Raises:
        ConfigError: one that the world does not have or cannot do without, or of another type.
    """
    signature = inspect.signature(factory)
    known = signature.parameters
    makes = inspect.getattr_static(factory, "__init__") if inspect.isclass(factory) else factory
    hints = get_type_hints(makes) if known else {}

    ready = {}
    for option, value in options.items():
        if option not in known:
            hint = nearest(option, known) if known else "it has none at all"
            fix = f"the world {name!r} has no such setting; {hint}"
            raise ConfigError(f"world_options.{option}", value, fix)
        ready[option] = read_value(hints[option], value, f"world_options.{option}")

    try:
        signature.bind(**ready)
    except TypeError as error:
        fix = f"the world {name!r} needs more: {error}"
        raise ConfigError("world_options", options, fix) from None
    return ready

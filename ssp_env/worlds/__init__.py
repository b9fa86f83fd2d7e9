"""Worlds: closed places to search in, and a registry that opens them by name."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast, get_type_hints

from pydantic import create_model

from ssp_env.config import Settings, named
from ssp_env.disk import check_file
from ssp_env.errors import ConfigError, MissingExtra, nearest
from ssp_env.types import World

__all__ = ["WORLDS", "open_world"]

WORLDS = {
    "mini": "ssp_env.worlds.mini:MiniWorld",
    "small": "ssp_env.worlds.mini:SmallWorld",
    "wiki-mini": "ssp_env.worlds.files:WikiMini",
    "wiki-sentences": "ssp_env.worlds.wiki:WikiSentences",
    "files": "ssp_env.worlds.files:FileWorld",
}
"""Factory of each world by name; its module is imported when the world is opened."""
GENERATED = ("mini", "small")
"""Worlds of ASCII words, which need none of :data:`TEXT`."""
TEXT = ("anyascii", "confusable_homoglyphs", "tantivy", "tokenizers")
"""Packages of the extra ``text``, by the names that they are imported by."""


def open_world(name: str, /, **options: Any) -> World:
    """Opens one of :data:`WORLDS`, with settings of its factory, which are checked."""
    factory, ready = _checked(name, options)
    return cast(World, factory(**ready))


def check_world(name: str, /, **options: Any) -> None:
    """Checks a world's name and settings; opens all but ``files``, which may take long to read: of
    these, it looks whether they are there, and can be read more than once."""
    factory, ready = _checked(name, options)
    if name != "files":
        factory(**ready)
        return
    for option, path in ready.items():
        if option != "name" and path is not None:
            check_file(f"world_options.{option}", path)


def _checked(name: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A world's factory and its settings, each of its type."""
    if name not in WORLDS:
        raise ConfigError("world", name, f"no such world; {nearest(name, WORLDS)}")
    missing = [package for package in TEXT if find_spec(package) is None]
    if missing and name not in GENERATED:
        raise MissingExtra(f"world={name} ({', '.join(missing)} missing)", "text")
    module, _, attribute = WORLDS[name].partition(":")
    factory = getattr(import_module(module), attribute)

    # The signature is the schema: options are checked like settings, before anything is read.
    hints = get_type_hints(factory.__init__)
    fields: dict[str, Any] = {
        option: (hints[option], ... if parameter.default is parameter.empty else parameter.default)
        for option, parameter in inspect.signature(factory).parameters.items()
    }
    with named("world_options"):
        checked = create_model("Options", __base__=Settings, **fields)(**options)
    return factory, dict(checked)

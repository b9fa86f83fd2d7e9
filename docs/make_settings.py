"""Writes docs/settings.md from the settings themselves: ``python docs/make_settings.py``."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ssp_env.config import Settings, section_of
from ssp_env.game.config import GameConfig, ViewConfig, world_defaults
from ssp_experiments.config import RunConfig

PAGE = Path(__file__).with_name("settings.md")
INTRODUCTION = """\
# Settings

`make settings` writes this page. Training takes all sections but `view`: by
`--set section.name=VALUE`, a preset, or a run's `config.yaml`. Environments take [`game`](#game),
[`view`](#view) and [`search`](#search) as [keywords](interfaces.md#keywords).
"""


def sections(kind: type[Settings], path: str = "") -> Iterator[tuple[str, type[Settings]]]:
    """Dotted names and classes of a section and of those in it; the view comes after the game."""
    yield path, kind
    if kind is GameConfig:
        yield "view", ViewConfig
    for name, field in kind.model_fields.items():
        if inner := section_of(field):
            yield from sections(inner, f"{path}.{name}".removeprefix("."))


def docstrings(kind: type[Settings]) -> dict[str, str]:
    """The docstring under each field of a class and its bases."""
    found = {}
    for base in kind.__mro__[: kind.__mro__.index(Settings)]:
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in pairwise(definition.body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(field.target)] = str(ast.literal_eval(below.value))
    return found


def listed(kind: type[Settings]) -> str:
    """Name, default and meaning of each setting."""
    documented, lines = docstrings(kind), []
    for name, field in plain_fields(kind):
        default = field.get_default(call_default_factory=True)
        shown = "needed" if default is PydanticUndefined else f"`{default!r}`"
        lines.append(f"- `{name}` ({shown}): {meaning(documented[name])}")
    return "\n".join(lines)


def plain_fields(kind: type[Settings]) -> list[tuple[str, FieldInfo]]:
    """Fields that are no sections."""
    return [(name, f) for name, f in kind.model_fields.items() if not section_of(f)]


def worlds(kind: type[Settings]) -> str:
    """What the worlds with rules of their own set instead of the defaults."""
    found: dict[str, list[str]] = {}
    for world in ("mini", "small", "wiki-sentences", "wiki-mini", "files"):
        (own,) = (settings for settings in world_defaults(world) if isinstance(settings, kind))
        changed = [
            f"`{name}={getattr(own, name)!r}`"
            for name, field in plain_fields(kind)
            if getattr(own, name) != field.default
        ]
        if changed:
            found.setdefault(", ".join(changed), []).append(f"`{world}`")
    lines = [f"- {', '.join(names)}: {changed}" for changed, names in found.items()]
    return "\n".join(["Worlds set instead:", "", *lines])


def meaning(docstring: str) -> str:
    """A docstring in Markdown, on one line."""
    text = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", docstring).replace("``", "`")
    return " ".join(text.split())


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for name, kind in sections(RunConfig):
        title = f"`{name}`" if name else "Runs"
        parts.append(f"## {title}\n\n{meaning((kind.__doc__ or '').split(chr(10) * 2)[0])}\n")
        parts.append(f"{listed(kind)}\n")
        if kind in (GameConfig, ViewConfig):
            parts.append(f"{worlds(kind)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

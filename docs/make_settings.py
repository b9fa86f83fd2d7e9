"""Writes docs/settings.md from the settings themselves: ``python docs/make_settings.py``."""

from __future__ import annotations

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path

from pydantic_core import PydanticUndefined

from experiments.config import RunConfig
from ssp_env.config import Settings
from ssp_env.game.config import GameConfig, ViewConfig, suited
from ssp_env.search.client import HTTPConfig
from ssp_env.search.config import SearchConfig

PAGE = Path(__file__).with_name("settings.md")
INTRODUCTION = """\
# Settings

`make settings` writes this page from the docstrings of the settings. A training run has all
sections: `--set section.name=VALUE`, a preset, or a run's `config.yaml`. Environments take
[`game`](#game), [`view`](#view) and [`search`](#search) as [keywords](environment.md#keywords). A
mapping changes single fields of a world's own rules or view; a `GameConfig` or `ViewConfig`
replaces all of them.
"""


def sections() -> dict[str, type[Settings]]:
    """Settings by the heading of their table: the run's own, then those of its sections."""
    found: dict[str, type[Settings]] = {"Runs": RunConfig}
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            found[name] = field.annotation
            if field.annotation is GameConfig:
                found["view"] = ViewConfig
            elif field.annotation is SearchConfig:
                found["search.server"] = HTTPConfig
    return found


def docstrings(kind: type[Settings]) -> dict[str, str]:
    """The docstring under each field of a class."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: below.value.value
        for field, below in pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def table(kind: type[Settings]) -> str:
    """Name, default, values of worlds that have their own rules, and meaning of each setting."""
    worlds = {GameConfig: ("mini", "small"), ViewConfig: ("small",)}.get(kind, ())
    heads = ["name", "default", *(f"`{world}`" for world in worlds), "meaning"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    documented = docstrings(kind)

    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
            continue
        default = field.get_default(call_default_factory=True)
        cells = [f"`{name}`", "needed" if default is PydanticUndefined else f"`{default!r}`"]
        for world in worlds:
            own = next(config for config in suited(world) if isinstance(config, kind))
            value = getattr(own, name)
            cells.append("" if value == default else f"`{value!r}`")
        lines.append(f"| {' | '.join([*cells, meaning(documented[name])])} |")
    return "\n".join(lines)


def meaning(docstring: str) -> str:
    """A docstring in Markdown, on one line."""
    text = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", docstring).replace("``", "`")
    return " ".join(text.split()).replace("|", "\\|")


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for name, kind in sections().items():
        title = name if kind is RunConfig else f"`{name}`"
        parts.append(f"## {title}\n\n{meaning((kind.__doc__ or '').split(chr(10) * 2)[0])}\n")
        parts.append(f"{table(kind)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

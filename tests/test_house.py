"""Imports run downwards."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

FLOORS = (
    ("errors", "version", "removed"),
    ("wording",),
    ("types", "checks", "config", "disk", "net"),
    ("tokenizers", "settings", "tables"),
    ("search", "judge"),
    ("game", "worlds"),
    ("players", "replay"),
    ("doors",),
    ("ssp_env", "commands", "testing"),
    *(("cli",), ("ssp_agents",), ("ssp_experiments",)),
)
"""From the ground up: folders and modules of ``ssp_env``, ``ssp_env`` itself, the two packages."""
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


ROOT = Path(__file__).parents[1]


def modules() -> dict[str, ast.Module]:
    """All modules of the three packages, parsed."""
    root, found = ROOT, {}
    for package in ("ssp_env", "agents/ssp_agents", "experiments/ssp_experiments"):
        for file in (root / package).rglob("*.py"):
            source = (root / package).parent
            name = ".".join(file.relative_to(source).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = ast.parse(file.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def imports(nodes: Iterable[ast.AST]) -> set[str]:
    """Modules of the house that these nodes import."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # "from ssp_env import net" imports the module ssp_env.net, not ssp_env alone.
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            names |= inner if len(inner) == len(node.names) else {node.module or "", *inner}
    return names & MODULES.keys()


def room_of(module: str) -> str:
    package, *inside = module.split(".")
    return inside[0] if package == "ssp_env" and inside else package


def test_imports_run_downwards() -> None:
    for module, tree in MODULES.items():
        own = room_of(module)
        rooms = {room_of(imported) for imported in imports(ast.walk(tree))} - {own}
        assert not [room for room in rooms if FLOOR[room] >= FLOOR[own]], module

"""Packages import downwards only, as ARCHITECTURE.md draws them; modules do not load each other."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]

FLOORS = (
    ("errors", "version", "wording"),
    ("types", "checks", "config", "disk", "net"),
    ("tokenizers", "settings"),
    ("search", "judge"),
    ("game", "worlds"),
    ("players", "replay"),
    ("doors",),
    ("ssp_env", "commands", "testing"),
    ("cli",),
    ("agents",),
    ("experiments",),
)
"""From the ground up: folders and modules of ``ssp_env``, ``ssp_env`` itself, the two packages."""


def room_of(module: str) -> str:
    package, *inside = module.split(".")
    return inside[0] if package == "ssp_env" and inside else package


def imports(late: bool = True) -> dict[str, set[str]]:
    """Modules of the three packages, and those that each imports; ``late``: in functions too."""
    files = {}
    for package in ("ssp_env", "agents", "experiments"):
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file

    found = {}
    for module, file in files.items():
        names: set[str] = set()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree) if late else tree.body:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                # "from ssp_env import net" imports the module ssp_env.net, not ssp_env alone.
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & files.keys()
                names |= inner if len(inner) == len(node.names) else {node.module or "", *inner}
        found[module] = names & files.keys() - {module}
    return found


def test_imports_run_downwards() -> None:
    floor_of = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
    wrong = [
        f"{module} imports {imported}"
        for module, names in imports().items()
        for imported in names
        if room_of(module) != room_of(imported)
        and floor_of[room_of(imported)] >= floor_of[room_of(module)]
    ]
    assert wrong == []


def test_no_modules_load_each_other_in_a_circle() -> None:
    TopologicalSorter(imports(late=False)).prepare()

"""The floors of the house: who may import whom, read from the imports themselves.

A room is a folder right inside ``ssp_env``, a file right inside it, ``ssp_env/__init__.py``, or one
of the packages ``agents`` and ``experiments``. Every import counts, those inside functions and
under ``TYPE_CHECKING`` too.

``pytest -s tests/test_house.py`` prints the figures; ``python tests/test_house.py PATH`` prints
those of another checkout, whatever its rooms are.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("ssp_env", "agents", "experiments")

FLOORS = (
    ("errors", "version", "wording"),
    ("types", "checks", "config", "disk", "net", "settings"),
    ("tokenizers",),
    ("search", "judge"),
    ("game", "worlds"),
    ("players", "replay"),
    ("doors",),
    ("ssp_env", "commands", "testing"),
    ("cli",),
)
"""The rooms of ``ssp_env`` from the ground up, as ARCHITECTURE.md draws them; ``ssp_env`` itself is
what ``import ssp_env`` runs."""

Graph = Mapping[str, frozenset[str]]
"""Who imports whom."""


@dataclass(frozen=True)
class House:
    """What the imports of a checkout say."""

    modules: Graph
    """Every module, and the modules that it imports."""

    @property
    def rooms(self) -> frozenset[str]:
        """All rooms."""
        return frozenset(map(room_of, self.modules))

    @property
    def imports(self) -> list[tuple[str, str]]:
        """Module and imported module, where these are in different rooms."""
        return [
            (module, imported)
            for module, all_imported in self.modules.items()
            for imported in sorted(all_imported)
            if room_of(module) != room_of(imported)
        ]

    @property
    def circles(self) -> list[frozenset[str]]:
        """Groups of modules each of which imports, in the end, all others of its group."""
        return [group for group in strong_components(self.modules) if len(group) > 1]

    @property
    def upward(self) -> list[tuple[str, str]]:
        """The fewest imports without which the rooms could be stacked so that none runs up."""
        found = []
        rooms = _by_room(self.modules, self.imports)
        for group in strong_components(rooms):
            inside = [pair for pair in self.imports if {*map(room_of, pair)} <= group]
            found += _against_best_order(group, inside)
        return found

    @property
    def floors(self) -> int:
        """Floors that the rooms need: the longest chain of rooms that import the next one down.

        Imports that run up are left out, since no number of floors could hold them.
        """
        upward = set(self.upward)
        rooms = _by_room(self.modules, [pair for pair in self.imports if pair not in upward])

        @cache
        def floor(room: str) -> int:
            return 1 + max(map(floor, rooms[room]), default=0)

        return max(map(floor, rooms))

    def __str__(self) -> str:
        lines = [
            f"{len(self.rooms)} rooms on {self.floors} floors, {len(self.circles)} circles, "
            f"{len(self.upward)} upward imports"
        ]
        lines += [f"  circle: {', '.join(sorted(group))}" for group in self.circles]
        lines += [f"  upward: {module} -> {imported}" for module, imported in self.upward]
        return "\n".join(lines)


def room_of(module: str) -> str:
    """The room that a module is in, by its dotted name."""
    package, *inside = module.split(".")
    return inside[0] if package == "ssp_env" and inside else package


def read_house(root: Path) -> House:
    """Reads the imports of all packages of a checkout."""
    files: dict[str, Path] = {}
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file

    return House({name: _imported(name, file, files.keys()) for name, file in files.items()})


def _imported(module: str, file: Path, known: Iterable[str]) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            assert node.module

            # "from ssp_env import net" imports the module ssp_env.net, not ssp_env alone.
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & {*known}
            names |= inner if len(inner) == len(node.names) else inner | {node.module}

    return frozenset(names & {*known} - {module})


def strong_components(graph: Graph) -> list[frozenset[str]]:
    """Groups of nodes that can reach each other (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)

        for other in graph[node]:
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])

        if low[node] == order[node]:
            start = stack.index(node)
            found.append(frozenset(stack[start:]))
            del stack[start:]

    for node in graph:
        if node not in order:
            visit(node)
    return found


def _by_room(modules: Graph, imports: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    rooms: dict[str, set[str]] = {room_of(module): set() for module in modules}
    for module, imported in imports:
        rooms[room_of(module)].add(room_of(imported))
    return {room: frozenset(below) for room, below in rooms.items()}


def _against_best_order(
    rooms: frozenset[str], imports: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The imports that run up in the order of the rooms that has the fewest of them."""

    @cache
    def best(placed: frozenset[str]) -> list[tuple[str, str]]:
        """The fewest, over all orders of the rooms above those that are placed already."""
        options = []
        for room in sorted(rooms - placed):
            # What this room imports from rooms that come above it runs up.
            up = [
                (module, imported)
                for module, imported in imports
                if room_of(module) == room and room_of(imported) not in placed
            ]
            options.append(up + best(placed | {room}))
        return min(options, key=len, default=[])

    return best(frozenset())


# -- tests -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def house() -> House:
    read = read_house(ROOT)
    print(f"\n{read}")
    return read


def test_the_rooms_stand_on_the_floors_that_are_drawn(house: House) -> None:
    floor_of = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
    floor_of |= {"agents": len(FLOORS), "experiments": len(FLOORS) + 1}
    assert house.rooms <= floor_of.keys(), "a room without a floor"

    wrong = [
        f"{module} imports {imported}"
        for module, imported in house.imports
        if floor_of[room_of(imported)] >= floor_of[room_of(module)]
    ]
    assert wrong == []


def test_no_circle_and_nothing_runs_up(house: House) -> None:
    assert house.circles == []
    assert house.upward == []
    assert house.floors <= len(FLOORS)


def test_circles_and_upward_imports_are_found() -> None:
    """A house with both, so that the tests above can fail."""
    crooked = House(
        {
            "ssp_env.game.a": frozenset({"ssp_env.game.b", "ssp_env.search.c"}),
            "ssp_env.game.b": frozenset({"ssp_env.game.a"}),
            "ssp_env.game.d": frozenset({"ssp_env.search.c"}),
            "ssp_env.search.c": frozenset({"ssp_env.game.b", "ssp_env.errors"}),
            "ssp_env.errors": frozenset(),
        }
    )
    assert crooked.circles == [frozenset({"ssp_env.game.a", "ssp_env.game.b", "ssp_env.search.c"})]
    assert crooked.upward == [("ssp_env.search.c", "ssp_env.game.b")]
    assert crooked.floors == 3


if __name__ == "__main__":
    print(read_house(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))

"""Imports run downwards; the inside of other libraries is touched in one file each."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

LAYERS = (
    ("errors", "version", "removed"),
    ("wording",),
    ("types", "config", "disk", "net"),
    ("tokenizers", "tables"),
    ("search", "judge"),
    ("game", "worlds"),
    ("players", "replay"),
    ("envs",),
    ("ssp_env", "commands", "testing", "probe"),
    *(("cli",), ("ssp_agents",), ("ssp_experiments",)),
)
"""From the lowest to the highest: folders and modules of ``ssp_env``, ``ssp_env`` itself, the two
packages."""
LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names}


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
    """Modules of the packages that these nodes import."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # "from ssp_env import net" imports the module ssp_env.net, not ssp_env alone.
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            names |= inner if len(inner) == len(node.names) else {node.module or "", *inner}
    return names & MODULES.keys()


def layer_name(module: str) -> str:
    package, *inside = module.split(".")
    return inside[0] if package == "ssp_env" and inside else package


def test_imports_run_downwards() -> None:
    for module, tree in MODULES.items():
        own = layer_name(module)
        others = {layer_name(imported) for imported in imports(ast.walk(tree))} - {own}
        assert not [name for name in others if LAYER[name] >= LAYER[own]], module


COMPAT = {"ssp_agents.rllib.compat", "ssp_agents.engines.vllm_compat", "ssp_agents.causal_lm"}
"""The files for the inside of Ray, vLLM and transformers."""
PUBLIC = {"_replace", "_asdict", "_exit", "_forward", "_forward_train"}
"""Documented, for all their underscore: those of named tuples, of `os`, and of RLlib's modules."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def of_others(tree: ast.Module) -> set[str]:
    """Private names that a module takes from elsewhere: attributes that it does not define, and
    imports from other packages."""
    nodes, defined, taken = list(ast.walk(tree)), set[str](), set[str]()
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                defined.add(name)
            case ast.Attribute(attr=name):
                taken.add(name)
            case ast.ImportFrom(module=str(module), names=names) if not module.startswith("ssp_"):
                taken |= {part for n in names for part in f"{module}.{n.name}".split(".")}
            case ast.Import(names=names):
                taken |= {part for n in names for part in n.name.split(".")}
    return {name for name in taken - defined if is_private(name)}


def test_private_parts_of_neighbours_are_touched_in_one_file_each() -> None:
    found = {
        module: names
        for module, tree in MODULES.items()
        if not module.startswith("ssp_env") and module not in COMPAT and (names := of_others(tree))
    }
    assert found == {}, "move it to the neighbour's file (COMPAT), with a canary"
    assert all(of_others(MODULES[module]) for module in COMPAT), "the scan finds what is there"

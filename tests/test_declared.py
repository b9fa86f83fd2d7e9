"""What the packages import is declared: nothing comes along by another package's doing alone."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from test_house import MODULES, ROOT

from ssp_env.cli import EXTRAS

ELSEWHERE = {"vllm": "vllm"}
"""Imports whose distribution is not installed beside the others."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~!; ]", name, maxsplit=1)[0]).lower()


def imported() -> dict[str, str]:
    """Packages that are imported from outside, anywhere in a module, and one that does."""
    found = {}
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            found |= {name.partition(".")[0]: module for name in names}
    known = {*sys.stdlib_module_names, "ssp_env", "ssp_agents", "ssp_experiments"}
    return {name: module for name, module in found.items() if name not in known}


def test_every_import_is_declared_and_a_missing_one_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {canonical(each) for each in project["dependencies"]}
    extras = {
        extra: {canonical(each) for each in listed}
        for extra, listed in project["optional-dependencies"].items()
        if extra not in ("dev", "clients")  # nothing that users run may need these
    }
    distributions = packages_distributions()
    for package, module in imported().items():
        named = {
            canonical(each) for each in distributions.get(package, [ELSEWHERE.get(package, "")])
        }
        declared = core.union(*extras.values())
        assert named & declared, f"{module} imports {package}, which pyproject.toml does not name"
        if not named & core:
            extra = EXTRAS.get(package)
            assert extra, f"ssp_env.cli.EXTRAS does not say which extra brings {package}"
            assert named & extras[extra], f"{package} is not in the extra {extra}"


def test_extras_that_are_asked_for_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    places = [ROOT / "Makefile", ROOT / "README.md", *(ROOT / ".github").rglob("*")]
    places += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("Dockerfile")]
    for place in (place for place in places if place.is_file()):
        for named in re.findall(r"(?:ssp-env|\s['\"]?\.)\[([a-z,]+)\]", place.read_text()):
            assert {*named.split(",")} <= {*extras}, f"{place.name} names [{named}]"

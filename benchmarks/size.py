"""The size of the code, beside what it may have: ``make size``.

Lines are all lines of tracked Python files, statements those of their syntax trees, settings the
fields of models that inherit from ``Settings`` and of dataclasses named ``...Config``.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ssp_env", "agents", "experiments")
BOUNDS: dict[str, tuple[float, float]] = {
    "ssp_env, lines": (27_218, 15_000),
    "agents, lines": (8_214, 6_000),
    "experiments, lines": (11_789, 5_000),
    "page, lines of JS and CSS": (1_900, 1_200),
    "statements in the packages": (26_369, 15_000),
    "files in the packages": (323, 170),
    "settings": (172, 100),
    "classes of settings": (15, 10),
    "own-line comments, % of lines": (1.2, 3),
    "functions beyond 80 lines": (2, 0),
    "tests, lines": (35_610, 15_000),
    "benchmarks, lines": (9_498, 2_500),
    "benchmarks/results, MB": (11.3, 2),
    "README, words": (2_505, 900),
    "documents with README, words": (49_637, 22_000),
}
"""Counted by this script at commit 416677d, and the bound (of comments, the least)."""


@dataclass
class Count:
    """Totals of a folder."""

    files: int = 0
    lines: int = 0
    statements: int = 0
    comments: int = 0
    long_functions: list[str] = field(default_factory=list)

    def add(self, file: Path) -> None:
        """Counts a Python file too."""
        text = file.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(text)))
        self.files += 1
        self.lines += text.count("\n")
        self.statements += sum(isinstance(node, ast.stmt) for node in nodes)
        self.comments += len(re.findall(r"^\s*#", text, re.MULTILINE))
        self.long_functions += [
            f"{file.relative_to(ROOT)}:{node.name}"
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= 80
        ]


def settings(files: list[Path]) -> dict[str, int]:
    """Fields of each class of settings."""
    found: dict[str, int] = {}
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            above = " ".join(ast.unparse(part) for part in (*node.bases, *node.decorator_list))
            if "Settings" in above or ("dataclass" in above and node.name.endswith("Config")):
                found[node.name] = sum(
                    isinstance(part, ast.AnnAssign) and "ClassVar" not in ast.unparse(part)
                    for part in node.body
                )
    return found


def main() -> None:
    """Counts, and prints two tables."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True)
    paths = [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]
    rooms: dict[str, Count] = defaultdict(Count)
    tops: dict[str, Count] = defaultdict(Count)
    python = [p for p in paths if p.suffix == ".py"]
    for path in python:
        parts = path.relative_to(ROOT).parts
        tops[parts[0]].add(path)
        rooms["/".join(parts[:-1][:2])].add(path)

    packages = [tops[name] for name in PACKAGES]
    lines = sum(count.lines for count in packages)
    beyond = [name for count in packages for name in count.long_functions]
    fields = settings([p for p in python if p.relative_to(ROOT).parts[0] in PACKAGES])
    documents = [
        p
        for p in paths
        if p.suffix == ".md" and (p.parent == ROOT or p.is_relative_to(ROOT / "docs"))
    ]
    words = {p.name: len(p.read_text(encoding="utf-8").split()) for p in documents}
    page = [p for p in paths if p.suffix in (".js", ".css") and "uPlot" not in p.name]
    results = [p for p in paths if p.is_relative_to(ROOT / "benchmarks" / "results")]

    reached = {
        **{f"{name}, lines": tops[name].lines for name in (*PACKAGES, "tests", "benchmarks")},
        "page, lines of JS and CSS": sum(len(p.read_text().splitlines()) for p in page),
        "statements in the packages": sum(count.statements for count in packages),
        "files in the packages": sum(count.files for count in packages),
        "settings": sum(fields.values()),
        "classes of settings": len(fields),
        "own-line comments, % of lines": 100 * sum(c.comments for c in packages) / lines,
        "functions beyond 80 lines": len(beyond),
        "benchmarks/results, MB": sum(p.stat().st_size for p in results) / 1e6,
        "README, words": words["README.md"],
        "documents with README, words": sum(words.values()),
    }
    print("| | at 416677d | at most | reached |\n|---|--:|--:|--:|")
    for name, (before, most) in BOUNDS.items():
        print(f"| {name} | {before:,} | {most:,} | {round(reached[name], 1):,} |")
    print("\n| room | files | lines | statements |\n|---|--:|--:|--:|")
    for name, count in sorted(rooms.items()):
        print(f"| {name} | {count.files} | {count.lines:,} | {count.statements:,} |")
    print("\nbeyond 80 lines:", ", ".join(beyond) or "none")


if __name__ == "__main__":
    main()

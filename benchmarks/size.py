"""The size of the code, beside what it may have: ``make size``.

Lines are all lines of tracked Python files, statements those of their syntax trees, settings those
of docs/settings.md: the fields of classes named ``...Config`` that hold no section. Keys of a
sweep's file and of a prompt set's are none. Words are those of the documents at the top and in
docs/, code and generated pages included. What has no letter or digit, such as the bar of a table,
is no word.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
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
    "settings": (155, 95),
    "classes of settings": (15, 10),
    "own-line comments, % of lines": (1.2, 3),
    "functions beyond 80 lines": (2, 0),
    "tests, lines": (35_610, 15_000),
    "benchmarks, lines": (9_498, 2_500),
    "benchmarks/results, MB": (11.3, 2),
    "README, words": (2_358, 1_300),
    "documents with README, words": (44_896, 34_000),
}
"""Counted by this script at commit 416677d, and the bound (of comments, the least)."""


def counts(text: str) -> Counter[str]:
    """Totals of a Python file."""
    found = Counter(files=1, lines=text.count("\n"))
    found["comments"] = len(re.findall(r"^\s*#", text, re.MULTILINE))
    for node in ast.walk(ast.parse(text)):
        found["statements"] += isinstance(node, ast.stmt)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found["long functions"] += (node.end_lineno or 0) - node.lineno >= 80
        if isinstance(node, ast.ClassDef):
            above = " ".join(map(ast.unparse, (*node.bases, *node.decorator_list)))
            if re.search("Settings|dataclass", above) and node.name.endswith("Config"):
                found["classes of settings"] += 1
                found["settings"] += sum(
                    isinstance(part, ast.AnnAssign)
                    and not re.search("ClassVar|Config", ast.unparse(part.annotation))
                    for part in node.body
                )
    return found


def main() -> None:
    """Counts, and prints two tables."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    names = [name for name in listed if (ROOT / name).is_file()]
    folders, tops = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
    for name in names:
        if name.endswith(".py"):
            found = counts((ROOT / name).read_text(encoding="utf-8"))
            folders["/".join(name.split("/")[:-1][:2])] += found
            tops[name.split("/")[0]] += found
    packages = sum((tops[name] for name in PACKAGES), Counter[str]())

    def read(pattern: str) -> dict[str, str]:
        texts = [name for name in names if re.fullmatch(pattern, name)]
        return {name: (ROOT / name).read_text(encoding="utf-8") for name in texts}

    words = {
        n: len(re.findall(r"\S*\w\S*", text)) for n, text in read(r"(docs/.*|[^/]*)\.md").items()
    }
    results = [name for name in names if name.startswith("benchmarks/results/")]
    reached = {
        **{f"{name}, lines": tops[name]["lines"] for name in (*PACKAGES, "tests", "benchmarks")},
        "page, lines of JS and CSS": "".join(read(r"(?!.*uPlot).*\.(js|css)").values()).count("\n"),
        "statements in the packages": packages["statements"],
        "files in the packages": packages["files"],
        "settings": packages["settings"],
        "classes of settings": packages["classes of settings"],
        "own-line comments, % of lines": 100 * packages["comments"] / packages["lines"],
        "functions beyond 80 lines": packages["long functions"],
        "benchmarks/results, MB": sum((ROOT / name).stat().st_size for name in results) / 1e6,
        "README, words": words["README.md"],
        "documents with README, words": sum(words.values()),
    }
    print("| | at 416677d | at most | reached |\n|---|--:|--:|--:|")
    for name, (before, most) in BOUNDS.items():
        print(f"| {name} | {before:,} | {most:,} | {round(reached[name], 1):,} |")
    print("\n| folder | files | lines | statements |\n|---|--:|--:|--:|")
    for name, found in sorted(folders.items()):
        print(f"| {name} | {found['files']} | {found['lines']:,} | {found['statements']:,} |")


if __name__ == "__main__":
    main()

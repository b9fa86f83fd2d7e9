"""Every Python block of the documents runs, and so do the tests that it shows; files that documents
name exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))
"""README's Python needs a Ray cluster; tests/experiments/test_documentation.py runs it."""

ALONE = ("environment.md", "plug_in.md", "settings.md")
"""Documents that promise that each block works when pasted alone; the others are read from top to
bottom."""

NO_TESTS = 5
"""How pytest exits when it collects nothing."""


def python_of(document: str) -> str:
    """The Python blocks of a document, each at its own lines, and nothing else."""
    lines, inside = [], False
    for line in document.splitlines():
        if line.startswith("```"):
            inside = line.strip() == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines) + "\n"


def blocks_of(document: str) -> list[str]:
    """The Python blocks of a document, each at its own lines."""
    found = re.finditer(r"^```python\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
    return ["\n" * document.count("\n", 0, block.start(1)) + block[1] for block in found]


@pytest.mark.parametrize("name", ALONE)
def test_every_block_works_when_pasted_alone(name: str, tmp_path: Path) -> None:
    """Each in a namespace of its own, but in one process: so whoever names a registered id has to
    import us too."""
    document = ROOT / "docs" / name
    blocks = blocks_of(document.read_text(encoding="utf-8"))
    assert blocks
    assert not [
        block.strip() for block in blocks if '"ssp/' in block and "import ssp_env" not in block
    ]
    runner = f"for block in {blocks!r}:\n    exec(compile(block, {name!r}, 'exec'), {{}})\n"
    script = tmp_path / "blocks.py"
    script.write_text(runner, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, f"docs/{name}:\n{ran.stdout[-6000:]}{ran.stderr[-4000:]}"


@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if d.name not in ALONE], ids=lambda path: path.name
)
def test_python_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    """Top to bottom in one namespace, in an empty directory and a process of its own; pytest
    collects what it shows."""
    code = python_of(document.read_text(encoding="utf-8"))
    if not code.strip():
        return
    script = tmp_path / f"{document.stem}.py"
    script.write_text(code, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
    ]
    ran = subprocess.run([*command, script.name], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode in (0, NO_TESTS), (
        f"{document.relative_to(ROOT)}:\n{ran.stdout[-6000:]}{ran.stderr[-2000:]}"
    )
    shown = len(re.findall(r"^class Test", code, re.MULTILINE))
    assert (ran.returncode == NO_TESTS) == (shown == 0)


def test_blocks_keep_their_lines() -> None:
    assert (
        python_of("a\n```python\nx = 1\n```\n```bash\nls\n```\n```python\ny\n```\n")
        == "\n\nx = 1\n\n\n\n\n\ny\n\n"
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_a_document_names_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    paths = set(
        re.findall(
            r"`((?:ssp_env|agents|experiments|benchmarks|docs|tests|examples)/[\w./-]+)`", text
        )
    )
    links = {target.partition("#")[0] for target in re.findall(r"\]\(([^):]+)\)", text)}
    missing = [path for path in paths if not (ROOT / path).exists()]
    missing += [link for link in links if link and not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_a_document_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert not set(re.findall(r"\]\(#([^)]+)\)", text)) - anchors

"""The documents hold: their code runs and prints what they show, and what they name exists.

A ``text`` block right below a ``python`` block is what the code prints, and a ``console`` block has
commands behind ``$`` with their output. ``...`` stands for anything, as in a doctest. A block that
begins with the name of a module, such as ``# mine.py``, is a file that later blocks can import.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

import pytest
from forked import run_forked

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))

ALONE = ("README.md", "docs/environment.md", "docs/interfaces.md", "docs/recipes/rllib.md")
"""Each block of these documents works when pasted alone; other documents run top to bottom."""

CODE = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
"""A Python block, and the output below it."""

FLAGS = ELLIPSIS | NORMALIZE_WHITESPACE
CHECKED = f"""import doctest, io, sys
class Shown(io.StringIO):
    def __init__(self):
        super().__init__()
        self.before, sys.stdout = sys.stdout, self
    def check(self, wanted):
        sys.stdout, found = self.before, self.getvalue()
        if not doctest.OutputChecker().check_output(wanted, found, {FLAGS}):
            raise AssertionError(f"the page shows\\n{{wanted}}\\nbut the code prints\\n{{found}}")
"""
"""Defines a stand-in for ``sys.stdout`` that compares what was printed."""

NO_TESTS = 5
"""How pytest exits when it collects nothing."""


def blocks_of(document: str) -> list[str]:
    """The Python blocks of a document, each at its own lines, with a check of the output."""
    blocks = []
    for block in CODE.finditer(document):
        code = "\n" * document.count("\n", 0, block.start(1)) + block[1]
        if block[2] is not None:
            code = f"exec({CHECKED!r}); shown = Shown(){code}shown.check({block[2]!r})\n"
        blocks.append(code)
    return blocks


def commands_of(document: str) -> list[tuple[str, str]]:
    """The commands of a document's ``console`` blocks, each with the output below it."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", document, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = re.sub(r"\\\n", "", part).partition("\n")
            found.append((command, output))
    return found


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


@pytest.mark.slow
def test_every_block_works_when_pasted_alone(tmp_path: Path) -> None:
    """Each block has its own namespace, but they share a process and Ray, which take long to start.

    So ids need the import in each.
    """
    blocks = [
        (name, block)
        for name in ALONE
        for block in blocks_of((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert {name for name, _ in blocks} == set(ALONE)
    assert not [
        block.strip() for _, block in blocks if '"ssp/' in block and "import ssp_env" not in block
    ]

    runner = f"for name, block in {blocks!r}:\n    exec(compile(block, name, 'exec'), {{}})\n"
    script = tmp_path / "blocks.py"
    script.write_text(runner, encoding="utf-8")
    ran = run_forked(script, cwd=tmp_path)

    # A traceback names the document and the line.
    assert ran.returncode == 0, f"{ran.stdout[-6000:]}{ran.stderr[-4000:]}"


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if name_of(d) not in ALONE], ids=name_of)
def test_python_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    """Top to bottom in one namespace, in an empty directory; pytest collects what it shows."""
    code = "".join(blocks_of(document.read_text(encoding="utf-8")))
    if not code:
        return

    text = document.read_text(encoding="utf-8")
    for name, module in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", text, re.DOTALL | re.M):
        (tmp_path / name).write_text(module, encoding="utf-8")
    script = tmp_path / f"{document.stem}.py"
    script.write_text(code, encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    ran = run_forked("pytest", *options, script.name, cwd=tmp_path)

    assert ran.returncode in (0, NO_TESTS), f"{ran.stdout}{ran.stderr}"[-8000:]
    shown = len(re.findall(r"^class Test", code, re.MULTILINE))
    assert (ran.returncode == NO_TESTS) == (shown == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if commands_of(d.read_text(encoding="utf-8"))], ids=name_of
)
def test_commands_of_a_document_print_what_it_shows(document: Path, tmp_path: Path) -> None:
    """Top to bottom in one directory, which has a link to ``examples``."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    for command, output in commands_of(document.read_text(encoding="utf-8")):
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        same = OutputChecker().check_output(output, ran.stdout, FLAGS)
        assert same, f"{command}\n--- the page shows\n{output}\n--- it prints\n{ran.stdout}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_what_a_document_names_exists(document: Path) -> None:
    """Files, links with their anchors, and functions as ``path/to/file.py:Class.method``."""
    text = document.read_text(encoding="utf-8")
    folders = "ssp_env|agents|experiments|benchmarks|docs|tests|examples"
    paths = set(re.findall(rf"`((?:{folders})/[\w./-]+)`", text))
    missing = [path for path in paths if not (ROOT / path).exists()]

    for link in set(re.findall(r"\]\(([^):]+)\)", text)):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            missing.append(link)

    for path, names in set(re.findall(r"`([\w/]+\.py):([\w.]+)`", text)):
        source = (ROOT / path).read_text(encoding="utf-8")
        missing += [
            f"{path}:{name}"
            for name in names.split(".")
            if not re.search(rf"^ *(async def|def|class) {name}\b", source, re.MULTILINE)
        ]
    assert not missing


def test_every_surprise_has_its_proof_and_every_script_its_row() -> None:
    """That tests and scripts exist, the test above sees to."""
    lines = (ROOT / "docs" / "surprises.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if re.match(r"\| (?!library)", line)]
    proofs = [re.findall(r"\.\./findings/[\w.-]+\.sh|`[\w/]+\.py:test_\w+`", row) for row in rows]
    assert not [row for row, proof in zip(rows, proofs, strict=True) if not proof]
    shown = sorted(Path(proof).name for found in proofs for proof in found if proof[0] == ".")
    assert shown == sorted(path.name for path in (ROOT / "findings").iterdir())


def anchors_of(document: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_links_to_exists_and_its_cells_have_been_run(path: Path) -> None:
    """As they are kept; `make notebooks` runs them, as CI does."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    links = re.findall(r"\]\((?!https?:)([^)#]+)", "".join(texts))
    assert not [link for link in links if not (path.parent / link).exists()]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]

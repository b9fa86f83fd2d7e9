"""The notebooks run, here with fewer steps; `make notebooks` runs them as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from forked import run_forked

NOTEBOOKS = sorted(Path(__file__).parents[1].glob("docs/notebooks/*.ipynb"))
BEGINNING = """\
import os, shlex
from ssp_env.cli import main

os.environ["MPLBACKEND"] = "agg"


def shell(line):
    name, *words = shlex.split(line)
    assert name == "ssp" and main(words) == 0


"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    """Its cells as one script, without Jupyter."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert sources
    code = re.sub(r"^!(.*)$", r"shell('''\1''')", "\n\n".join(sources), flags=re.MULTILINE)
    # The last of two steps is looked at in place of the last of six.
    code = re.sub(r"--(steps?) [36]\b", r"--\1 2", code).replace("per_group=5", "per_group=1")
    script = tmp_path / f"{path.stem}.py"
    script.write_text(BEGINNING + code + "\n", encoding="utf-8")

    ran = run_forked(script, cwd=tmp_path)
    assert ran.status == 0, f"{ran.output[-4000:]}{ran.errors[-4000:]}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_links_to_exists_and_its_cells_have_been_run(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    links = re.findall(r"\]\((?!https?:)([^)#]+)", "".join(texts))
    assert not [link for link in links if not (path.parent / link).exists()]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]

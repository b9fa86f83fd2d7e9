"""The notebooks as they are kept; `make notebooks` runs them, as CI does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted(Path(__file__).parents[1].glob("docs/notebooks/*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_links_to_exists_and_its_cells_have_been_run(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    links = re.findall(r"\]\((?!https?:)([^)#]+)", "".join(texts))
    assert not [link for link in links if not (path.parent / link).exists()]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]

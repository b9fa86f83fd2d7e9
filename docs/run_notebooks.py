"""Runs the notebooks and keeps what they show: ``make notebooks``."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).with_name("notebooks")


def main() -> None:
    """Runs each in an empty directory. Warnings that the notebook prints are not kept."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        began, notebook = time.monotonic(), nbformat.read(path, nbformat.current_nbformat)
        with tempfile.TemporaryDirectory() as folder:
            place = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=600, resources=place, record_timing=False).execute()
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

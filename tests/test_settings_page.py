"""docs/settings.md is what its script writes."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "make_settings.py"))["page"]()
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == page, "run `make settings`"

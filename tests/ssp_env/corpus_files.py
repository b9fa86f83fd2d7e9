"""Corpora on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ssp_env.types import Document


def jsonl(path: Path, documents: Iterable[Document]) -> Path:
    """Writes passages as a corpus, a line each; returns the path."""
    rows = ({"id": d.id, "title": d.title, "text": d.text} for d in documents)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path

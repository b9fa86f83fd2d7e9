"""Where the learners beside this file write their curves."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path


def curve_file(name: str) -> Path:
    """The type of ``--out``: a file whose folder is created before the training starts."""
    path = Path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be written ({error.strerror})") from error

    return path


def write_curve(path: Path | None, points: Sequence[dict[str, float]]) -> None:
    """Writes a curve as JSON lines, one an update, if there is a file for it."""
    if path is not None:
        path.write_text("".join(json.dumps(point) + "\n" for point in points), encoding="utf-8")

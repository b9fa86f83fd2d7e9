"""``metrics.jsonl`` of a run as it is read again, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ssp_env.errors import RunError

EVALUATED = ("accuracy", "interval")
"""What a line with an evaluation holds for each group of questions."""


def read_metrics(path: Path, *, growing: bool = False) -> list[dict[str, Any]]:
    """All lines of a file of metrics.

    Args:
        path: the file.
        growing: a run is writing: leave out a last line whose end is not there yet.

    Raises:
        RunError: there are none, or one is no line of metrics; names the line.
    """
    try:
        texts = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path.parent} holds no metrics: {error}") from error

    if growing and texts and not texts[-1].endswith("\n"):
        texts.pop()
    if not texts:
        raise RunError(f"{path} is empty")
    return [_line(f"{path}:{number}", text) for number, text in enumerate(texts, start=1)]


def _line(place: str, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        what = f"not JSON ({error})" if text.endswith("\n") else "cut off: a run was stopped"
        raise RunError(f"{place}: {what}") from error

    if not isinstance(line, dict) or type(line.get("step")) is not int:
        raise RunError(f"{place}: no line of metrics: an object with a 'step' is wanted")
    _check_evaluation(place, line)
    return line


def _check_evaluation(place: str, line: dict[str, Any]) -> None:
    """
    Raises:
        RunError: accuracies and intervals are not of the same groups, or no numbers.
    """
    accuracy, interval = (line.get(name, {}) for name in EVALUATED)
    other = "another version of this package may have written it"
    if not isinstance(accuracy, dict) or not isinstance(interval, dict):
        raise RunError(f"{place}: 'accuracy' and 'interval' are to be objects; {other}")

    for group, value in accuracy.items():
        ends = interval.get(group)
        pair = ends if isinstance(ends, list) and len(ends) == 2 else [None, None]
        if not all(isinstance(number, int | float) for number in (value, *pair)):
            what = f"group {group!r} has no accuracy with an interval of two numbers"
            raise RunError(f"{place}: {what}; {other}")

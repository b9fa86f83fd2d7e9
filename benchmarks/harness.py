"""Command line, provenance and side-by-side timing: what all benchmarks share."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ssp_experiments.run.process import provenance

ROOT = Path(__file__).resolve().parents[1]


def parser(description: str | None, seed: bool = True) -> argparse.ArgumentParser:
    """A command line with ``--out`` and, unless nothing is drawn, ``--seed``."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", type=Path, required=True, help="where results are written")
    if seed:
        made.add_argument("--seed", type=int, default=0)
    return made


def origin() -> dict[str, Any]:
    """Command of this process, date, commit and machine: they stand at the head of each result."""
    spec = sys.modules["__main__"].__spec__
    name = spec.name.removesuffix(".__main__") if spec is not None else Path(sys.argv[0]).name
    return {**provenance(), "command": shlex.join(["python", "-m", name, *sys.argv[1:]])}


def write(out: Path, result: Mapping[str, Any]) -> None:
    """Writes a result as JSON, after its origin, and prints it."""
    text = json.dumps({**origin(), **result}, indent=1) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(text, end="")


def headline(result: Mapping[str, Any]) -> str:
    """A line of Markdown with the origin of a result."""
    return (
        f"`{result['command']}` on {result['date']}, commit {result['git_commit']}, "
        f"{result['machine']}."
    )


def in_turns(
    sides: Mapping[str, Callable[[], Any]], turns: int, *, warm: bool = True
) -> dict[str, list[Any]]:
    """Measures sides in turns: their answers by name, after one turn each to warm up unless every
    turn warms up by itself.

    A shared machine is slower at one moment than at another. Sides that take turns meet the same
    moments, so the ratio of their times says more than either time.
    """
    answers: dict[str, list[Any]] = {name: [] for name in sides}
    for number in range(0 if warm else 1, 1 + turns):
        # The order alternates, so that neither always has the warmer cache.
        for name in sorted(sides, reverse=number % 2 == 1):
            answer = sides[name]()
            if number:
                answers[name].append(answer)

    return answers

"""Command line, provenance and side-by-side timing: what all benchmarks share."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from ssp_experiments.run.process import git_commit, machine

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
    return {
        "command": shlex.join(["python", "-m", name, *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": machine(),
    }


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


def publish(
    folder: Path, title: str, about: str, result: Mapping[str, Any], cell: Callable[[Any], str]
) -> None:
    """Writes a result as JSON and as a page of Markdown, whose table has its ``shares``."""
    write(folder / f"{folder.name}.json", result)
    rows = {
        kind: {count: cell(share) for count, share in shares.items()}
        for kind, shares in result["shares"].items()
    }
    table = pd.DataFrame.from_dict(rows, orient="index").to_markdown()
    page = f"# {title}\n\n{headline(origin())}\n\n{about}\n\n{table}\n"
    (folder / f"{folder.name}.md").write_text(page, encoding="utf-8")


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> dict[str, Any]:
    """Ratios turn by turn, and their median."""
    pairs = [round(a / b, 4) for a, b in zip(numerators, denominators, strict=True)]
    return {"median": round(median(pairs), 4), "all": pairs}


@contextmanager
def side(command: Sequence[str]) -> Iterator[Callable[[], Any]]:
    """Starts a program that answers each line it reads with a line of JSON.

    Yields:
        A function without arguments: one turn of the program -> its answer.
    """
    process = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asked, answers = process.stdin, process.stdout

    def turn() -> Any:
        asked.write("\n")
        asked.flush()
        for line in answers:
            # Libraries may print as well.
            if line.startswith('{"'):
                return json.loads(line)
        raise RuntimeError(f"{command} ended with status {process.wait()}")

    try:
        yield turn
    finally:
        asked.close()
        process.wait(timeout=60)


def in_turns(sides: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, list[Any]]:
    """Measures sides in turns: their answers by name, after one turn each to warm up.

    A shared machine is slower at one moment than at another. Sides that take turns meet the same
    moments, so the ratio of their times says more than either time.
    """
    answers: dict[str, list[Any]] = {name: [] for name in sides}
    for number in range(1 + turns):
        # The order alternates, so that neither always has the warmer cache.
        for name in sorted(sides, reverse=number % 2 == 1):
            answer = sides[name]()
            if number:
                answers[name].append(answer)

    return answers

"""``ssp report``: writes the page of some runs; ``ssp view`` serves it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from experiments.report.page import runs_of_page, write_page
from experiments.report.runs import Run, open_runs
from ssp_env.errors import RunError


def run(arguments: Namespace) -> int:
    """Reads the runs, and writes the page once all of it is there."""
    out = Path(arguments.out or default_name(arguments.runs))
    if out.is_dir():
        raise RunError(f"--out {out} is a directory; name the file, such as {out / 'report.html'}")
    if not out.parent.is_dir():
        raise RunError(f"--out {out}: there is no directory {out.parent}")

    runs = open_runs(arguments.runs)
    if arguments.out is None:
        _check_same_runs(out, runs)
    written = write_page(runs, out, tokens=arguments.tokens, progress=_shown)

    number = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}"
    print(f"wrote {out} ({number}, {written:,} games, {out.stat().st_size / 1e6:.1f} MB)")
    for one in runs:
        if not one.files:
            print(f"{one.path} holds no games: curves and settings only")
    if written and not arguments.tokens:
        print("left out: token ids and log-probabilities (--tokens puts them in)")
    return 0


def default_name(paths: Sequence[str]) -> str:
    """The page's name if none is given, after the run directories."""
    first, *others = (Path(path).resolve().name for path in paths)
    if len(others) > 1:
        return f"report-{first}-and-{len(others)}-more.html"
    return f"report-{'-'.join([first, *others])}.html"


def _check_same_runs(out: Path, runs: Sequence[Run]) -> None:
    """
    Raises:
        RunError: a page of other runs, or something else, has the default name.
    """
    if not out.exists():
        return
    found = runs_of_page(out)
    if found is None:
        raise RunError(f"{out} is there already, and is no report; name another file by --out")
    # Runs are named as seen from here, where the page with its own name lies too.
    if [Path(path).resolve() for path in found] != [run.path.resolve() for run in runs]:
        raise RunError(
            f"{out} is a report of other runs ({', '.join(found)}); name another file by --out, "
            f"or name this one to replace it"
        )


def _shown(steps: list[Any]) -> Any:
    return track(steps, description="reading games", console=Console(stderr=True), transient=True)

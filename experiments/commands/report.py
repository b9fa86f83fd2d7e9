"""``ssp report``: writes the page of some runs; ``ssp view`` serves it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from experiments.report.page import write_page
from experiments.report.runs import open_runs
from ssp_env.errors import RunError


def run(paths: Sequence[str], *, out: str | None = None, tokens: bool = False) -> int:
    """Reads the runs, and writes the page once all of it is there; see
    :func:`experiments.cli.report`."""
    page = Path(out or default_name(paths))
    if page.is_dir():
        raise RunError(
            f"--out {page} is a directory; name the file, such as {page / 'report.html'}"
        )
    if not page.parent.is_dir():
        raise RunError(f"--out {page}: there is no directory {page.parent}")

    runs = open_runs(paths)
    written = write_page(runs, page, tokens=tokens, progress=_shown)

    number = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}"
    print(f"wrote {page} ({number}, {written:,} games, {page.stat().st_size / 1e6:.1f} MB)")
    for one in runs:
        if not one.files:
            print(f"{one.path} holds no games: curves and settings only")
    if written and not tokens:
        print("left out: token ids and log-probabilities (--tokens puts them in)")
    return 0


def default_name(paths: Sequence[str]) -> str:
    """The page's name if none is given, after the run directories."""
    first, *others = (Path(path).resolve().name for path in paths)
    if len(others) > 1:
        return f"report-{first}-and-{len(others)}-more.html"
    return f"report-{'-'.join([first, *others])}.html"


def _shown(steps: list[Any]) -> Any:
    return track(steps, description="reading games", console=Console(stderr=True), transient=True)

"""``ssp report``: writes the page of some runs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from experiments.report.collect import Run, open_runs
from experiments.report.page import LARGEST, Written, write_page
from ssp_env.errors import SSPError


def run(arguments: Namespace) -> int:
    """Reads the runs, and writes the page once all of it is there."""
    out = Path(arguments.out)
    if out.is_dir():
        raise SSPError(f"--out {out} is a directory; name the file, such as {out / 'report.html'}")

    if not out.parent.is_dir():
        raise SSPError(f"--out {out}: there is no directory {out.parent}")

    runs = open_runs(arguments.runs)
    written = write_page(runs, out, tokens=arguments.tokens, progress=_shown)
    _tell(runs, written, arguments.tokens)
    return 0


def _shown(steps: list[Any]) -> Any:
    return track(steps, description="reading games", console=Console(stderr=True), transient=True)


def _tell(runs: list[Run], written: Written, tokens: bool) -> None:
    number = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}"
    print(f"wrote {written.path} ({number}, {written.games:,} games, {_mb(written.size)})")

    for one in runs:
        if not one.files:
            print(f"{one.path} holds no games: curves and settings only")
    if written.games and not tokens:
        print("left out: token ids and log-probabilities (--tokens puts them in)")
    if written.beside is not None:
        print(
            f"the games lie beside it in {written.beside} ({_mb(written.beside_size)}), since a "
            f"page with them would be larger than {_mb(LARGEST)}: keep the two together"
        )


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

"""``ssp report`` and ``ssp view``: the page of some runs, as a file or served while they go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from ssp_env.disk import replacing
from ssp_env.replay import read_games
from ssp_experiments.options import plural
from ssp_experiments.report.page import described, game_html, packed, page_html, row
from ssp_experiments.report.runs import open_runs
from ssp_experiments.report.server import Viewer


def report(paths: Sequence[str], out: str | None = None, tokens: bool = False) -> int:
    """Writes the page; without ``out``, it is named after the runs."""
    runs = open_runs(paths)
    more = f"-and-{len(paths) - 1}-more" if len(paths) > 1 else ""
    page = Path(out or f"report-{Path(paths[0]).resolve().name}{more}.html")
    steps = [(place, step) for place, run in enumerate(runs) for step in run.files]
    indexes: list[dict[int, Any]] = [{} for _ in runs]
    with replacing(page) as file:
        scripts = {"data": packed(described(runs, live=False))}
        console = Console(stderr=True)
        for place, step in track(steps, "reading games", console=console, transient=True):
            saved = list(read_games(runs[place].files[step]))
            indexes[place][step] = [row(game.record) for game in saved]
            shown = {g.record.index: game_html(runs[place].key, step, g, tokens) for g in saved}
            scripts[f"step_{step}_{place}"] = packed(shown)
        scripts |= {f"index_{place}": packed(index) for place, index in enumerate(indexes)}
        file.write(page_html(runs, scripts))

    games = sum(len(rows) for index in indexes for rows in index.values())
    size = page.stat().st_size / 1e6
    print(f"wrote {page} ({plural(len(runs), 'run')}, {plural(games, 'game')}, {size:.1f} MB)")
    if games and not tokens:
        print("left out: token ids and log-probabilities (--tokens puts them in)")
    return 0


def view(paths: Sequence[str], host: str, port: int) -> int:
    """Serves the page until Ctrl-C."""
    with Viewer(paths, host, port) as server:
        address = f"http://{host}:{server.server_port}/"
        print(f"ssp view: {', '.join(paths)} at {address} (Ctrl-C ends it)", flush=True)
        server.serve_forever()
    return 0

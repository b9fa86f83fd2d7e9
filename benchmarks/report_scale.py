"""The page of ``ssp report`` at 100,000 games: what it takes to write, to load, and to use.

The steps of a short run that was really played are repeated under new numbers until there are so
many games, and the page is used in headless Chromium (which has to be installed). It is loaded at
desktop and phone width, in light and dark colours, and once more as ``ssp view`` serves it.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

from tests.experiments.report.chromium import Page

from benchmarks.origin import origin
from experiments.report.server import Viewer, open_server

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
LOADS = 5
"""How often the page is loaded in each way."""
CHARTS = "document.querySelectorAll('.chart svg').length > 5"
ROWS = "document.querySelectorAll('.row').length >= 10"
COUNT = "document.querySelector('.count')?.textContent"


def main() -> int:
    """Plays, repeats, writes the page and uses it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run", type=Path, help="a run that was played; else 3 steps of tiny are")
    parser.add_argument("--games", type=int, default=100_000, help="0: the run as it was played")
    settings = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        shutil.copytree(settings.run or _played(Path(folder) / "short"), run)
        games, steps = _repeat(run, settings.games)
        page = Path(folder) / "report.html"
        figures = {"games": games, "steps": steps, **_written(run, page)}
        with Page(Path(folder) / "profile") as browser:
            figures |= _used(browser, page, steps)
            figures["loads"] = _loaded(browser, page.as_uri())
            figures["loads_of_ssp_view"] = _served(browser, run)
            figures["console_errors"] = len(browser.errors)

    result = {**origin("report_scale"), "browser": "headless Chromium", **figures}
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


def _played(run: Path) -> Path:
    ssp = str(Path(sys.executable).with_name("ssp"))
    few = ["--steps", "3", "--set", "evaluation.per_group=20", "--quiet"]
    subprocess.run([ssp, "train", "--preset", "tiny", "--out", str(run), *few], check=True)
    return run


def _repeat(run: Path, wanted: int) -> tuple[int, int]:
    """Repeats a run's steps until there are so many games; returns how many, in how many steps."""
    played = sorted((run / "games").iterdir())
    counts = [sum(1 for _ in file.open()) - 1 for file in played]
    if not wanted:
        return sum(counts), len(played)
    header, *lines = (run / "metrics.jsonl").read_text().splitlines()
    figures = [json.loads(line) for line in lines[: len(played)]]

    games = step = 0
    repeated = [header]
    while games < wanted:
        step, place = step + 1, step % len(played)
        target = run / "games" / f"step_{step:06d}.jsonl"
        if not target.exists():
            shutil.copyfile(played[place], target)
        repeated.append(json.dumps({**figures[place], "step": step}))
        games += counts[place]

    (run / "metrics.jsonl").write_text("\n".join(repeated) + "\n")
    return games, step


def _written(run: Path, page: Path) -> dict[str, float]:
    """Writes the page; what it took."""
    ssp = str(Path(sys.executable).with_name("ssp"))
    began = time.perf_counter()
    subprocess.run([ssp, "report", str(run), "-o", str(page)], check=True)
    # The folder beside it that holds the games, where they do not fit into the page.
    chunks = [file.stat().st_size for file in page.parent.glob("report_games/*")]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "write_seconds": round(time.perf_counter() - began, 1),
        "write_peak_mb": round(peak / 1024, 1),
        "page_mb": round(page.stat().st_size / 1e6, 2),
        "chunks": len(chunks),
        "chunks_mb": round(sum(chunks) / 1e6, 1),
        "largest_chunk_kb": round(max(chunks, default=0) / 1e3, 1),
    }


def _loaded(browser: Page, url: str) -> dict[str, dict[str, Any]]:
    """Seconds from an address to its curves, and whether anything is wider than the window."""
    found: dict[str, dict[str, Any]] = {}
    for (name, (width, height)), dark in product(SIZES.items(), (False, True)):
        browser.look(width, height, dark)
        seconds = []
        for _ in range(LOADS):
            browser.open("about:blank")
            browser.wait("location.href === 'about:blank'")
            began = time.perf_counter()
            browser.open(url)
            browser.wait(CHARTS, 120)
            seconds.append(round(time.perf_counter() - began, 2))

        wide = browser.value("document.documentElement.scrollWidth") > width
        found[f"{name}, {'dark' if dark else 'light'}"] = {
            "median_seconds": median(seconds),
            "seconds": seconds,
            "overflows": wide,
        }
    return found


def _served(browser: Page, run: Path) -> dict[str, dict[str, Any]]:
    """The same of the page that ``ssp view`` serves."""
    with open_server(Viewer([str(run)]), "127.0.0.1", 0) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            return _loaded(browser, f"http://127.0.0.1:{server.server_port}/")
        finally:
            browser.open("about:blank")  # it asks for news no more
            server.shutdown()
            thread.join()


def _used(browser: Page, page: Path, steps: int) -> dict[str, float | int]:
    """Loads the page, opens the list, the last game, a filter; seconds that a reader waits."""
    browser.look(*SIZES["desktop"])
    seconds: dict[str, float | int] = {}

    def timed(name: str, condition: str) -> None:
        began = time.perf_counter()
        browser.wait(condition, 120)
        seconds[f"{name}_seconds"] = round(time.perf_counter() - began, 2)

    browser.open(page.as_uri())
    timed("load", CHARTS)
    browser.value("location.hash = 'games'")
    timed("list", ROWS)
    browser.value(f"location.hash = 'run/{steps}/0'")
    timed("last_game", f"document.querySelector('.game .meta')?.textContent.includes('{steps},')")
    browser.value("location.hash = 'games'")
    browser.wait(ROWS)
    whole = browser.value(COUNT)
    browser.value(
        "(() => { const search = document.querySelector('input[type=search]');"
        "search.value = 'birthplace'; search.dispatchEvent(new Event('input')); })()"
    )
    timed("search", f"{COUNT} !== {json.dumps(whole)}")

    heap = browser("Runtime.getHeapUsage")["usedSize"]
    return {**seconds, "heap_mb": round(heap / 1e6, 1), "shown": whole}


if __name__ == "__main__":
    sys.exit(main())

"""This checkout beside another one: environment, training step, search server, imports.

    python -m benchmarks.speed ../before/.venv/bin/python --out speed.json

Both take turns in the same run, on one thread each. A ratio above 1 says that this checkout is
faster. Times are CPU-seconds, which other work on the machine changes little.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.harness import in_turns, parser, ratio, side, write

SIDE = Path(__file__).with_name("speed_side.py")
UNITS = {
    "aec": "tokens per second, step by step (PettingZoo)",
    "batch": "tokens per second, whole turns of 64 games (GameBatch)",
    "step": "training steps of the tiny policy per second",
    "server": "search requests per second of the server's CPU (BM25 over wiki-mini)",
    "import": "`import ssp_env` per second",
    "help": "`ssp --help` per second",
}


def main() -> int:
    """Measures both and writes the ratios."""
    options = parser(__doc__, seed=False)
    options.add_argument("other", type=Path, help="the Python of the other checkout's environment")
    options.add_argument("--this", type=Path, default=sys.executable, help="the same of this one")
    options.add_argument("--turns", type=int, default=7, help="timed ones of each side")
    options.add_argument("--only", nargs="+", choices=UNITS, default=list(UNITS))
    settings = options.parse_args()
    # Not resolved: the link's place is what makes it the Python of its environment.
    pythons = {"this": settings.this.absolute(), "other": settings.other.absolute()}

    found = {name: _measured(name, pythons, settings.turns) for name in settings.only}
    commits = {f"commit_of_{name}": _commit(python) for name, python in pythons.items()}
    write(settings.out, {**commits, "turns": settings.turns, **found})
    return 0


def _measured(name: str, pythons: dict[str, Path], turns: int) -> dict[str, Any]:
    with ExitStack() as stack:

        def measure_of(python: Path) -> Callable[[], Any]:
            match name:
                case "import":
                    return _timed([str(python), "-P", "-c", "import ssp_env"])
                case "help":
                    return _timed([str(python.with_name("ssp")), "--help"])
                case "server":
                    return stack.enter_context(_server(python))
            return stack.enter_context(side([str(python), "-P", str(SIDE), name]))

        sides = {which: measure_of(python) for which, python in pythons.items()}
        answers = in_turns(sides, 2 * turns if name in ("import", "help") else turns)

    rates = {n: [a.get("rate") or 1 / a["seconds"] for a in some] for n, some in answers.items()}
    compared = ratio(rates["this"], rates["other"])
    result: dict[str, Any] = {
        "unit": UNITS[name],
        **{which: round(median(rate), 3) for which, rate in rates.items()},
        "this_of_other": compared,
    }
    peaks = {n: max(a.get("peak_mib", 0) for a in some) for n, some in answers.items()}
    if any(peaks.values()):
        result["peak_mib"] = {n: round(peak) for n, peak in peaks.items()}
    print(f"{name}: {compared['median']:.3f} of the other", file=sys.stderr, flush=True)
    return result


def _timed(command: list[str]) -> Callable[[], dict[str, float]]:
    """CPU-seconds of a command."""

    def measure() -> dict[str, float]:
        process = subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"{command} failed"
        return {"seconds": usage.ru_utime + usage.ru_stime}

    return measure


@contextmanager
def _server(python: Path) -> Iterator[Callable[[], dict[str, float]]]:
    """A search server; yields a load of 16 clients with one query per request."""
    command = [str(python.with_name("ssp")), "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = 0
    for line in process.stdout:
        if found := re.search(r"http://[\d.]+:(\d+)", line):
            port = int(found[1])
            break
    numbers = iter(range(1 << 30))

    def client(requests: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as server:
            for _ in range(requests):
                query = f"Who wrote the opera number {next(numbers)} of the year ?"
                asked = {"queries": [query], "topk": 3, "return_scores": True}
                server.post("/retrieve", json=asked).raise_for_status()

    def measure() -> dict[str, float]:
        before = _cpu_seconds(process.pid)
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(client, [250] * 16))
        return {"rate": 4000 / (_cpu_seconds(process.pid) - before)}

    try:
        yield measure
    finally:
        process.terminate()
        process.wait()


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process, of Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _commit(python: Path) -> str:
    """The commit of the checkout that a Python imports."""
    code = "import ssp_env; print(ssp_env.__path__[0])"
    command = [str(python), "-P", "-c", code]
    folder = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    git = ["git", "-C", folder, "describe", "--always", "--abbrev=40", "--dirty=+changes"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

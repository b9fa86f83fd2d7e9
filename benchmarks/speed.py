"""This checkout beside another one: environment, training step, search server, imports.

    python -m benchmarks.speed ../before/.venv/bin/python --out speed.json

Both take turns in the same run, on one thread each. A ratio above 1 says that this checkout is
faster. Times are CPU-seconds, which other work on the machine changes little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.harness import in_turns, parser, write

SIDE = Path(__file__).with_name("speed_side.py")
UNITS = {
    "aec": "tokens per second, step by step (PettingZoo)",
    "batch": "tokens per second, whole turns of 64 games (TurnVectorEnv)",
    "step": "tokens of games per second, in training steps of the tiny policy",
    "server": "search requests per second of the server's CPU (BM25 over wiki-mini)",
    "import": "`import ssp_env` per second",
    "help": "`ssp --help` per second",
}


def main() -> None:
    """Measures both and writes the ratios."""
    options = parser(__doc__, seed=False)
    options.add_argument("other", type=Path, help="the Python of the other checkout's environment")
    options.add_argument("--this", type=Path, default=sys.executable, help="the same of this one")
    options.add_argument("--turns", type=int, default=7, help="timed ones of each side")
    options.add_argument("--only", nargs="+", choices=UNITS, default=list(UNITS))
    settings = options.parse_args()
    # Not resolved: the link's place is what makes it the Python of its environment.
    pythons = {"this": settings.this.absolute(), "other": settings.other.absolute()}

    found = {name: measured(name, pythons, settings.turns) for name in settings.only}
    commits = {f"commit_of_{name}": commit_of(python) for name, python in pythons.items()}
    write(settings.out, {**commits, "turns": settings.turns, **found})


def measured(name: str, pythons: dict[str, Path], turns: int) -> dict[str, Any]:
    """Medians of both sides, and ratios turn by turn."""
    with ExitStack() as stack:
        sides = {
            which: stack.enter_context(side([str(python), "-P", str(SIDE), name]))
            for which, python in pythons.items()
        }
        answers = {which: pd.DataFrame(some) for which, some in in_turns(sides, turns).items()}

    ratios = (answers["this"]["rate"] / answers["other"]["rate"]).round(4)
    print(f"{name}: {ratios.median():.3f} of the other", file=sys.stderr, flush=True)
    return {
        "unit": UNITS[name],
        **{which: some.median().round(3).to_dict() for which, some in answers.items()},
        "this_of_other": {"median": ratios.median(), "all": ratios.to_list()},
    }


@contextmanager
def side(command: Sequence[str]) -> Iterator[Callable[[], Any]]:
    """Starts a program that answers each line it reads with a line of JSON.

    Yields:
        A function without arguments: one turn of the program -> its answer.
    """
    # With compiled modules kept, as a user's imports find them.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def turn() -> Any:
            asked.write("\n")
            asked.flush()
            # Libraries may print as well.
            told = next((line for line in answers if line.startswith('{"')), None)
            if told is None:
                raise RuntimeError(f"{command} ended with status {process.wait()}")
            return json.loads(told)

        yield turn


def commit_of(python: Path) -> str:
    """The commit of the checkout that a Python imports."""
    code = "import ssp_env; print(ssp_env.__path__[0])"
    command = [str(python), "-P", "-c", code]
    folder = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    git = ["git", "-C", folder, "describe", "--always", "--abbrev=40", "--dirty=+changes"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()

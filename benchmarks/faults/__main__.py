"""``python -m benchmarks.faults``."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import benchmarks.faults
from benchmarks.faults.memory import memory
from benchmarks.faults.policies import broken, diverged, nan
from benchmarks.faults.processes import GAME, LEARNING, STEPS, learner, moved, runners, tune
from benchmarks.faults.services import disk, judge, search, shared_disk
from benchmarks.runs import SMALL
from experiments.run.provenance import git_commit, machine

CASES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "runners": runners,
    "moved": moved,
    "learner": learner,
    "tune": tune,
    "search": search,
    "judge": judge,
    "disk": disk,
    "shared": shared_disk,
    "memory": memory,
    "nan": nan,
    "broken": broken,
    "diverged": diverged,
}


def main() -> int:
    """Does them all, or those that are named; the others stay in the results as they were."""
    parser = argparse.ArgumentParser(
        description=benchmarks.faults.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="results file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    settings = parser.parse_args()

    held = [_do(name, settings) for name in settings.cases]
    return 0 if all(held) else 1


def _do(name: str, settings: argparse.Namespace) -> bool:
    """Does one, in a process of its own: Ray starts anew. Writes what came of it."""
    began = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        place = Path(folder) / name
        place.mkdir()
        with context.Pool(1) as process:
            case = process.apply(CASES[name], (place, settings.seed))

    case["seconds"] = round(time.perf_counter() - began, 1)
    case["date"] = datetime.now(UTC).strftime("%Y-%m-%d")
    case["git_commit"] = git_commit()
    print(name, json.dumps(case), flush=True)

    found = json.loads(settings.out.read_text())["cases"] if settings.out.exists() else {}
    found[name] = case
    result = {
        "cases": found,
        "held": all(case["held"] for case in found.values()),
        "settings": {
            "through RLlib": {**LEARNING, **GAME, "steps": STEPS},
            "ssp train": SMALL,
            "seed": settings.seed,
        },
        "command": "python -m benchmarks.faults --out FILE",
        "machine": machine(),
    }
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return bool(case["held"])


if __name__ == "__main__":
    sys.exit(main())

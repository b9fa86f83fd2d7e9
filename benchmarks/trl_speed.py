"""GRPO steps of this package against TRL's ``GRPOTrainer``: same model, questions, n and lengths.

Each side is a process that takes a step in turn (``trl_worker.py`` says what a step is), with one
thread; times are CPU-seconds of that process. Needs the extra that brings TRL.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.origin import origin
from benchmarks.side_by_side import ROOT, in_turns

WORKER = Path(__file__).with_name("trl_worker.py")


def main() -> int:
    """Trains in turns and writes the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=8, help="timed ones of each, after one more")
    settings = parser.parse_args()
    sides = {name: (ROOT, WORKER, (name,)) for name in ("ours", "trl")}
    found = in_turns(sides, settings.steps)

    result = {
        **origin("trl_speed"),
        "versions": {name: version(name) for name in ("trl", "transformers", "torch")},
        "threads": 1,
        "seed": 0,
        **{name: summary(steps) for name, steps in found.items()},
        "ours_times_as_fast": {
            "per_trajectory": ratios(found, "trajectories"),
            "per_token": ratios(found, "tokens"),
            "per_own_token": ratios(found, "own"),
        },
        "steps": found,
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({n: v for n, v in result.items() if n != "steps"}, indent=2))
    return 0


def summary(steps: list[dict[str, Any]]) -> dict[str, float]:
    """Milliseconds per unit, and how long trajectories were."""
    per = {
        f"ms_per_{name}": median(1000 * step["seconds"] / step[unit] for step in steps)
        for name, unit in (("trajectory", "trajectories"), ("token", "tokens"))
    }
    lengths = {
        f"{unit}_per_trajectory": fmean(step[unit] / step["trajectories"] for step in steps)
        for unit in ("tokens", "own")
    }
    return per | lengths | {"reward": fmean(step["reward"] for step in steps)}


def ratios(found: dict[str, list[Any]], unit: str) -> dict[str, Any]:
    """TRL's time over ours, per unit, turn by turn."""
    costs = {name: [s["seconds"] / s[unit] for s in steps] for name, steps in found.items()}
    pairs = [b / a for a, b in zip(costs["ours"], costs["trl"], strict=True)]
    return {"median": median(pairs), "all": pairs}


if __name__ == "__main__":
    sys.exit(main())

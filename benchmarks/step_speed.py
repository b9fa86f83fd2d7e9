"""A training step at ``tiny`` on one thread, in turns with an earlier commit's; the game's share.

Both train the policy that ships, from the same seed and with their own preset. They do not play
the same games, since seeds came to mean something else, but games of the same kind and number;
tokens are counted. Times are CPU-seconds of the process, which does all of the work.

The game is everything but the engine and the learner: rules, prompts, parsing, search, filters,
verification, judging and records.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import fmean, median
from typing import Any

from agents.models import tiny_directory
from benchmarks.origin import origin
from benchmarks.side_by_side import ROOT, check_out, in_turns

WORKER = Path(__file__).with_name("step_worker.py")


def main() -> int:
    """Trains in turns and writes the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--earlier", default="cbcefec", help="a commit to compare with")
    parser.add_argument("--turns", type=int, default=6, help="timed ones of each, after one more")
    parser.add_argument("--steps", type=int, default=5, help="of a turn")
    settings = parser.parse_args()

    arguments = (str(tiny_directory()), str(settings.steps))
    with tempfile.TemporaryDirectory() as folder:
        earlier = check_out(settings.earlier, Path(folder) / "earlier")
        sides = {"today": (ROOT, WORKER, arguments), "earlier": (earlier, WORKER, arguments)}
        found = in_turns(sides, settings.turns)

    turns = {name: [turn["steps"] for turn in answers] for name, answers in found.items()}
    spent = {name: [_mean(turn, "cpu_seconds") for turn in some] for name, some in turns.items()}
    pairs = [a / b for a, b in zip(spent["today"], spent["earlier"], strict=True)]
    result = {
        **origin("step_speed"),
        "earlier_commit": settings.earlier,
        "threads": 1,
        "seed": 0,
        "steps": settings.turns * settings.steps,
        "today": _summary(turns["today"]),
        "earlier": _summary(turns["earlier"]),
        "today_of_earlier": {"median": median(pairs), "all": pairs},
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))

    return 0


def _summary(turns: list[list[dict[str, float]]]) -> dict[str, Any]:
    steps = [step for turn in turns for step in turn]
    tokens = sum(step["policy_tokens"] for step in steps)
    parts = {name: _mean(steps, name) for name in ("engine", "learn", "game")}
    return {
        "cpu_seconds_per_step": {
            "median": median(step["cpu_seconds"] for step in steps),
            "mean": _mean(steps, "cpu_seconds"),
            "max": max(step["cpu_seconds"] for step in steps),
        },
        "policy_tokens_per_step": tokens / len(steps),
        "cpu_seconds_per_1000_tokens": 1000 * sum(s["cpu_seconds"] for s in steps) / tokens,
        "clock_seconds_per_step": parts,
        "game_share": parts["game"] / sum(parts.values()),
    }


def _mean(steps: list[dict[str, float]], name: str) -> float:
    return fmean(step[name] for step in steps)


if __name__ == "__main__":
    sys.exit(main())

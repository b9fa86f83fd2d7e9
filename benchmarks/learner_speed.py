"""The learner against a bare PyTorch loop and against an earlier commit's, on the same rows.

Rows are those of some steps of the preset ``tiny``, played by the policy that ships. Each side is a
process that learns from them in turn, with one thread; times are CPU-seconds of that process, which
other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch

from agents.models import tiny_directory
from agents.rows import Row
from benchmarks.learner_worker import UPDATES
from benchmarks.origin import origin
from benchmarks.side_by_side import ROOT, check_out, in_turns
from benchmarks.tiny_rounds import Table

WORKER = Path(__file__).with_name("learner_worker.py")


def main() -> int:
    """Plays, measures, writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--earlier", default="cbcefec", help="a commit to compare with")
    parser.add_argument("--steps", type=int, default=5, help="whose rows are learnt from")
    parser.add_argument("--turns", type=int, default=6, help="timed ones of every side")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    table = Table()
    slots = table.config.learning.batch_size
    rounds = [
        table.play([settings.seed, step], table.engine(), slots) for step in range(settings.steps)
    ]
    batches = [table.rows(round_) for round_ in rounds]

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.pickle"
        file.write_bytes(pickle.dumps([[plain(row) for row in batch] for batch in batches]))
        earlier = check_out(settings.earlier, Path(folder) / "earlier")
        what = (str(file), str(tiny_directory()))
        sides = {
            "bare loop": (ROOT, WORKER, ("bare", *what)),
            "update": (ROOT, WORKER, ("update", *what)),
            "learner": (ROOT, WORKER, ("learner", *what)),
            "earlier learner": (earlier, WORKER, ("learner", *what)),
        }
        found = in_turns(sides, settings.turns)

    result = {
        **origin("learner_speed"),
        "earlier_commit": settings.earlier,
        "threads": 1,
        "seed": settings.seed,
        "rows": [len(batch) for batch in batches],
        "tokens": [sum(len(row.ids) for row in batch) for batch in batches],
        "tokens_of_different_rows": [
            sum(len(ids) for ids in {tuple(row.ids.tolist()) for row in batch}) for batch in batches
        ],
        **summary(found, batches),
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


def summary(found: dict[str, list[Any]], batches: list[list[Row]]) -> dict[str, Any]:
    """Medians over turns, and the ratios that are aimed at."""
    seconds = {name: [turn["seconds"] for turn in turns] for name, turns in found.items()}
    read = sum(sum(len(row.ids) for row in batches[i % len(batches)]) for i in range(UPDATES))

    def ratio(one: str, other: str) -> dict[str, Any]:
        pairs = [a / b for a, b in zip(seconds[one], seconds[other], strict=True)]
        return {"median": median(pairs), "all": pairs}

    return {
        "cpu_seconds_per_update": {n: median(s) / UPDATES for n, s in seconds.items()},
        "tokens_per_cpu_second": {n: read / median(s) for n, s in seconds.items()},
        "update_of_bare_loop": ratio("bare loop", "update"),
        "learner_of_bare_loop": ratio("bare loop", "learner"),
        "learner_times_earlier": ratio("earlier learner", "learner"),
        "losses_of_first_turn": {name: turns[0]["losses"] for name, turns in found.items()},
    }


def plain(row: Row) -> tuple[Any, ...]:
    """A row as every commit can read it: what its first seven fields are."""
    return (row.ids, row.mask, row.logprobs, row.role, row.game, row.advantage, row.weight)


if __name__ == "__main__":
    sys.exit(main())

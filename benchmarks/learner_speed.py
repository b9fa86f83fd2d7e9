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
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from agents.config import LearningConfig
from agents.credit import Credit
from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from agents.rollout import play
from agents.rows import Row, rows_of, with_loss_weights
from benchmarks.learner_worker import UPDATES
from benchmarks.side_by_side import ROOT, check_out, in_turns
from experiments.config import load_preset, make_config
from experiments.run.provenance import git_commit, machine
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import GroundTruth
from ssp_env.worlds import open_world

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
    batches = [rows_of_step(settings.seed, step) for step in range(settings.steps)]

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
        "command": " ".join(["python -m benchmarks.learner_speed", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "earlier_commit": settings.earlier,
        "machine": machine(),
        "threads": 1,
        "seed": settings.seed,
        "rows": [len(batch) for batch in batches],
        "tokens": [sum(len(row.ids) for row in batch) for batch in batches],
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


def rows_of_step(seed: int, step: int) -> list[Row]:
    """What a step of ``tiny`` learns from, played by the policy that ships."""
    config = make_config(load_preset("tiny"))
    tokenizer = HuggingFaceTokenizer.load(tiny_directory())
    rules = Rules.build(open_world(config.world), tokenizer, config.game)
    engine = TransformersEngine(
        load_model(tiny_directory()), tokenizer, StopRule.of(config.game, tokenizer)
    )

    def answers(rng: np.random.Generator, count: int) -> list[GroundTruth]:
        every = rules.world.answers
        return [every[i] for i in rng.choice(len(every), count, replace=False)]

    learning: LearningConfig = config.learning
    round_ = Round(rules, answers, learning.batch_size, [seed, step])
    play(round_, engine, temperature=learning.temperature)
    rows = Credit(learning)(rows_of(round_.games, learning))
    return with_loss_weights(rows, learning, learning.batch_size, config.game.attempts)


def plain(row: Row) -> tuple[Any, ...]:
    """A row as every commit can read it: what its first seven fields are."""
    return (row.ids, row.mask, row.logprobs, row.role, row.game, row.advantage, row.weight)


if __name__ == "__main__":
    sys.exit(main())

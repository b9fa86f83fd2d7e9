"""Where more env runners stop helping: a simulation from recorded latencies.

Recorded are the CPU-seconds of rounds of several sizes of the preset ``tiny`` and of updates from
their rows, and, by ``benchmarks/runners.py``, what a call of a runner and the handing-over of
weights cost. The simulation draws rounds from these and deals them as ``agents/rllib/runners.py``
does: the next one to whoever is free. Every runner has a core of its own.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any

import numpy as np
import torch

from agents.columns import columns_of
from agents.models import load_model, tiny_directory
from agents.rows import Row
from agents.scoring import TokenScorer
from agents.update import Update
from benchmarks.origin import origin
from benchmarks.tiny_rounds import Table

SIZES = (1, 4, 8, 32)
"""Questions of a round."""
RUNNERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
BATCH = 256
"""Questions of the paper's step."""
DRAWS = 200


@dataclass(frozen=True)
class Recorded:
    """What was measured, in seconds."""

    rounds: dict[int, list[float]]
    """By size, those of whole rounds."""
    learner: float
    """Of an update, per question of the step."""
    call: float
    """Of the main process, per round that it hands out."""
    handover: float
    """Of the weights, per runner."""


@dataclass(frozen=True)
class Step:
    """A simulated step."""

    play: float
    learn: float
    hand_over: float
    longest: float
    """Its longest round."""
    calls: float
    """What the main process spends on handing out rounds."""

    @property
    def seconds(self) -> float:
        """One after the other."""
        return self.play + self.learn + self.hand_over

    @property
    def overlapping(self) -> float:
        """With ``compute.overlap``."""
        return max(self.play, self.learn) + self.hand_over


def simulated(
    recorded: Recorded,
    rng: np.random.Generator,
    *,
    questions: int,
    size: int,
    runners: int,
    learners: int = 1,
) -> Step:
    """One step.

    Args:
        recorded: what rounds are drawn from.
        rng: draws them.
        questions: of the step.
        size: of a round.
        runners: each plays a round at a time.
        learners: share the update evenly, at no cost of their own.
    """
    longest, ends, main = 0.0, [0.0] * runners, 0.0
    count = -(-questions // size)
    for seconds in rng.choice(recorded.rounds[size], count):
        main = max(main, heapq.heappop(ends)) + recorded.call
        heapq.heappush(ends, main + seconds)
        longest = max(longest, float(seconds))

    return Step(
        play=max(ends),
        learn=recorded.learner * questions / learners,
        hand_over=recorded.handover * runners,
        longest=longest,
        calls=count * recorded.call,
    )


def scaled(recorded: Recorded, grows: bool, size: int, learners_grow: bool) -> dict[str, Any]:
    """Means over draws, by number of runners.

    Args:
        recorded: what rounds are drawn from.
        grows: whether each runner brings a round of its own into the step; else there are ``BATCH``
            questions.
        size: of a round.
        learners_grow: whether there is a learner per eight runners; else there is one.
    """
    found: dict[str, Any] = {}
    for runners in RUNNERS:
        rng = np.random.default_rng(runners)
        questions = size * runners if grows else BATCH
        learners = max(1, runners // 8) if learners_grow else 1
        how = {"questions": questions, "size": size, "runners": runners, "learners": learners}
        steps = [simulated(recorded, rng, **how) for _ in range(DRAWS)]
        means = {
            name: fmean(getattr(step, name) for step in steps)
            for name in ("seconds", "overlapping", "play", "learn", "hand_over", "longest", "calls")
        }
        found[str(runners)] = {
            **means,
            "questions_per_second": questions / means["seconds"],
            "questions_per_second_overlapping": questions / means["overlapping"],
            "busy_share_of_runners": fmean(recorded.rounds[size])
            * -(-questions // size)
            / (runners * means["play"]),
            "bound_by": bound(means),
        }
    return found


def bound(means: dict[str, float]) -> str:
    """What most of a step goes to."""
    parts = {"learner": means["learn"], "handing over weights": means["hand_over"]}
    if means["play"] < 1.1 * means["longest"]:
        parts["the longest round"] = means["play"]
    elif means["play"] < 1.3 * means["calls"]:
        parts["handing out rounds"] = means["play"]
    else:
        parts["rounds per runner"] = means["play"]
    return max(parts, key=parts.__getitem__)


def record(rounds: int, calls: Path) -> Recorded:
    """Plays and learns in this process.

    Args:
        rounds: of each size, at least.
        calls: the results of ``benchmarks/runners.py``.
    """
    table = Table()
    table.play([0], table.engine(), 4)  # to warm up
    played: dict[int, list[float]] = {}
    rows: list[list[Row]] = []
    for size in SIZES:
        played[size] = []
        for number in range(max(rounds, 16 // size)):
            engine, began = table.engine(), process_time()
            round_ = table.play([size, number], engine, size)
            played[size].append(process_time() - began)
            if size == SIZES[-1]:
                rows.append(table.rows(round_))

    costs = json.loads(calls.read_text())["call_seconds"]
    one, two = costs["1"], costs["2"]
    return Recorded(
        played,
        _learner(table, [batch for batch in rows if batch]) / SIZES[-1],
        one["empty_call_of_all"],
        max(0.0, two["handing_over"] - one["handing_over"]),
    )


def _learner(table: Table, batches: Sequence[list[Row]]) -> float:
    """CPU-seconds of an update."""
    size = table.rules.tokenizer.vocab_size
    policy = TokenScorer(load_model(tiny_directory()), 1.0, size)
    reference = TokenScorer(load_model(tiny_directory()), 1.0, size, entropies=False)
    adam = torch.optim.Adam(policy.parameters(), lr=1e-6)
    learning = table.config.learning
    update = Update(policy, adam, learning, reference=reference.requires_grad_(False))
    columns = [
        {name: torch.as_tensor(column) for name, column in columns_of(batch).items()}
        for batch in batches
    ]
    update(columns[0], 1)
    began = process_time()
    for step, batch in enumerate(columns, 1):
        update(batch, step)
    return (process_time() - began) / len(columns)


def main() -> int:
    """Records, simulates, writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--calls", type=Path, default=Path("benchmarks/results/runners.json"))
    parser.add_argument("--rounds", type=int, default=4, help="recorded ones of each size")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    recorded = record(settings.rounds, settings.calls)

    result = {
        **origin("runners_simulated"),
        "seed": 0,
        "draws": DRAWS,
        "recorded": vars(recorded),
        "cpu_seconds_per_question": {n: fmean(s) / n for n, s in recorded.rounds.items()},
        f"{BATCH} questions, by size of round": {
            size: scaled(recorded, False, size, False) for size in SIZES
        },
        "32 questions per runner, one learner": scaled(recorded, True, 32, False),
        "32 questions per runner, a learner per 8": scaled(recorded, True, 32, True),
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    for name, value in result.items():
        if "questions" in name and name != "cpu_seconds_per_question":
            print(name, json.dumps(value, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Turns as they finish against lock-step, with the same engine, searches and turn lengths.

Turns are as unequal as those of a policy that reasons (log-normal lengths), and every search takes
its time on another machine (log-normal, here a pause). In lock-step, all trajectories write a turn,
then all searches are made at once, and the slowest decides; else each goes on by itself, as in
``agents/rollout.py``.

Both sample the same tokens, up to the arithmetic of batches: other rows beside it change the last
digits of a row's logits. Where a trajectory differs, the result says how near its random number was
to the border between both tokens, in a distribution that is computed for this trajectory alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from agents.engines.base import Generation, Request, StopRule, generate
from agents.engines.transformers_engine import TransformersEngine
from agents.engines.turn import Turn
from agents.errands import Errands
from agents.models import load_model, tiny_directory
from benchmarks.origin import origin
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.tokenizers.base import Tokenizer

OBSERVATION = 24
"""Tokens of what a search finds."""


class Work:
    """Trajectories whose turns and searches are decided beforehand."""

    def __init__(self, count: int, turns: int, settings: argparse.Namespace, seed: int) -> None:
        rng = np.random.default_rng(seed)
        lengths = rng.lognormal(np.log(settings.turn_tokens), settings.spread, (count, turns))
        self.lengths = np.clip(lengths.round(), 4, settings.turn_tokens * 6).astype(int)
        self.pauses = rng.lognormal(np.log(settings.search_seconds), 0.5, (count, turns))
        self.texts = rng.integers(30, 900, (count, turns + 1, OBSERVATION)).tolist()
        self.ids = [list(self.texts[i][0]) for i in range(count)]
        self.turn = [0] * count

    def request(self, i: int) -> Request:
        seed = i * 1000 + self.turn[i]
        return Request(i, self.ids[i], int(self.lengths[i, self.turn[i]]), 1.0, seed)

    def place(self, i: int, at: int) -> tuple[int, int]:
        """The turn that wrote a token of a trajectory, and its place in that turn."""
        begin = OBSERVATION
        for turn, length in enumerate(self.lengths[i].tolist()):
            if at < begin + length:
                return turn, at - begin
            begin += length + OBSERVATION
        raise ValueError(f"trajectory {i} has no token {at}")

    def take(self, i: int, generation: Generation) -> float | None:
        """Notes a turn; how long its search takes, ``None`` after the last."""
        turn = self.turn[i]
        self.turn[i] += 1
        self.ids[i] += generation.ids
        if self.turn[i] == self.lengths.shape[1]:
            return None
        self.ids[i] += self.texts[i][self.turn[i]]
        return float(self.pauses[i, turn])


def lock_step(engine: TransformersEngine, work: Work) -> None:
    """All write, all search, and again."""
    going = list(range(len(work.ids)))
    while going:
        found = generate(engine, [work.request(i) for i in going])
        pauses = {i: work.take(i, turn) for i, turn in zip(going, found, strict=True)}
        going = [i for i in going if pauses[i] is not None]
        time.sleep(max((pause for pause in pauses.values() if pause is not None), default=0.0))


def streaming(engine: TransformersEngine, work: Work) -> None:
    """Each goes on when it can."""
    with Errands(len(work.ids)) as errands:

        def search(i: int, pause: float) -> None:
            errands.send(lambda: time.sleep(pause), lambda _: engine.submit([work.request(i)]))

        engine.submit([work.request(i) for i in range(len(work.ids))])
        while engine.running or errands:
            for i, generation in engine.step() if engine.running else []:
                pause = work.take(i, generation)
                if pause is not None:
                    search(i, pause)
            errands.collect(patience=not engine.running)


@torch.inference_mode()
def differences(one: Work, other: Work, model: Any, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Where the tokens of trajectories part, and by how much their random numbers decided it."""
    found = []
    for i, (left, right) in enumerate(zip(one.ids, other.ids, strict=True)):
        pairs = enumerate(zip(left, right, strict=True))
        at = next((at for at, (a, b) in pairs if a != b), None)
        if at is None:
            continue

        turn, number = one.place(i, at)
        request = Request(i, left[: at - number], number + 1, 1.0, i * 1000 + turn)
        draws = Turn(request, StopRule(frozenset(), ()), tokenizer)
        drawn = [draws.draw() for _ in range(number + 1)][-1]

        logits = model(torch.tensor([left[:at]])).logits[0, -1, : tokenizer.vocab_size]
        reached = torch.log_softmax(logits, dim=-1).exp().cumsum(dim=-1, dtype=torch.float64)
        border = float(reached[min(left[at], right[at])] / reached[-1])
        found.append({"trajectory": i, "token": at, "drawn": drawn, "from_border": drawn - border})
    return found


def main() -> int:
    """Plays the same work in both ways, in turn, and writes the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trajectories", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--turn-tokens", type=float, default=40.0, help="median length of a turn")
    parser.add_argument("--spread", type=float, default=0.9, help="standard deviation of its log")
    parser.add_argument("--search-seconds", type=float, default=0.3, help="median of a search")
    parser.add_argument("--repeats", type=int, default=3)
    settings = parser.parse_args()
    torch.set_num_threads(1)

    tokenizer = HuggingFaceTokenizer.load(tiny_directory())
    model = load_model(tiny_directory())
    ways: dict[str, Callable[[TransformersEngine, Work], None]] = {
        "lock_step": lock_step,
        "streaming": streaming,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    played: dict[str, list[Work]] = {name: [] for name in ways}
    for seed in range(settings.repeats):
        for name, way in ways.items():
            work = Work(settings.trajectories, settings.turns, settings, seed)
            engine = TransformersEngine(model, tokenizer, StopRule(frozenset(), ()))
            began, busy = time.perf_counter(), time.process_time()
            way(engine, work)
            seconds[name].append(time.perf_counter() - began)
            processor[name].append(time.process_time() - busy)
            played[name].append(work)

    ratios = [a / b for a, b in zip(seconds["lock_step"], seconds["streaming"], strict=True)]
    parted = [
        differences(*pair, model, tokenizer)
        for pair in zip(played["lock_step"], played["streaming"], strict=True)
    ]
    result = {
        **origin("streaming"),
        "seconds": seconds,
        "processor_seconds": processor,
        "speedup": {"median": median(ratios), "all": ratios},
        "same_tokens": [not found for found in parted],
        "trajectories": settings.trajectories,
        "first_differences": parted,
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

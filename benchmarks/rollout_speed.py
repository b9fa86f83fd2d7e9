"""Whole rounds against the bare engine, on the same generated turns.

Rounds of the preset ``tiny`` are played by the policy that ships, with services of this process,
and become training rows and records. All that the engine was asked for is noted. Then an engine
gets the same requests again: once in the same steps, and once as a caller without a game would make
them, all of a phase at a time, each turn waiting for the last of the turn before. Tokens have to
come out the same. Times are CPU-seconds of this process, in turns, with one thread; those of the
engine within the round are of the same moment as the round's, so their ratio is the steadiest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

from agents.engines.base import Generation, Request, generate
from agents.engines.transformers_engine import TransformersEngine
from agents.rows import rows_of
from benchmarks.origin import origin
from benchmarks.tiny_rounds import Table
from ssp_env.game.record import record_game


class Noted:
    """An engine that notes what it is asked for."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine
        self.calls: list[tuple[str, Any]] = []
        self.turns: dict[tuple[int, int], list[int]] = {}
        self._count: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, requests: Sequence[Request]) -> None:
        """As the engine's."""
        copies = [replace(request, ids=list(request.ids)) for request in requests]
        self.calls.append(("submit", copies))
        self._engine.submit(requests)

    def release(self, keys: Iterable[int]) -> None:
        """As the engine's."""
        kept = list(keys)
        self.calls.append(("release", kept))
        self._engine.release(kept)

    def step(self) -> list[tuple[int, Generation]]:
        """As the engine's."""
        self.calls.append(("step", None))
        finished = self._engine.step()
        for key, generation in finished:
            turn = self._count[key] = self._count.get(key, -1) + 1
            self.turns[key, turn] = list(generation.ids)
        return finished


class Watched:
    """An engine that notes how long it was at work, in CPU-seconds."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine, self.seconds = engine, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, requests: Sequence[Request]) -> None:
        """As the engine's."""
        with self._noted():
            self._engine.submit(requests)

    def release(self, keys: Iterable[int]) -> None:
        """As the engine's."""
        with self._noted():
            self._engine.release(keys)

    def step(self) -> list[tuple[int, Generation]]:
        """As the engine's."""
        with self._noted():
            return self._engine.step()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        began = process_time()
        yield
        self.seconds += process_time() - began


def whole_round(table: Table, seed: int, engine: Any) -> int:
    """A round, its rows and records, as an env runner has them; returns the policy's tokens."""
    learning = table.config.learning
    round_ = table.play([seed], engine, learning.batch_size)
    records = [record_game(game, table.rules, 0) for game in round_.games]
    rows_of(round_.games, learning)
    return sum(t.policy_tokens for record in records for t in record.trajectories)


def same_steps(engine: TransformersEngine, calls: Sequence[tuple[str, Any]]) -> None:
    """What the game asked for, when it asked for it."""
    for name, argument in calls:
        if name == "step":
            engine.step()
        else:
            getattr(engine, name)(argument)


def lock_step(engine: TransformersEngine, waves: Sequence[list[Request]]) -> list[Generation]:
    """The same turns, all of a wave at a time."""
    return [turn for wave in waves for turn in generate(engine, wave)]


def waves_of(calls: Sequence[tuple[str, Any]]) -> list[list[Request]]:
    """Requests by phase (trajectories that began together) and number of the turn."""
    began: dict[int, int] = {}
    turn: dict[int, int] = {}
    waves: dict[tuple[int, int], list[Request]] = {}
    for number, requests in enumerate(argument for name, argument in calls if name == "submit"):
        for request in requests:
            phase = began.setdefault(request.key, number)
            turn[request.key] = turn.get(request.key, -1) + 1
            waves.setdefault((phase, turn[request.key]), []).append(request)

    return [waves[wave] for wave in sorted(waves)]


def measured(table: Table, seed: int) -> dict[str, Any]:
    """One round and its turns again."""
    noted = Noted(table.engine())
    whole_round(table, seed, noted)
    waves = waves_of(noted.calls)

    watched, began = Watched(table.engine()), process_time()
    tokens = whole_round(table, seed, watched)
    whole = process_time() - began

    engine, began = table.engine(), process_time()
    same_steps(engine, noted.calls)
    bare = process_time() - began

    engine, began = table.engine(), process_time()
    turns = lock_step(engine, waves)
    waiting = process_time() - began

    seen: dict[int, int] = {}
    for request, turn in zip((r for wave in waves for r in wave), turns, strict=True):
        number = seen[request.key] = seen.get(request.key, -1) + 1
        assert turn.ids == noted.turns[request.key, number], "the engine sampled other tokens"

    seconds = {
        "whole_round": whole,
        "engine_within": watched.seconds,
        "engine_same_steps": bare,
        "engine_lock_step": waiting,
    }
    passes = sum(name == "step" for name, _ in noted.calls)
    return {"tokens": tokens, "requests": len(turns), "passes": passes, "cpu_seconds": seconds}


def main() -> int:
    """Plays, replays, and writes the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=12)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    table = Table()
    measured(table, settings.rounds)  # to warm up
    rounds = [measured(table, seed) for seed in range(settings.rounds)]

    def rates(name: str) -> list[float]:
        return [played["tokens"] / played["cpu_seconds"][name] for played in rounds]

    def ratio(bare: str) -> dict[str, Any]:
        pairs = [a / b for a, b in zip(rates("whole_round"), rates(bare), strict=True)]
        return {"median": median(pairs), "all": pairs}

    result = {
        **origin("rollout_speed"),
        "threads": 1,
        "seeds": list(range(settings.rounds)),
        "tokens_per_cpu_second": {n: median(rates(n)) for n in rounds[0]["cpu_seconds"]},
        "whole_round_of_engine_within": ratio("engine_within"),
        "whole_round_of_engine_same_steps": ratio("engine_same_steps"),
        "whole_round_of_engine_lock_step": ratio("engine_lock_step"),
        "rounds": rounds,
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

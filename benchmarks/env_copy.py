"""What a copy of a game in the middle costs, as tree search makes them, over wiki-mini.

CPU-milliseconds are medians on one core; bytes are what ``tracemalloc`` says that one copy holds.
The proposer of the game has searched so often and is in the middle of its next turn."""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import sys
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from pettingzoo import AECEnv

from benchmarks.env_speed import stay_on_one_core
from benchmarks.workload import play_tokens
from experiments.run.provenance import git_commit, machine
from ssp_env.doors.aec import env as make_env

SEARCHES = (0, 1, 3, 6, 10)
QUERIES = ("river", "painter", "city of the north", "film", "mountain", "king", "album", "war")
BOUNDS = {"milliseconds": 1.0, "bytes": 100_000}
"""What a copy may cost at most."""


def main() -> int:
    """Measures and writes one document."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tokenizer", help="the world's own when not given")
    parser.add_argument("--repetitions", type=int, default=200)
    settings = parser.parse_args()

    host = machine()
    stay_on_one_core()
    setup = {} if settings.tokenizer is None else {"tokenizer": settings.tokenizer}
    games = [measure(searches, settings.repetitions, **setup) for searches in SEARCHES]
    result = {
        "command": " ".join(["python -m benchmarks.env_copy", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": host,
        "bounds": BOUNDS,
        "games": games,
        "within_bounds": {
            name: all(game[name] <= bound for game in games) for name, bound in BOUNDS.items()
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if settings.out is not None:
        settings.out.write_text(text + "\n", encoding="utf-8")
    return 0


def measure(searches: int, repetitions: int, **setup: Any) -> dict[str, Any]:
    """A copy, and a pickle, of a game whose proposer has searched so often."""
    env = midgame(searches, **setup)
    proposer = env.unwrapped.game.proposer
    data = pickle.dumps(env)
    pickle.loads(data)  # the first one opens the world

    return {
        "searches": searches,
        "tokens": len(proposer.ids),
        "milliseconds": cost(lambda: copy.deepcopy(env), repetitions),
        "bytes": held(env),
        "pickle_bytes": len(data),
        "pickle_milliseconds": cost(lambda: pickle.loads(pickle.dumps(env)), repetitions),
    }


def midgame(searches: int, **setup: Any) -> AECEnv:
    """A game whose proposer has searched so often, and has begun to write again."""
    env = make_env(world="wiki-mini", **setup)
    env.reset(seed=0)
    encode = env.unwrapped.rules.tokenizer.encode
    for number in range(searches):
        query = f"{QUERIES[number % len(QUERIES)]} {1900 + number}"
        play_tokens(env, encode(f"<think> next </think><search> {query} </search>"))

    play_tokens(env, encode("<think> and now"))
    assert len(env.unwrapped.game.proposer.searches) == searches, "the budget is too small"
    env.last()
    return env


def cost(action: Any, repetitions: int) -> float:
    """Median CPU-milliseconds of an action."""
    spent = []
    for _ in range(repetitions):
        begin = process_time()
        action()
        spent.append(process_time() - begin)
    return round(1e3 * median(spent), 3)


def held(env: AECEnv) -> int:
    """Bytes that a copy holds beyond what it shares."""
    copy.deepcopy(env)  # what all copies share comes into being with the first
    tracemalloc.start()
    twin = copy.deepcopy(env)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del twin
    return size


if __name__ == "__main__":
    sys.exit(main())

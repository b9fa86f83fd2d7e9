"""Memory over many resets, and of games under way; each measurement needs a fresh process."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload import asked, make_env, make_rules, play_tokens, reset, script
from ssp_env.game.config import GameConfig
from ssp_env.types import Role

STATM = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of this process that are in memory (Linux)."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resets(count: int, samples: int = 100) -> dict[str, Any]:
    """Resident memory over resets of one environment; between two, the proposer searches once.

    The first tenth is warm-up: caches fill, the allocator takes its arenas.
    """
    env, first = make_env(GameConfig()), script(1)[Role.PROPOSER][0]
    every, seen = max(1, count // samples), []
    for index in range(count):
        reset(env, index)
        play_tokens(env, first)
        if (index + 1) % every == 0:
            seen.append(resident())

    warm = seen[len(seen) // 10 :]
    slope = float(np.polyfit(np.arange(len(warm)) * every, warm, 1)[0]) if len(warm) > 1 else 0.0
    return {
        "resets": count,
        "start_bytes": warm[0],
        "end_bytes": warm[-1],
        "max_bytes": max(warm),
        "growth_percent": round(100 * (warm[-1] / warm[0] - 1), 3),
        "slope_bytes_per_reset": round(slope, 2),
    }


def live_games(door: str, games: int, tokens: int) -> dict[str, Any]:
    """Bytes that a game holds whose trajectory, prompt included, has at least so many tokens.

    ``aec``: a game brings its environment along, spaces and all, but not what environments share
    (the world). ``round``: a game of a round, which holds log-probabilities as an engine hands them
    over. Resident memory is over all games; ``allocated_bytes`` is tracemalloc's figure, over a
    tenth of them."""
    make = {"aec": _aec_games, "round": _round_games}[door]
    return {"games": games, "tokens": tokens, **_held(lambda count: make(count, tokens), games)}


def _held(make: Callable[[int], Any], games: int) -> dict[str, int]:
    kept = make(1)  # whatever games share comes into being with the first one
    gc.collect()
    before = resident()
    many = make(games)
    gc.collect()
    held = (resident() - before) // games
    del many
    few = max(1, games // 10)
    tracemalloc.start()
    some = make(few)
    gc.collect()
    allocated = tracemalloc.get_traced_memory()[0] // few
    tracemalloc.stop()
    del kept, some

    return {"resident_bytes": held, "allocated_bytes": allocated}


def _aec_games(count: int, tokens: int) -> list[Any]:
    envs = []
    for seed in range(count):
        env = make_env(GameConfig())
        reset(env, seed)
        proposer = env.unwrapped.game.proposer

        for turn in script(GameConfig().max_searches)[Role.PROPOSER]:
            if len(proposer.ids) < tokens:
                play_tokens(env, turn)

        assert not proposer.done, "the script is too short"
        envs.append(env)

    return envs


def _round_games(count: int, tokens: int) -> Any:
    rng = np.random.default_rng(0)
    round_ = asked(make_rules(GameConfig(attempts=1)), count, 0)
    turns = iter(script(GameConfig().max_searches)[Role.SOLVER])

    while len((pending := round_.pending())[0].ids) < tokens:
        turn = next(turns)
        for trajectory in pending:
            trajectory.feed(turn, rng.random(len(turn)).tolist())
        round_.advance()

    return round_

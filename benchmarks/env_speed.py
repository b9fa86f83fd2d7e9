"""How fast and how large the environment is, beside the peers that install from PyPI.

CPU-seconds of one process on one core. Rates are medians over repetitions, in each of which
everything is measured once, so that ours and the peers alternate. Rules are the paper's (the
defaults), over bytes and a stub retriever."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median
from time import process_time
from typing import Any

from benchmarks.env_growth import growth
from benchmarks.env_memory import live_games, resets
from benchmarks.origin import origin
from benchmarks.peers import NOT_MEASURED, Peers
from benchmarks.workload import (
    asked,
    game_tokens,
    make_env,
    make_rules,
    play_game,
    play_round,
    proposed,
    script,
)
from ssp_env.game.config import GameConfig
from ssp_env.game.outcome import Outcome
from ssp_env.types import Role

AEC_SEARCHES, TURN_SEARCHES, ROUND_SEARCHES = 2, 9, 3
"""Searches of a trajectory: in the AEC game, in rounds of given questions, in rounds of whole
games."""

LIVE_TOKENS = 4096

Measure = Callable[[float], float]
"""Runs for that many CPU-seconds; returns steps per CPU-second."""


def main() -> int:
    """Measures everything and writes one document."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="CPU-seconds of each measurement of a rate"
    )
    parser.add_argument(
        "--longest", type=int, default=32768, help="tokens of the longest transcript"
    )
    parser.add_argument("--resets", type=int, default=10_000)
    parser.add_argument("--live-games", type=int, default=200)
    parser.add_argument(
        "--peers-venv", type=Path, default=Path("build/peers"), help="made where it is missing"
    )
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    settings = parser.parse_args()
    source = {
        **origin("env_speed"),
    }
    stay_on_one_core()
    result = {**source, **measure(settings)}
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))

    return 0


def stay_on_one_core() -> None:
    """This process and those that it starts."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def measure(settings: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    peers = None if settings.no_peers else Peers(settings.peers_venv)
    memory = {
        "live_aec_game": fresh(live_games, "aec", settings.live_games, LIVE_TOKENS),
        "live_round_game": fresh(live_games, "round", settings.live_games, LIVE_TOKENS),
        "resets": fresh(resets, settings.resets),
    }
    rates = measure_rates(peers, settings.repetitions, settings.seconds)
    result = {
        "cores": 1,
        "repetitions": settings.repetitions,
        "workload": describe(),
        "rates": rates,
        "left_out": NOT_MEASURED if peers is None else peers.left_out(),
        "growth": growth(settings.longest, settings.repetitions),
        **memory,
    }

    return {**result, "targets": targets(result)}


def fresh(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """The function's result, from a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def describe() -> dict[str, Any]:
    """Sizes of what is played, in tokens."""
    turns, round_ = script(TURN_SEARCHES), asked(make_rules(GameConfig(attempts=1)), 1, 0)
    trajectory = round_.pending()[0]
    play_round(round_, turns)
    searching = [len(turn) for turn in turns[Role.SOLVER][:-1]]
    observed = len(trajectory.ids) - trajectory.prompt_length - sum(map(len, turns[Role.SOLVER]))

    return {
        "tokenizer": "bytes",
        "tokens_per_search_turn": round(fmean(searching), 1),
        "tokens_per_observation": round(observed / len(searching), 1),
        "documents_per_observation": GameConfig().top_k,
        "observation_length_of_aec": make_env(GameConfig())
        .observation_space("proposer")["observation"]
        .shape[0],
        "policy_tokens_per_aec_game": len(game_tokens(script(AEC_SEARCHES), GameConfig())),
        "turns_per_question": len(turns[Role.SOLVER]),
    }


def measure_rates(peers: Peers | None, repetitions: int, seconds: float) -> dict[str, Any]:
    """Median and spread of each rate; ours and the peers' take turns."""
    rows: dict[str, list[float]] = {}
    about: dict[str, dict[str, str]] = {}
    ours = our_measures()

    for _ in range(repetitions):
        for name, run in ours.items():
            rows.setdefault(name, []).append(run(seconds))
        for name in peers.names() if peers is not None else ():
            found = peers.measure(name, seconds)
            rows.setdefault(name, []).append(found["rate"])
            about[name] = {"version": found["version"]}

    return {
        name: {"unit": unit(name), **about.get(name, {}), **spread(values)}
        for name, values in rows.items()
    }


def unit(name: str) -> str:
    """What a rate counts."""
    if name.startswith("aec"):
        return "token steps per CPU-second"
    if name.startswith("turns"):
        return "turns per CPU-second (ids to ids and mask)"

    return (
        "moves per CPU-second"
        if "tictactoe" in name
        else "turns per CPU-second (strings; no tokens, no mask)"
    )


def spread(values: list[float]) -> dict[str, float]:
    """Middle, least and most."""
    return {"median": round(median(values)), "min": round(min(values)), "max": round(max(values))}


def our_measures() -> dict[str, Measure]:
    """Ours, after each was seen to play as scripted."""
    return {
        "aec_raw": aec_measure(wrapped=False),
        "aec": aec_measure(wrapped=True),
        "turns_batch_64": turns_measure(games=64, whole=False),
        "turns_batch_8": turns_measure(games=8, whole=False),
        "turns_whole_games_64": turns_measure(games=64, whole=True),
    }


def aec_measure(wrapped: bool) -> Measure:
    """Whole games through ``last()``/``step()``; resets and dead steps take time only."""
    config = GameConfig()
    env, tokens = make_env(config, wrapped), game_tokens(script(AEC_SEARCHES), config)
    play_game(env, tokens, 0)
    check(env.unwrapped.game.outcome)

    def run(seconds: float) -> float:
        count, begin = 0, process_time()
        while (spent := process_time() - begin) < seconds:
            count += 1
            play_game(env, tokens, count)

        return count * len(tokens) / spent

    return run


def turns_measure(games: int, whole: bool) -> Measure:
    """Whole turns of many games, searches served in batches; making the rounds is included.

    Args:
        games: how many side by side.
        whole: propose, verify and solve; otherwise each game is one attempt at a given question.
    """
    rules = make_rules(GameConfig() if whole else GameConfig(attempts=1))
    begin_round, turns = (
        (proposed, script(ROUND_SEARCHES)) if whole else (asked, script(TURN_SEARCHES))
    )
    round_ = begin_round(rules, games, 0)
    play_round(round_, turns)
    for game in round_.games:
        check(game.outcome)

    def run(seconds: float) -> float:
        count, number, begin = 0, 0, process_time()
        while (spent := process_time() - begin) < seconds:
            number += 1
            count += play_round(begin_round(rules, games, number), turns)

        return count / spent

    return run


def check(outcome: Outcome) -> None:
    """The script has to make well-formed games; anything else would be another measurement.

    Raises:
        RuntimeError: it did not.
    """
    if outcome is not Outcome.VALID:
        raise RuntimeError(f"the scripted game ended {outcome}, not valid")


def targets(result: dict[str, Any]) -> dict[str, Any]:
    """Issue 3's targets beside what was measured; peers are compared where they were."""
    rates = {name: rate["median"] for name, rate in result["rates"].items()}
    worst = max(
        kind["largest_ratio"]
        for door in ("aec", "feed")
        for kind in result["growth"][door].values()
    )
    found = {
        "aec_steps": _at_least(50_000, rates["aec_raw"]),
        "turns": _at_least(35_000, rates["turns_batch_64"]),
        "flat_cost": _at_most(1.1, worst),
        "live_aec_game_bytes": _at_most(200_000, result["live_aec_game"]["resident_bytes"]),
        "live_round_game_bytes": _at_most(200_000, result["live_round_game"]["resident_bytes"]),
        "reset_growth_percent": _at_most(1.0, result["resets"]["growth_percent"]),
    }

    for ours, theirs in (("aec_raw", "pettingzoo_tictactoe_raw"), ("aec", "pettingzoo_tictactoe")):
        if theirs in rates:
            found[f"{ours}_over_{theirs}"] = _at_least(1.0, round(rates[ours] / rates[theirs], 2))

    return found


def _at_least(wanted: float, measured: float) -> dict[str, Any]:
    return {"at_least": wanted, "measured": measured, "met": measured >= wanted}


def _at_most(wanted: float, measured: float) -> dict[str, Any]:
    return {"at_most": wanted, "measured": measured, "met": measured <= wanted}


if __name__ == "__main__":
    sys.exit(main())

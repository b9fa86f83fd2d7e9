"""Plays random games of hostile players in a hostile world, and checks each of them.

A game follows from the seed and its number: the one that fails is named, and ``--only`` plays it
alone."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import traceback
from collections import Counter
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.fuzz.games import play
from benchmarks.origin import origin

REPLAY_EVERY = 100
WARM_UP = 0.1
"""Share of the games after which all tables are set and memory has to be flat."""


def main() -> int:
    """Plays, and writes what was played; 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", type=int, help="the number of a single game to play (and to replay)"
    )
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    logging.getLogger("ssp_env").setLevel(logging.ERROR)  # void games are meant here
    outcomes: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    void: Counter[str] = Counter()
    memory: dict[str, float] = {}
    objects: dict[str, int] = {}
    started = perf_counter()
    numbers = range(settings.games) if settings.only is None else [settings.only]
    marks = {
        0: "start",
        int(len(numbers) * WARM_UP): "warm",
        len(numbers) // 2: "middle",
        len(numbers) - 1: "end",
    }
    columns = (TextColumn("games"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())

    with Progress(*columns, console=Console(stderr=True)) as bar:
        for done, number in enumerate(bar.track(numbers)):
            try:
                games = play(
                    settings.seed, number, settings.only is not None or number % REPLAY_EVERY == 0
                )
            except Exception:
                bar.stop()
                traceback.print_exc()
                print(
                    f"\nfailed: python -m benchmarks.fuzz --seed {settings.seed} --only {number}",
                    file=sys.stderr,
                )

                return 1

            outcomes.update(
                str(game.outcome) if game.reason is None else f"{game.outcome}: {game.reason}"
                for game in games
            )
            endings.update(f"{t.role}: {t.ending}" for game in games for t in game.trajectories())
            void.update(
                f"{game.outcome}: {attempt.outage.service}"
                for game in games
                for attempt in game.attempts
                if attempt.outage is not None
            )

            if done in marks:
                gc.collect()
                memory[marks[done]] = resident_mib()
                objects[marks[done]] = len(gc.get_objects())

    seconds = perf_counter() - started
    if settings.out is not None:
        _write(
            settings.out,
            settings.seed,
            len(numbers),
            seconds,
            memory,
            objects,
            outcomes,
            endings,
            void,
        )

    print(
        f"{len(numbers)} runs held ({seconds:.0f} s); resident MiB {memory}; {outcomes.total()} "
        f"games: {dict(outcomes)}; void attempts: {dict(void)}"
    )

    return 0


def resident_mib() -> float:
    """Resident memory of this process, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)

    raise OSError("/proc/self/status has no VmRSS")


def _write(
    out: Path,
    seed: int,
    runs: int,
    seconds: float,
    memory: dict[str, float],
    objects: dict[str, int],
    outcomes: Counter[str],
    endings: Counter[str],
    void: Counter[str],
) -> None:

    result = {
        **origin("fuzz"),
        "seed": seed,
        "runs": runs,
        "games": outcomes.total(),
        "replayed_runs": -(-runs // REPLAY_EVERY),
        "seconds": round(seconds, 1),
        "resident_mib": memory,
        "live_objects": objects,
        "outcomes": dict(sorted(outcomes.items())),
        "endings": dict(sorted(endings.items())),
        "void_attempts": dict(sorted(void.items())),
    }
    out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())

"""Plays random games of hostile players in a hostile world, and checks each of them.

A game follows from the seed and its number: the one that fails is named, and ``--only`` plays it
alone."""

from __future__ import annotations

import gc
import logging
import sys
import traceback
from collections import Counter
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import track

from benchmarks.fuzz.games import play
from benchmarks.harness import parser, write

REPLAY_EVERY = 100
WARM_UP = 0.1
"""Share of the games after which all tables are set and memory has to be flat."""


def main() -> int:
    """Plays, and writes what was played; 1 if an invariant was broken."""
    options = parser(__doc__)
    options.add_argument("--games", type=int, default=100_000)
    options.add_argument("--only", type=int, help="number of one game to play (and to replay)")
    settings = options.parse_args()
    logging.getLogger("ssp_env").setLevel(logging.ERROR)  # void games are meant here

    outcomes: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    void: Counter[str] = Counter()
    memory: dict[str, tuple[float, int]] = {}
    numbers = range(settings.games) if settings.only is None else [settings.only]
    marks = {0: "start", int(len(numbers) * WARM_UP): "warm", len(numbers) - 1: "end"}
    started = perf_counter()

    for done, number in enumerate(track(numbers, "games", console=Console(stderr=True))):
        replayed = settings.only is not None or number % REPLAY_EVERY == 0
        try:
            games = play(settings.seed, number, replayed)
        except Exception:
            traceback.print_exc()
            again = f"python -m benchmarks.fuzz --seed {settings.seed} --only {number} --out FILE"
            print(f"\nfailed: {again}", file=sys.stderr)
            return 1

        for game in games:
            reason = "" if game.reason is None else f": {game.reason}"
            outcomes[f"{game.outcome}{reason}"] += 1
            endings.update(f"{t.role}: {t.ending}" for t in game.trajectories())
            outages = [attempt.outage for attempt in game.attempts if attempt.outage is not None]
            void.update(f"{game.outcome}: {outage.service}" for outage in outages)

        if done in marks:
            gc.collect()
            memory[marks[done]] = (resident_mib(), len(gc.get_objects()))

    result = {
        "seed": settings.seed,
        "runs": len(numbers),
        "games": outcomes.total(),
        "seconds": round(perf_counter() - started, 1),
        "resident_mib_and_live_objects": memory,
        "outcomes": dict(sorted(outcomes.items())),
        "endings": dict(sorted(endings.items())),
        "void_attempts": dict(sorted(void.items())),
    }
    write(settings.out, result)
    return 0


def resident_mib() -> float:
    """Resident memory of this process, in MiB."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    sys.exit(main())

"""Plays random games of hostile players in a hostile world, and checks each of them.

A game follows from the seed and its number: the one that fails is named, and ``--only`` plays it
alone."""

from __future__ import annotations

import logging
import sys
import traceback
from collections import Counter
from time import perf_counter

from rich.console import Console
from rich.progress import track

from benchmarks.fuzz.games import play
from benchmarks.harness import parser, write

REPLAY_EVERY = 100


def main() -> int:
    """Plays, and writes what was played; 1 if an invariant was broken."""
    options = parser(__doc__)
    options.add_argument("--games", type=int, default=100_000)
    options.add_argument("--only", type=int, help="number of one game to play (and to replay)")
    settings = options.parse_args()
    logging.getLogger("ssp_env").setLevel(logging.ERROR)  # void games are meant here

    outcomes: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    numbers = range(settings.games) if settings.only is None else [settings.only]
    started = perf_counter()

    for number in track(numbers, "games", console=Console(stderr=True)):
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

    result = {
        "seed": settings.seed,
        "runs": len(numbers),
        "games": outcomes.total(),
        "seconds": round(perf_counter() - started, 1),
        "outcomes": dict(sorted(outcomes.items())),
        "endings": dict(sorted(endings.items())),
    }
    write(settings.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())

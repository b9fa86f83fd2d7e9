"""Plays random games of hostile players in a hostile world, and checks each of them.

A game follows from the seed and its number: the one that fails is named, and ``--only`` plays it
alone.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter

from rich.progress import track

from benchmarks.fuzz.games import play
from benchmarks.harness import parser, write

REPLAY_EVERY = 100


def main() -> None:
    """Plays, and writes what was played; an invariant that is broken ends it."""
    options = parser(__doc__)
    options.add_argument("--games", type=int, default=100_000)
    options.add_argument("--only", type=int, help="number of one game to play (and to replay)")
    settings = options.parse_args()
    logging.getLogger("ssp_env").setLevel(logging.ERROR)  # void games are meant here

    outcomes: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    numbers = range(settings.games) if settings.only is None else [settings.only]
    for number in track(numbers, "games"):
        replayed = settings.only is not None or number % REPLAY_EVERY == 0
        try:
            games = play(settings.seed, number, replayed)
        except Exception:
            again = f"python -m benchmarks.fuzz --seed {settings.seed} --only {number} --out FILE"
            print(f"\nfailed: {again}", file=sys.stderr)
            raise
        for game in games:
            outcomes[": ".join(filter(None, (game.outcome, game.reason)))] += 1
            endings.update(f"{t.role}: {t.ending}" for t in game.trajectories())

    result = {"seed": settings.seed, "runs": len(numbers), "games": outcomes.total()}
    result |= {"outcomes": dict(sorted(outcomes.items())), "endings": dict(sorted(endings.items()))}
    write(settings.out, result)


if __name__ == "__main__":
    main()

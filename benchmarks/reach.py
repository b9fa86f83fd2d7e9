"""How far both roles of a recorded run reach: what is asked and answered after how many searches.

Reads the games that ``ssp train`` has written. For spans of steps, it counts the proposals that
searched four times by the hops of what they ask, and the attempts at questions of four hops by
their searches, with the share that was right.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness import parser, write
from experiments.run.rundir import RunDirectory
from ssp_env.game.game import Origin
from ssp_env.game.record import GameRecord
from ssp_env.replay import read_games

LONG = 4
"""Hops, and searches, beyond what the bootstrap's demonstrations have."""


def main() -> int:
    """Counts and writes."""
    options = parser(__doc__, seed=False)
    options.add_argument("runs", nargs="+", help="NAME=RUN")
    options.add_argument("--span", type=int, default=20, help="steps that are counted together")
    settings = options.parse_args()

    named = dict(given.split("=", 1) for given in settings.runs)
    runs = {name: _run(Path(run), settings.span) for name, run in named.items()}
    write(settings.out, {"runs": runs})
    return 0


def _run(path: Path, span: int) -> dict[str, Any]:
    config = RunDirectory(path).read_config()
    spans: dict[int, list[GameRecord]] = defaultdict(list)
    for file in sorted((path / "games").glob("step_*.jsonl")):
        spans[(int(file.stem.removeprefix("step_")) - 1) // span].extend(
            saved.record for saved in read_games(file)
        )
    return {
        "settings": {name: config["learning"][name] for name in ("strategy", "lr")}
        | {"seed": config["seed"]},
        "spans": {
            f"steps {n * span + 1} to {(n + 1) * span}": _counted(games)
            for n, games in sorted(spans.items())
        },
    }


def _counted(games: list[GameRecord]) -> dict[str, Any]:
    proposed = [game for game in games if game.start.origin is Origin.PROPOSED]
    far = [game for game in proposed if len(game.trajectories[0].searches) == LONG]
    solved = [game for game in games if game.outcome == "valid" and game.hops == LONG]
    attempts: dict[int, list[float]] = defaultdict(list)
    for game in solved:
        for trajectory in game.trajectories:
            if trajectory.role == "solver":
                attempts[len(trajectory.searches)].append(trajectory.reward or 0.0)

    return {
        "proposals": len(proposed),
        "proposals_of_four_searches": len(far),
        "their_questions_by_hops": dict(sorted(Counter(str(game.hops) for game in far).items())),
        "games_of_four_hops": len(solved),
        "of_these_composed": sum(game.start.origin is Origin.COMPOSED for game in solved),
        "attempts_by_searches": {
            str(count): {"attempts": len(rewards), "right": round(fmean(rewards), 3)}
            for count, rewards in sorted(attempts.items())
        },
    }


if __name__ == "__main__":
    sys.exit(main())

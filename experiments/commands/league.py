"""``ssp league``: proposers and solvers of different steps play each other."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from experiments.cli import Chosen
from experiments.league.games import find_players, play_league, settings_of
from experiments.league.results import League
from experiments.run.checks import open_run
from experiments.run.process import git_commit, machine, quiet_libraries
from ssp_env.disk import make_directories, remove_empty, write_atomically
from ssp_env.errors import ConfigError, RunError


def run(
    chosen: Chosen, targets: Sequence[str], *, answers: int, attempts: int | None, out: Path
) -> int:
    """Plays the league, prints its tables and writes them down."""
    quiet_libraries()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty; choose another --out")
    players = find_players(targets)
    config = chosen.config(values=None if chosen.preset else settings_of(targets))
    attempts = config.game.attempts if attempts is None else attempts
    if attempts < 1:
        raise ConfigError("--attempts", attempts, "must be at least 1")
    if answers < 2:
        raise ConfigError("--answers", answers, "must be at least 2")

    rules, _ = open_run(config)
    torch.set_num_threads(config.compute.threads)
    known = {
        "command": shlex.join(["ssp", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit() or "unknown",
        "machine": machine(),
        "seed": config.seed,
        "policies": {player.name: player.model or "the tiny policy" for player in players},
    }
    # Made before anything is played, so that a place that cannot be written is found out then.
    made = make_directories(out)
    try:
        games = play_league(
            players,
            config,
            rules,
            answers=answers,
            attempts=attempts,
            report=lambda what: print(what, file=sys.stderr),
        )
        league = League.of(players, games, attempts, config.seed)
        tables = "\n\n".join(map(str, league.tables()))
        write_atomically(out / "league.json", json.dumps({**known, **league.as_data()}) + "\n")
        league.draw(out / "figure.png")
        page = (
            f"# A league\n\n`{known['command']}`, {known['date']}, commit {known['git_commit']}, "
            f"{known['machine']}, seed {config.seed}. Each proposer asked about the same {answers} "
            f"answers, and each solver tried each valid question {attempts} times.\n\n"
            f"![solve rates, rewards and ratings](figure.png)\n\n{tables}\n"
        )
        write_atomically(out / "league.md", page)
    finally:
        remove_empty(made)
    print(tables)
    print(f"everything is in {out}/ (league.md, league.json, figure.png)")
    return 0

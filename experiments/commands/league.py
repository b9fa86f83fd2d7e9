"""``ssp league``: proposers and solvers of different steps play each other."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from experiments.cli import Chosen
from experiments.league.games import Player, find_players, play_league, settings_of
from experiments.league.results import League, as_data, draw, make_tables
from experiments.run.checks import check
from experiments.run.process import git_commit, machine, quiet_libraries
from experiments.sweeps.results import Table
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
    config = chosen.config(None if chosen.preset else settings_of(targets))
    attempts = config.game.attempts if attempts is None else attempts
    if attempts < 1:
        raise ConfigError("--attempts", attempts, "must be at least 1")
    if answers < 2:
        raise ConfigError("--answers", answers, "must be at least 2")

    rules, _ = check(config)
    torch.set_num_threads(config.compute.threads)
    # Made before anything is played, so that a place that cannot be written is found out then.
    made = make_directories(out)
    try:
        games = play_league(
            players,
            config,
            rules,
            answers=answers,
            attempts=attempts,
            tell=lambda what: print(what, file=sys.stderr),
        )
        league = League.of(players, games, attempts, config.seed)
        known, tables = _provenance(players, config.seed), make_tables(league)
        write_atomically(out / "league.json", json.dumps({**known, **as_data(league)}) + "\n")
        draw(league, out / "figure.png")
        write_atomically(out / "league.md", _page(known, league, tables))
    finally:
        remove_empty(made)
    print("\n\n".join(map(str, tables)))
    print(f"everything is in {out}/ (league.md, league.json, figure.png)")
    return 0


def _provenance(players: list[Player], seed: int) -> dict[str, Any]:
    return {
        "command": shlex.join(["ssp", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": machine(),
        "seed": seed,
        "policies": {player.name: player.model or "the tiny policy" for player in players},
    }


def _page(known: dict[str, Any], league: League, made: list[Table]) -> str:
    answers = league.games.solved.shape[2]
    head = (
        f"# A league\n\n`{known['command']}`, {known['date']}, commit "
        f"{known['git_commit'] or 'unknown'}, {known['machine']}, seed {known['seed']}. Each "
        f"proposer asked about the same {answers} answers, and each solver tried each valid "
        f"question {league.attempts} times.\n\n![solve rates, rewards and ratings](figure.png)"
    )
    return "\n\n".join([head, *map(str, made)]) + "\n"

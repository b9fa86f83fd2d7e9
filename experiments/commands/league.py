"""``ssp league``: proposers and solvers of different steps play each other."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from experiments.commands.train import DEFAULT_PRESET, settings
from experiments.config import load_preset
from experiments.league.games import play_league
from experiments.league.players import Player, find_players, settings_of
from experiments.league.results import League, as_data, draw, make_tables
from experiments.run.checks import check
from experiments.run.process import quiet_libraries
from experiments.run.provenance import git_commit, machine
from experiments.sweeps.results import Table
from ssp_env.disk import make_directories, remove_empty, write_atomically
from ssp_env.errors import ConfigError, RunError


def run(arguments: Namespace) -> int:
    """Plays the league, prints its tables and writes them down."""
    quiet_libraries()
    out = _free(Path(arguments.out))
    players = find_players(arguments.players)
    held = None if arguments.preset else settings_of(arguments.players)
    config = settings(arguments, held or load_preset(arguments.preset or DEFAULT_PRESET))
    attempts = config.game.attempts if arguments.attempts is None else arguments.attempts
    if attempts < 1:
        raise ConfigError("--attempts", attempts, "must be at least 1")
    if arguments.answers < 2:
        fix = "must be at least 2: one half chooses who exploits whom, the other measures it"
        raise ConfigError("--answers", arguments.answers, fix)

    rules, _ = check(config)
    torch.set_num_threads(config.compute.threads)
    with _whole(out) as unfinished:
        games = play_league(
            players, config, rules, answers=arguments.answers, attempts=attempts, tell=_tell
        )
        league = League.of(players, games, attempts, config.seed)
        made = make_tables(league)
        _write(league, made, _provenance(players, config.seed), unfinished)
    print("\n\n".join(map(str, made)))
    print(f"everything is in {out}/ (league.md, league.json, figure.png)")
    return 0


def _write(league: League, made: list[Table], known: dict[str, Any], out: Path) -> None:
    write_atomically(out / "league.json", json.dumps({**known, **as_data(league)}) + "\n")
    draw(league, out / "figure.png")
    write_atomically(out / "league.md", _page(known, league, made))


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A directory to write to, which becomes ``out`` once all of it is there, and else goes.

    It is made before anything is played, so that a place that cannot be written is told then.

    Raises:
        RunError: it cannot be made, or ``out`` cannot be written.
    """
    final = out.resolve()
    unfinished = final.with_name(f".{final.name}.unfinished")
    made = make_directories(final.parent)
    try:
        # What a process that was killed has left.
        shutil.rmtree(unfinished, ignore_errors=True)
        make_directories(unfinished)
        yield unfinished
        _rename(unfinished, final)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        remove_empty(made)


def _rename(unfinished: Path, final: Path) -> None:
    try:
        unfinished.rename(final)
    except OSError as error:
        raise RunError(f"{final} cannot be written: {error}") from error


def _free(out: Path) -> Path:
    """
    Raises:
        RunError: something is there already.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty; choose another --out")
    return out


def _tell(what: str) -> None:
    print(what, file=sys.stderr)


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
    lines = [
        "# A league",
        "",
        f"`{known['command']}`, {known['date']}, commit {known['git_commit'] or 'unknown'}, "
        f"{known['machine']}, seed {known['seed']}. Each proposer asked about the same {answers} "
        f"answers, and each solver tried each valid question {league.attempts} times.",
        "",
        "![solve rates, rewards and ratings](figure.png)",
        "",
    ]
    return "\n".join(lines) + "\n" + "\n\n".join(map(str, made)) + "\n"

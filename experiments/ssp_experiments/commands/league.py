"""``ssp league``: finds the players, has them play each other, and writes tables and figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from ssp_env.disk import make_directories, remove_empty, write_atomically
from ssp_env.errors import ConfigError, RunError
from ssp_experiments.config import POLICIES
from ssp_experiments.league import play_league
from ssp_experiments.options import Chosen
from ssp_experiments.run.checks import check_answers, open_run
from ssp_experiments.run.process import provenance, quiet_libraries
from ssp_experiments.run.rundir import RunDirectory, check_empty


def run(
    chosen: Chosen, targets: Sequence[str], *, answers: int, attempts: int | None, out: Path
) -> int:
    """Plays the league, prints its tables and writes them down."""
    quiet_libraries()
    check_empty(out)
    players = find_players(targets)
    config = chosen.config(values=chosen.start(*targets, *players.values()))
    attempts = attempts or config.game.attempts

    rules, _ = open_run(config)
    check_answers(rules)
    policies = {name: model or "the tiny policy" for name, model in players.items()}
    known = {**provenance(), "seed": config.seed, "policies": policies}
    # Made before anything is played, so that a place that cannot be written is found out then.
    made = make_directories(out)
    try:
        league = play_league(players, config, rules, answers, attempts)
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


# -- players -----------------------------------------------------------------------------------


def find_players(targets: Sequence[str]) -> dict[str, str]:
    """Names and model directories of players, each once; an empty one is the tiny policy."""
    players: dict[str, str] = {}
    for name, model in chain.from_iterable(map(_players, targets)):
        # Runs often begin with the same policy, which is one player then.
        if model in players.values():
            continue
        if name in players:
            fix = f"two players have this name; write one as NAME={model}"
            raise ConfigError("player", name, fix)
        players[name] = model
    if len(players) < 2:
        fix = "give a run with checkpoints (checkpoints_kept: null keeps all), or two policies"
        raise ConfigError("players", list(players), fix)
    return players


def _players(target: str) -> list[tuple[str, str]]:
    directory = RunDirectory(target)
    if not directory.config.exists():
        name, _, folder = target.rpartition("=")
        if not (Path(folder) / "config.json").is_file():
            fix = "no run directory, and no model directory (config.json is missing)"
            raise ConfigError("player", target, fix)
        return [(name or Path(folder).name, folder)]

    run, checkpoints = directory.path.resolve().name, directory.kept_checkpoints()
    if not checkpoints:
        raise RunError(f"{directory.path} has no checkpoint")
    config = directory.read_config()
    steps = [(f"{run} step {step}", str(at / POLICIES["solver"])) for step, at in checkpoints]
    # Where proposer and solver began with models of their own, no model directory is the base.
    apart = config.get("learning", {}).get("proposer_model")
    return steps if apart else [(f"{run} base", str(config.get("model", ""))), *steps]

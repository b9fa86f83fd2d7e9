"""Who plays in a league: the policies of runs at every checkpoint that is there, and any others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.run.rundir import RunDirectory
from ssp_env.errors import ConfigError, RunError


@dataclass(frozen=True)
class Player:
    """A policy; it plays both roles."""

    name: str
    model: str
    """Its model directory; empty: the tiny policy that ships."""
    step: int | None = None
    """How many steps it has learnt in its run; ``None`` of a policy that is of no run."""


def find_players(targets: Sequence[str]) -> list[Player]:
    """The players that a command line names, in its order; a policy that is named twice plays once.

    Args:
        targets: run directories, which stand for the policy that they began with and for all
            checkpoints that are there; and policies, as ``DIR`` or ``NAME=DIR``.

    Raises:
        ConfigError: no such directory, two players of one name, or fewer than two players.
        RunError: a run that cannot be read, or has no checkpoint.
    """
    runs = [target for target in targets if is_run(target)]
    found: dict[str, Player] = {}
    for target in targets:
        several = target in runs and len(runs) > 1
        for player in _of_run(target, several) if target in runs else [_named(target)]:
            if player.model in [known.model for known in found.values()]:
                continue
            if player.name in found and player.step == 0:
                player = replace(player, name=f"{Path(target).resolve().name} base")
            if player.name in found:
                fix = f"two players have this name; write one as NAME={player.model}"
                raise ConfigError("player", player.name, fix)
            found[player.name] = player

    if len(found) < 2:
        fix = "give a run with checkpoints (checkpoints_kept: null keeps all), or two policies"
        raise ConfigError("players", list(found), fix)
    return [*found.values()]


def settings_of(targets: Sequence[str]) -> dict[str, Any] | None:
    """The settings of the first run among these; ``None`` if there is none.

    Raises:
        RunError: they cannot be read.
    """
    runs = [target for target in targets if is_run(target)]
    return RunDirectory(runs[0]).read_config() if runs else None


def is_run(target: str) -> bool:
    """Whether a directory holds a run."""
    run = RunDirectory(target)
    return run.config.exists() and run.metrics.exists()


def _of_run(target: str, several: bool) -> list[Player]:
    run = RunDirectory(target)
    prefix = f"{run.path.resolve().name} " if several else ""
    checkpoints = [(step, folder / "policy") for step, folder in run.kept_checkpoints()]
    if not checkpoints:
        raise RunError(f"{run.path} has no checkpoint")

    base = str(run.read_config().get("model", ""))
    steps = [Player(f"{prefix}step {step}", str(folder), step) for step, folder in checkpoints]
    # Runs often begin with the same policy, which is one player then.
    return [Player("base", base, 0), *steps]


def _named(target: str) -> Player:
    name, equals, folder = target.partition("=")
    path = Path(folder if equals else target)
    if not (path / "config.json").is_file():
        fix = "no run directory, and no model directory (config.json is missing)"
        raise ConfigError("player", target, fix)
    return Player(name if equals else path.name, str(path))

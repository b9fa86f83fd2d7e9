"""A sweep: its definition, its trials, and its directory (docs/sweeps.md lists the files)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, model_validator

from ssp_agents.health import OUTAGE
from ssp_env.config import Settings
from ssp_env.disk import locked, make_directories, write_atomically
from ssp_env.errors import ConfigError, DataError, RunError, nearest
from ssp_experiments.config import (
    RunConfig,
    flat,
    load_preset,
    make_config,
    read_yaml,
    shipped,
)
from ssp_experiments.run.rundir import RunDirectory

ENDED = ("done", "stopped")
"""States of a trial that has a result: all steps, or stopped because its figures went wrong."""


class Sweep(Settings):
    """A sweep, as its file defines it."""

    preset: str = "tiny"
    """Settings that all runs start from."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each arm is trained with each of them."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Settings of all runs, by dotted name."""
    arms: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By name, the settings in which an arm differs; the others are compared with the first."""
    grid: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """By dotted name, values to be combined in all ways; with ``arms``, each with each of them."""
    paper: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Figures of the paper, by column and arm."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.seeds or len({*self.seeds}) < len(self.seeds):
            raise ConfigError("seeds", list(self.seeds), "give at least one, each once")
        if not self.all_arms() or not (self.arms or self.grid):
            raise ConfigError("arms", self.arms, "name arms with their settings, or give a grid")
        for arm, settings in self.arms.items():
            for name in flat(settings).keys() & self.grid.keys():
                fix = "the grid sets it too: leave it out of one"
                raise ConfigError(f"{arm}: {name}", flat(settings)[name], fix)
        return self

    def all_arms(self) -> dict[str, dict[str, Any]]:
        """Arms and grid taken together: by name, the settings by dotted name."""
        # A setting goes by the last part of its name, unless two settings of the grid share that.
        last = [name.rpartition(".")[2] for name in self.grid]
        short = [
            part if last.count(part) == 1 else name
            for name, part in zip(self.grid, last, strict=True)
        ]
        arms = {}
        for name, settings in (self.arms or {"": {}}).items():
            for values in product(*self.grid.values()):
                parts = [f"{part}={value}" for part, value in zip(short, values, strict=True)]
                chosen = dict(zip(self.grid, values, strict=True))
                arms[", ".join([*([name] if name else []), *parts])] = {**flat(settings), **chosen}
        return arms

    def choose(self, arms: Sequence[str]) -> Self:
        """The sweep with these of its arms alone."""
        known = self.all_arms()
        for arm in arms:
            if arm not in known:
                raise ConfigError("--arms", arm, nearest(arm, known))
        return self.replace(arms={arm: known[arm] for arm in arms}, grid={})


def read_sweep(name: str) -> Sweep:
    """A sweep that ships, or the one in a YAML file."""
    known = shipped("sweeps")
    path = known.get(name, Path(name))
    if not path.is_file():
        raise ConfigError("sweep", name, f"no such file; {nearest(name, known)}")
    return Sweep(**read_yaml(path, Sweep))


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    arm: str
    seed: int
    name: str
    """Its directory."""
    settings: dict[str, Any]
    """Settings in which its arm differs, by dotted name."""
    config: RunConfig
    """All of its settings."""

    def __str__(self) -> str:
        return f"{self.arm}, seed {self.seed}"


def trials(sweep: Sweep) -> list[Trial]:
    """All runs of a sweep, seed by seed, so that the first seed of all arms is there first."""
    planned: list[Trial] = []
    folders: list[str] = []
    # An arm's own settings go before those of the whole sweep.
    for arm, settings in sweep.all_arms().items():
        changes = {**flat(sweep.set), **settings}
        if "seed" in changes:
            raise ConfigError(f"{arm}: seed", changes["seed"], "give seeds, a list")

        # A name that every file system takes.
        folder = re.sub(r"[^a-z0-9.=+]+", "-", arm.lower()).strip("-.")
        # Names of arms may differ in nothing but signs.
        if not folder or folder in folders:
            folder = f"arm-{len(folders)}-{folder}"
        folders.append(folder)
        for seed in sweep.seeds:
            try:
                config = make_config(load_preset(sweep.preset), {**changes, "seed": seed})
            except ConfigError as error:
                whose = f"{arm}: " if error.field in settings else ""
                raise ConfigError(whose + error.field, error.value, error.fix) from None
            planned.append(Trial(arm, seed, f"{folder}-seed{seed}", settings, config))
    return sorted(planned, key=lambda trial: sweep.seeds.index(trial.seed))


class SweepDirectory:
    """A directory that holds one sweep."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.definition = self.path / "sweep.yaml"
        self.trials = self.path / "trials"

    def read(self, name: str) -> tuple[Sweep, list[str]]:
        """The sweep of this name that was begun here, and the commands that played it."""
        if not self.definition.exists():
            fix = "start it without --resume and --tables"
            raise RunError(f"{self.path} holds no sweep (sweep.yaml is missing): {fix}")
        definition = read_yaml(self.definition)
        if missing := {"name", "sweep", "commands"} - definition.keys():
            raise DataError(
                self.definition, f"has no {min(missing)} any more; choose another --out"
            )
        if definition["name"] != name:
            theirs = f"the sweep {definition['name']!r}, not {name!r}"
            raise RunError(f"{self.path} holds {theirs}: choose another --out")
        return Sweep(**definition["sweep"]), definition["commands"]

    @contextmanager
    def claimed(self, name: str, sweep: Sweep, commands: Sequence[str]) -> Iterator[None]:
        """Holds the directory while trials are played, with the sweep written down."""
        make_directories(self.trials)
        with locked(self.path):
            definition = {
                "name": name,
                "commands": [*commands],
                "sweep": sweep.model_dump(mode="json"),
            }
            text = yaml.safe_dump(definition, sort_keys=False, allow_unicode=True)
            write_atomically(self.definition, text)
            yield

    def run(self, trial: Trial) -> RunDirectory:
        return RunDirectory(self.trials / trial.name)

    def state(self, trial: Trial) -> str:
        """State of a trial: ``not begun``, ``not finished``, or one of :data:`ENDED`."""
        run = self.run(trial)
        if (summary := run.read_summary()) and summary["steps"] == trial.config.steps:
            return "done"
        stopped = run.read_stopped()
        # An outage is no result: the same trial goes well where its services are there.
        if stopped is not None and stopped.sign != OUTAGE:
            return "stopped"
        return "not finished" if run.config.exists() else "not begun"

    def failure(self, trial: Trial) -> Path:
        """The file that holds the error of a trial that failed."""
        return self.trials / f"{trial.name}.failed.txt"

"""A sweep: its definition (preset, settings, arms, seeds), its trials, and its directory.

================== =========================================================================
``sweep.yaml``     the sweep as it is played, and the commands that played it
``trials/NAME/``   an ordinary run directory: `ssp report`, `ssp plot`, `ssp replay` read it
``results.csv``    one row per trial and step
``tables.md``      means, intervals and comparisons; ``figure.png`` draws them
``summary.json``   the same as data, with machine, commits and seeds
================== =========================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml
from pydantic import Field, model_validator

from agents.health import OUTAGE
from agents.metrics import step_figures
from experiments.config import RunConfig, assign, load_preset, make_config
from experiments.run.rundir import RunDirectory, flat
from ssp_env.config import Settings
from ssp_env.disk import locked, make_directories, write_atomically
from ssp_env.errors import ConfigError, DataError, RunError, nearest

OPEN = ("invalid_", "learner_")
"""Beginnings of figures whose names are made while a run plays: reasons, and reports of losses."""
FIGURES = (
    *step_figures([], 1, []),
    "staleness",
    *(f"seconds.{part}" for part in ("engine", "game", "sample", "learn", "step", "evaluation")),
)
"""Names in ``metrics.jsonl`` that a sweep can show."""
ENDED = ("done", "stopped")
"""States of a trial that has a result: all steps, or stopped because its figures went wrong."""


class Paper(Settings):
    """Figures of the paper for the same arms."""

    section: ClassVar[str] = "paper"

    source: str
    """Table and model."""
    columns: tuple[str, ...]
    """Name of each figure."""
    rows: dict[str, tuple[float, ...]]
    """By arm, one figure per column. An arm that the paper does not have is left out."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for arm, figures in self.rows.items():
            if len(figures) != len(self.columns):
                fix = f"needs {len(self.columns)} figures, one per column"
                raise ConfigError(f"paper.rows.{arm}", figures, fix)
        return self


class Sweep(Settings):
    """A sweep, as its file defines it."""

    title: str = ""
    """A line for people."""
    preset: str = "tiny"
    """Settings that all runs start from."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each arm is played with each of them."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Settings of all runs, by dotted name."""
    arms: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By name, the settings in which an arm differs."""
    grid: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """By dotted name, values to be combined in all ways; with ``arms``, each with each of them."""
    baseline: str = ""
    """The arm that the others are compared with; the first where it is empty."""
    figures: tuple[str, ...] = ()
    """Names in ``metrics.jsonl`` that the tables show besides accuracy."""
    paper: Paper | None = None
    """Figures of the paper."""
    keep_checkpoints: bool = False
    """Keep the last checkpoints of finished trials, to use their policies."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.seeds or len({*self.seeds}) < len(self.seeds) or min(self.seeds) < 0:
            raise ConfigError("seeds", list(self.seeds), "give at least one, each once")
        if not self.arms and not self.grid:
            raise ConfigError("arms", {}, "name arms with their settings, or give a grid")
        arms = list(self.all_arms())
        for figure in self.figures:
            if figure not in FIGURES and not figure.startswith(OPEN):
                raise ConfigError("figures", figure, nearest(figure, FIGURES))
        if self.baseline and self.baseline not in arms:
            raise ConfigError("baseline", self.baseline, nearest(self.baseline, arms))
        for arm in self.paper.rows if self.paper else ():
            if arm not in arms:
                raise ConfigError(f"paper.rows.{arm}", "", f"no such arm; {nearest(arm, arms)}")
        return self

    def all_arms(self) -> dict[str, dict[str, Any]]:
        """Arms and grid taken together: by name, the settings by dotted name."""
        last = [name.rpartition(".")[2] for name in self.grid]
        short = [
            part if last.count(part) == 1 else name
            for name, part in zip(self.grid, last, strict=True)
        ]
        found = {}
        for name, settings in (self.arms or {"": {}}).items():
            for values in product(*self.grid.values()):
                parts = [f"{part}={value}" for part, value in zip(short, values, strict=True)]
                chosen = dict(zip(self.grid, values, strict=True))
                found[", ".join([*([name] if name else []), *parts])] = {**flat(settings), **chosen}
        return found

    @property
    def compared_with(self) -> str:
        """The arm that the others are compared with."""
        return self.baseline or next(iter(self.all_arms()))

    def choose(self, arms: Sequence[str]) -> Self:
        """The sweep with these of its arms alone, the baseline among them."""
        known, baseline = self.all_arms(), self.compared_with
        for arm in arms:
            if arm not in known:
                raise ConfigError("--arms", arm, nearest(arm, known))
        if baseline not in arms:
            fix = f"the others are compared with {baseline!r}: add it"
            raise ConfigError("--arms", list(arms), fix)

        chosen = {arm: settings for arm, settings in known.items() if arm in arms}
        paper = self.paper
        if paper is not None:
            paper = paper.replace(rows={a: row for a, row in paper.rows.items() if a in chosen})
        return self.replace(arms=chosen, grid={}, baseline=baseline, paper=paper)


def shipped() -> dict[str, Path]:
    """Files of the sweeps that ship, by name."""
    folder = Path(str(resources.files("experiments") / "sweeps"))
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def find(name: str) -> Path:
    """The file of a sweep that ships, or at a path."""
    known, path = shipped(), Path(name)
    if name in known:
        return known[name]
    if path.suffix not in (".yaml", ".yml") and len(path.parts) == 1:
        fix = f"{nearest(name, known)} (a file of your own ends in .yaml)"
        raise ConfigError("sweep", name, fix)
    if not path.is_file():
        raise ConfigError("sweep", name, "there is no such file")
    return path


def read_sweep(path: Path) -> Sweep:
    """The sweep in a file.

    Raises:
        DataError: a file that cannot be read, an unknown name, or a value that cannot work.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(path, f"cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise DataError(path, "holds no mapping of names")
    try:
        return Sweep(**values)
    except ConfigError as error:
        raise DataError(path, str(error)) from None


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
    """All runs of a sweep, seed by seed, so that the first seed of all arms is there first.

    Raises:
        ConfigError: a setting that is not known or cannot work, or two arms that are the same.
    """
    arms, made = sweep.all_arms(), dict[str, dict[str, Any]]()
    folders: dict[str, str] = {}
    for number, (arm, settings) in enumerate(arms.items()):
        values = load_preset(sweep.preset)
        for name, value in {**flat(sweep.set), **settings}.items():
            if name == "seed":
                raise ConfigError(f"{arm}: seed", value, "give seeds, a list")
            assign(values, name, value)
        same = next((other for other, held in made.items() if held == values), None)
        if same is not None:
            raise ConfigError("arms", arm, f"it plays the same runs as {same!r}")
        made[arm] = values

        # A name that every file system takes.
        folder = re.sub(r"[^a-z0-9.=+]+", "-", arm.lower()).strip("-.")
        taken = not folder or folder in folders.values()
        folders[arm] = f"arm-{number}-{folder}" if taken else folder

    planned = []
    for seed in sweep.seeds:
        for arm, settings in arms.items():
            try:
                config = make_config({**made[arm], "seed": seed})
            except ConfigError as error:
                fix = f"{error.fix} (arm {arm!r})"
                raise ConfigError(error.field, error.value, fix) from None
            planned.append(Trial(arm, seed, f"{folders[arm]}-seed{seed}", settings, config))
    return planned


class SweepDirectory:
    """A directory that holds one sweep."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.definition = self.path / "sweep.yaml"
        self.trials = self.path / "trials"

    def read(self, name: str) -> tuple[Sweep, list[str]]:
        """The sweep of this name that was begun here, and the commands that played it."""
        if not self.definition.exists():
            what = f"{self.path} holds no sweep to resume (sweep.yaml is missing)"
            raise RunError(what)
        held = yaml.safe_load(self.definition.read_text(encoding="utf-8"))
        if held["name"] != name:
            theirs = f"the sweep {held['name']!r}, not {name!r}"
            raise RunError(f"{self.path} holds {theirs}: choose another --out")
        return Sweep(**held["sweep"]), held["commands"]

    def check_free(self) -> None:
        """
        Raises:
            RunError: something is here.
        """
        if self.definition.exists():
            what = f"{self.path} holds a sweep; continue it by --resume, or choose another --out"
            raise RunError(what)
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise RunError(f"{self.path} is not empty; choose another --out")

    @contextmanager
    def claimed(self, name: str, sweep: Sweep, commands: Sequence[str]) -> Iterator[None]:
        """Holds the directory while trials are played, with the sweep written down.

        Raises:
            RunError: another process holds it, or it cannot be written.
        """
        make_directories(self.trials)
        with locked(self.path):
            held = {"name": name, "commands": [*commands], "sweep": sweep.model_dump(mode="json")}
            text = yaml.safe_dump(held, sort_keys=False, allow_unicode=True)
            write_atomically(self.definition, text)
            yield

    def run(self, trial: Trial) -> RunDirectory:
        """The run directory of a trial."""
        return RunDirectory(self.trials / trial.name)

    def state(self, trial: Trial) -> str:
        """State of a trial: ``waiting``, ``begun``, or one of :data:`ENDED`."""
        run = self.run(trial)
        if (self.summary(trial) or {}).get("steps") == trial.config.steps:
            return "done"
        stopped = run.read_stopped()
        # An outage is no result: the same trial goes well where its services are there.
        if stopped is not None and stopped.sign != OUTAGE:
            return "stopped"
        return "begun" if run.config.exists() else "waiting"

    def summary(self, trial: Trial) -> dict[str, Any] | None:
        """The summary of a trial, if it has one."""
        file = self.run(trial).summary
        if not file.exists():
            return None
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def failure(self, trial: Trial) -> Path:
        """The file that holds the error of a trial that failed."""
        return self.trials / f"{trial.name}.failed.txt"

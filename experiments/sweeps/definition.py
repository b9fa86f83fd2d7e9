"""A sweep, as its YAML file defines it (preset, settings, arms, seeds), and its trials.

Everything is checked before anything is played.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml
from pydantic import Field, model_validator

from agents.metrics import step_figures
from experiments.config import RunConfig, assign, load_preset, make_config
from experiments.run.rundir import flat
from ssp_env.config import Settings
from ssp_env.errors import ConfigError, DataError, nearest

OPEN = ("invalid_", "learner_")
"""Beginnings of figures whose names are made while a run plays: reasons, and reports of losses."""
FIGURES = (
    *step_figures([], 1, []),
    *("proposer_baseline", "solver_baseline", "staleness"),
    *(f"seconds.{part}" for part in ("engine", "game", "sample", "learn", "step", "evaluation")),
)
"""Names in ``metrics.jsonl`` that a sweep can show."""


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
        """The sweep with these of its arms alone.

        Raises:
            ConfigError: an arm is not there, or the baseline would be missing.
        """
        known, baseline = self.all_arms(), self.compared_with
        for arm in arms:
            if arm not in known:
                raise ConfigError("--arms", arm, nearest(arm, known))
        if baseline not in arms:
            fix = f"the others are compared with {baseline!r}: add it"
            raise ConfigError("--arms", list(arms), fix)

        paper = self.paper
        if paper is not None:
            paper = paper.replace(rows={a: row for a, row in paper.rows.items() if a in arms})
        chosen = {arm: settings for arm, settings in known.items() if arm in arms}
        return self.replace(arms=chosen, grid={}, baseline=baseline, paper=paper)


def shipped() -> list[str]:
    """Names of the sweeps that ship."""
    folder = resources.files("experiments") / "sweeps"
    files = (file.name for file in folder.iterdir())
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def find(name: str) -> Path:
    """The file of a sweep that ships, or at a path.

    Raises:
        ConfigError: there is none (offers the nearest name).
    """
    if name in shipped():
        return Path(str(resources.files("experiments") / "sweeps" / f"{name}.yaml"))
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and len(path.parts) == 1:
        fix = f"{nearest(name, shipped())} (a file of your own ends in .yaml)"
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
        if not isinstance(values, dict):
            raise DataError(path, "holds no mapping of names")
        return Sweep(**values)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(path, f"cannot be read: {error}") from error
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
    for arm, settings in arms.items():
        values = load_preset(sweep.preset)
        for name, value in {**flat(sweep.set), **settings}.items():
            if name == "seed":
                raise ConfigError(f"{arm}: seed", value, "give seeds, a list")
            assign(values, name, value)
        same = next((other for other, held in made.items() if held == values), None)
        if same is not None:
            raise ConfigError("arms", arm, f"it plays the same runs as {same!r}")
        made[arm] = values

    folders = _folder_names(list(arms))
    return [
        Trial(arm, seed, f"{folders[arm]}-seed{seed}", settings, _config(made[arm], arm, seed))
        for seed in sweep.seeds
        for arm, settings in arms.items()
    ]


def _config(values: dict[str, Any], arm: str, seed: int) -> RunConfig:
    try:
        return make_config({**values, "seed": seed})
    except ConfigError as error:
        raise ConfigError(error.field, error.value, f"{error.fix} (arm {arm!r})") from None


def _folder_names(arms: list[str]) -> dict[str, str]:
    """A name for each arm that every file system takes."""
    found: dict[str, str] = {}
    for number, arm in enumerate(arms):
        name = re.sub(r"[^a-z0-9.=+]+", "-", arm.lower()).strip("-.")
        found[arm] = name if name and name not in found.values() else f"arm-{number}-{name}"
    return found

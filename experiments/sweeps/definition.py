"""What a sweep is, as its YAML file says it: a preset, settings of all runs, named arms, seeds.

Everything is checked before anything is played, and told with file and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from agents.metrics import step_figures
from experiments.run.rundir import flat
from experiments.sweeps.source import Source
from ssp_env.checks import at_least
from ssp_env.errors import ConfigError, nearest
from ssp_env.settings import check_types, read

SECONDS = ("engine", "game", "sample", "learn", "step", "evaluation", "wall")
"""What is timed in a step: names in ``metrics.jsonl``, after ``seconds.``."""
OPEN = ("invalid_", "learner_")
"""Beginnings of figures whose names are made while a run plays: reasons, and what losses report."""
_FIGURES = (
    *step_figures([], 1, []),
    *("proposer_baseline", "solver_baseline", "staleness"),
    *(f"seconds.{name}" for name in SECONDS),
)


@dataclass(frozen=True)
class Halving:
    """Ends the trials that fall behind (ASHA: Li et al. 2020, "A System for Massively Parallel
    Hyperparameter Tuning")."""

    first: int
    """The step at which trials are compared for the first time."""
    keep: int = 3
    """One in so many goes on, until so many times as many steps."""

    def __post_init__(self) -> None:
        check_types(self, "halving")
        at_least(self, "halving", 1, "first")
        at_least(self, "halving", 2, "keep")


@dataclass(frozen=True)
class Paper:
    """What the paper found with the same arms."""

    source: str
    """Which table, of which model."""
    columns: tuple[str, ...]
    """What is measured there."""
    rows: dict[str, tuple[float, ...]]
    """By arm, one figure per column. An arm that the paper does not have is left out."""

    def __post_init__(self) -> None:
        check_types(self, "paper")
        for arm, figures in self.rows.items():
            if len(figures) != len(self.columns):
                fix = f"needs {len(self.columns)} figures, one per column"
                raise ConfigError(f"paper.rows.{arm}", figures, fix)


@dataclass(frozen=True)
class Sweep:
    """A sweep as its file says it."""

    title: str = ""
    """A line for people."""
    preset: str = "tiny"
    """The settings that all runs start from."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each arm is played with each of them."""
    set: dict[str, Any] = field(default_factory=dict)
    """Settings of all runs, by dotted name."""
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name, the settings that make an arm differ."""
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """By dotted name, values to be combined in all ways; with ``arms``, each with each of them."""
    baseline: str = ""
    """The arm that the others are compared with; the first where it is empty."""
    figures: tuple[str, ...] = ()
    """Names in ``metrics.jsonl`` that the table shows beside accuracy."""
    paper: Paper | None = None
    """What the paper found."""
    keep_checkpoints: bool = False
    """Whether finished trials keep their last checkpoints; policies can be used then."""
    halving: Halving | None = None
    """Whether trials that fall behind are ended early."""

    SYNONYMS: ClassVar[Mapping[str, str]] = {
        "name": "title",
        "base": "preset",
        "settings": "set",
        "param_space": "grid",
        "parameters": "grid",
        "seed": "seeds",
        "metrics": "figures",
        "asha": "halving",
        "scheduler": "halving",
    }
    """What these are called elsewhere; an error offers the name here."""

    def __post_init__(self) -> None:
        check_types(self, "sweep")
        if not self.seeds or len({*self.seeds}) < len(self.seeds) or min(self.seeds) < 0:
            fix = "give at least one, each once, none below 0"
            raise ConfigError("seeds", list(self.seeds), fix)
        if not self.arms and not self.grid:
            raise ConfigError("arms", {}, "name arms with their settings, or give a grid")

        for name, values in self.grid.items():
            if len(values) < 1 or any(values.count(value) > 1 for value in values):
                fix = "give a list of values, each once"
                raise ConfigError(f"grid.{name}", list(values), fix)
        for figure in self.figures:
            if figure not in _FIGURES and not figure.startswith(OPEN):
                raise ConfigError("figures", figure, nearest(figure, _FIGURES))
        arms = list(self.all_arms())
        if self.baseline and self.baseline not in arms:
            raise ConfigError("baseline", self.baseline, nearest(self.baseline, arms))
        for arm in self.paper.rows if self.paper else ():
            if arm not in arms:
                raise ConfigError(f"paper.rows.{arm}", "", f"no such arm; {nearest(arm, arms)}")

    def all_arms(self) -> dict[str, dict[str, Any]]:
        """Arms and grid taken together: by name, the settings by dotted name."""
        named = {name: flat(settings) for name, settings in self.arms.items()} or {"": {}}
        short = _short_names(self.grid)

        found = {}
        for (name, settings), values in product(named.items(), product(*self.grid.values())):
            chosen = dict(zip(self.grid, values, strict=True))
            parts = [name, *(f"{short[key]}={_written(value)}" for key, value in chosen.items())]
            found[", ".join(part for part in parts if part)] = {**settings, **chosen}
        return found

    @property
    def compared_with(self) -> str:
        """The arm that the others are compared with."""
        return self.baseline or next(iter(self.all_arms()))


def shipped() -> list[str]:
    """Names of the sweeps that ship."""
    folder = resources.files("experiments") / "sweeps"
    return sorted(
        file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")
    )


def find(name: str) -> Path:
    """The file of a sweep.

    Args:
        name: of one that ships, or a path.

    Raises:
        ConfigError: there is none (offers the nearest name).
    """
    if name in shipped():
        return Path(str(resources.files("experiments") / "sweeps" / f"{name}.yaml"))
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        if path.is_file():
            return path
        raise ConfigError("sweep", name, "there is no such file")
    fix = f"{nearest(name, shipped())} (a file of your own ends in .yaml)"
    raise ConfigError("sweep", name, fix)


def read_sweep(source: Source) -> Sweep:
    """The sweep in a file.

    Raises:
        DataError: an unknown name or a value that cannot work; with the line.
    """
    with source.place():
        return read(Sweep, source.values)


def _short_names(names: Mapping[str, Any]) -> dict[str, str]:
    """Dotted names by their last part, where no two have the same."""
    last = [name.rpartition(".")[2] for name in names]
    return {
        name: short if last.count(short) == 1 else name
        for name, short in zip(names, last, strict=True)
    }


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

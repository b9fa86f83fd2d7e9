"""Options that several commands share, and those of the commands that hand theirs on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ssp_agents.config import SHIPPED
from ssp_env.errors import ConfigError
from ssp_experiments.config import (
    RunConfig,
    check_code,
    flat,
    load_preset,
    make_config,
    parse_assignment,
    read_yaml,
    settings_beside,
)

PositiveInt = Annotated[int, Parameter(validator=Number(gt=0))]
NonNegative = Parameter(validator=Number(gte=0))
Several = Parameter(consume_multiple=True)
"""An option that takes all values up to the next option."""


def plural(count: int, noun: str) -> str:
    """A number of things in words: ``1 trial``, ``2 trials``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@Parameter(name="*")
@dataclass(frozen=True)
class Chosen:
    """Options of all commands that start from a preset."""

    preset: str | None = None
    """Settings to start from: tiny, best, wiki-small, qwen-small, wiki, h200, paper-7b, paper-7b-8,
    paper-7b-code (default: the one that suits the world; eval, league, play and probe take those of
    a checkpoint's run)."""
    seed: int | None = None
    """Seed of all randomness (default: 0)."""
    world: str | None = None
    """World to play in: mini, small, wiki-sentences, wiki-mini or files."""
    model: str | None = None
    """Directory of a causal LM, or a GGUF file, in place of the policy that ships."""
    search: str | None = None
    """Server (`ssp serve`) or index directory (`ssp index`), in place of the world's own search."""
    rules: str | None = None
    """MODULE:FUNCTION of yours that makes the rules (docs/parts.md)."""
    set: Annotated[list[str] | None, Parameter(negative=())] = None
    """Any other setting, as NAME=VALUE (YAML), named as in config.yaml; repeatable."""

    def changes(self, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The settings that are named, by dotted name; ``options`` are those of a command's own.

        ``ConfigError`` if two ways to name one differ."""
        named = {
            "seed": self.seed,
            "world": self.world,
            "model": self.model,
            "rules": self.rules,
            "search.source": self.search,
        }
        given = [*(options or {}).items(), *named.items()]
        given = [(name, value) for name, value in given if value is not None]
        assigned = flat(dict(map(parse_assignment, self.set or ())))
        changes: dict[str, Any] = {}
        for name, value in [*given, *assigned.items()]:
            if changes.setdefault(name, value) != value:
                fix = f"other options, or the command itself, say {changes[name]!r}: leave it out"
                raise ConfigError(name, value, fix)
        return changes

    def named_preset(self) -> str:
        """The preset that is named, or suits the world: that of the policy which ships for it."""
        if self.preset is not None:
            return self.preset
        world = str(self.changes().get("world", "mini"))
        return SHIPPED.get(world, "wiki").replace("_", "-")

    def start(self, *policies: str | None) -> dict[str, Any]:
        """The settings to start from: the preset's; where none is named, those of the first of
        these policies (by default, of the model) that is a run's checkpoint."""
        for policy in policies or (self.model,):
            if self.preset is None and policy and (file := settings_beside(policy)):
                print(f"settings: {file} (--preset takes others)", file=sys.stderr)
                return read_yaml(file)
        return load_preset(self.named_preset())

    def config(
        self, options: Mapping[str, Any] | None = None, values: Mapping[str, Any] | None = None
    ) -> RunConfig:
        """All settings, starting from the preset, or from ``values``, which may be a stranger's:
        code that they name has to be named here as well (``ConfigError``)."""
        start = load_preset(self.named_preset()) if values is None else values
        changes = self.changes(options)
        config = make_config(start, changes)
        check_code(config, changes.items())
        return config


@Parameter(name="*")
@dataclass(frozen=True)
class Verified(Chosen):
    """Those of commands in whose games questions are verified."""

    verifier: str | None = None
    """Verifier of questions: auto, world, policy, openai or none."""

    def changes(self, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return super().changes({**(options or {}), "game.verifier": self.verifier})


@Parameter(name="*")
@dataclass(frozen=True)
class TrainOptions:
    """Options of ``ssp train``."""

    steps: int | None = None
    """Training steps."""
    solver_only: bool = False
    """Let the proposer play, but not learn."""
    questions: str | None = None
    """File of questions with answers that the solver learns from, in place of proposals; beside
    them with --set learning.given_share=0.5."""
    out: Path | None = None
    """Run directory (default: runs/PRESET-seedN, numbered if taken)."""
    resume: bool = False
    """Continue the run in --out, or the newest one, with its settings."""
    quiet: bool = False
    """Show only errors and the result."""


@Parameter(name="*")
@dataclass(frozen=True)
class EvalOptions:
    """Options of ``ssp eval``."""

    per_group: int | None = None
    """Questions per hop count, per benchmark, or per group of --questions."""
    questions: str | None = None
    """File of your own questions: question, answers, group."""
    attempts: PositiveInt = 1
    """Attempts at each, for avg@K, pass@K and majority@K (default: 1)."""
    temperature: Annotated[float, NonNegative] = 0.0
    """Sampling temperature (default: 0, greedy)."""
    prompts: str | None = None
    """Prompts that the policy was trained on: search-r1, any other set or directory; NAME:FILE
    takes the instructions from FILE."""
    no_search: bool = False
    """Let searches find nothing, to see what the policy knows anyway."""
    player: Literal["engine", "api"] = "engine"
    """A model here, or the one of openai.*."""
    json: bool = False
    """Print one JSON object."""
    out: str | None = None
    """Also write every game to this file, as JSON lines; a stopped one is continued."""


@Parameter(name="*")
@dataclass(frozen=True)
class ProbeOptions:
    """Options of ``ssp probe``."""

    cheat: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """Play this one: a name, or MODULE:CLASS of your own; repeatable (default: all)."""
    list: bool = False
    """List the cheats that ship."""
    games: int = 200
    """Games per cheat."""
    margin: Annotated[float, NonNegative] = 0.1
    """Pay per game that a cheat may have above an honest player's."""
    player: Literal["scripted", "model"] = "scripted"
    """Honest player: a script, or the model of openai.*."""
    allow: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """A cheat that is known to pay, and does not count; repeatable."""
    json: bool = False
    """Print one JSON object."""


@Parameter(name="*")
@dataclass(frozen=True)
class SweepOptions:
    """Options of ``ssp sweep``."""

    dry_run: bool = False
    """Show what would be run."""
    arms: Annotated[tuple[str, ...], Several] = ()
    """These arms alone."""
    code: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """MODULE:NAME of yours that the sweep's file names as rules or algorithms; repeatable."""
    seeds: Annotated[tuple[int, ...], Several] = ()
    """These seeds, in place of the sweep's; with --resume, they are added to it."""
    steps: int | None = None
    """Training steps of each trial."""
    parallel: PositiveInt | None = None
    """Trials at a time, at most (default: as many as there is room for)."""
    out: str | None = None
    """Directory of the sweep (default: runs/sweeps/SWEEP)."""
    resume: bool = False
    """Continue the trials in --out that have not ended."""
    tables: bool = False
    """Make the tables of the trials in --out that have ended."""
    keep_checkpoints: bool = False
    """Keep the last policies of finished trials."""
    quiet: bool = False
    """Show only errors and the tables."""

"""The tables of docs/settings.md name what the code has, with the same defaults."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from dataclasses import fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ssp_env
from ssp_env.doors.dealer import OPTIONS
from ssp_env.doors.rllib import SearchSelfPlayMultiAgentEnv
from ssp_env.doors.setup import Setup
from ssp_env.game.config import GameConfig, ViewConfig, suited
from ssp_env.game.game import Attempt, Game
from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Trajectory
from ssp_env.search.config import SearchConfig
from ssp_env.worlds import WORLDS

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "settings.md").read_text(encoding="utf-8")
IN_PLAY = {"rng", "materials", "accepted"}
"""What a game needs while it is played, and nobody afterwards."""


def rows(section: str, first: str) -> list[dict[str, str]]:
    """The table of a section whose first column has this head: head -> cell, for each row."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return [dict(zip(table[0], row, strict=True)) for row in table[2:]]


def names(cells: Iterable[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def value(cell: str) -> Any:
    text = cell.strip("`")
    return Tags() if text == "Tags()" else ast.literal_eval(text)


def own_parameters(door: Any) -> set[str]:
    parameters = inspect.signature(door).parameters.values()
    return {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}


def test_keywords_are_those_of_every_door() -> None:
    keywords = names(row["keyword"] for row in rows("Keywords", "keyword"))
    assert set(keywords) == set(Setup.__annotations__)


def test_named_worlds_are_those_that_ship() -> None:
    world = rows("Keywords", "keyword")[0]
    assert names([world["takes"]]) == list(WORLDS)
    assert names([world["when not given"]]) == [ssp_env.raw_env().rules.world.name]


def test_doors_take_the_further_keywords_that_are_listed() -> None:
    listed = {}
    for row in rows("Keywords", "door"):
        for door in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row["door"])):
            listed[door] = set(names([row["beside these"]]))
    # env_config is the mapping that the multi-agent env hands on.
    assert "config" in own_parameters(SearchSelfPlayMultiAgentEnv)
    assert listed.pop("env_config") == listed["env"]
    assert listed == {door: own_parameters(getattr(ssp_env, door)) for door in listed}
    doors = {"env", "raw_env", "GameBatch", "TextGame", "TextRole"}
    assert set(listed) == doors | {
        name for name in ssp_env.__all__ if re.search("(Solver|Proposer)(Vector)?Env", name)
    }


@pytest.mark.parametrize(
    ("kind", "section", "worlds"),
    [(GameConfig, "`game`", ["mini", "small"]), (ViewConfig, "`view`", ["small"])],
)
def test_fields_defaults_and_values_of_worlds(kind: Any, section: str, worlds: list[str]) -> None:
    listed = {names([row["field"]])[0]: row for row in rows(section, "field")}
    assert list(listed) == list(kind.model_fields)
    for name, row in listed.items():
        default = getattr(kind(), name)
        assert value(row["default"]) == default
        for world in ("mini", "small"):
            used = next(config for config in suited(world) if isinstance(config, kind))
            cell = row[f"`{world}`"] if world in worlds else ""
            assert getattr(used, name) == (value(cell) if cell else default), (name, world)
            assert not cell or value(cell) != default, (
                f"{name} of {world} is the default: leave the cell empty"
            )


def test_fields_of_search() -> None:
    listed = {names([row["field"]])[0]: row["default"] for row in rows("`search`", "field")}
    assert {name: value(cell) for name, cell in listed.items()} == dict(SearchConfig())


def test_options_of_worlds() -> None:
    listed: dict[str, dict[str, Any]] = {world: {} for world in WORLDS}
    for row in rows("`world_options`", "world"):
        options = listed[names([row["world"]])[0]]
        if row["option"]:
            needed = row["default"] == "needed"
            options[names([row["option"]])[0]] = (
                inspect.Parameter.empty if needed else value(row["default"])
            )
    for world, place in WORLDS.items():
        module, _, attribute = place.partition(":")
        factory = getattr(import_module(module), attribute)
        assert listed[world] == {
            p.name: p.default for p in inspect.signature(factory).parameters.values()
        }, world


def test_options_of_reset() -> None:
    assert tuple(names(row["option"] for row in rows("`reset(options=...)`", "option"))) == tuple(
        OPTIONS
    )


def test_attributes_of_a_finished_game() -> None:
    listed = rows("A finished game", "attribute")
    properties = {
        name
        for name, member in vars(Game).items()
        if isinstance(member, property | cached_property)
    }
    has = {field.name for field in fields(Game)} | properties
    assert set(names(row["attribute"] for row in listed)) == has - IN_PLAY
    attempt = next(row for row in listed if row["attribute"] == "`attempts`")
    assert set(names([attempt["what it is"]])) == {field.name for field in fields(Attempt)} | {
        "right"
    }


def test_attributes_of_a_trajectory_exist() -> None:
    trajectory: Trajectory = ssp_env.GameBatch(1, world="mini").reset(seed=0)[0].trajectory
    section = PAGE.partition("A trajectory has these attributes:\n")[2]
    listed = names(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    assert len(listed) > 8
    assert not [name for name in listed if not hasattr(trajectory, name)]

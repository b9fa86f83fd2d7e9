"""What is known of saved games beside their tokens: their world, and the run that played them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from ssp_env.errors import SSPError
from ssp_env.game.game import Origin
from ssp_env.game.record import GameRecord
from ssp_env.replay.files import SavedGame
from ssp_env.types import World
from ssp_env.worlds import WORLDS, open_world


class Known:
    """Facts about the games of a run directory, or of a file of games, in a run's or elsewhere."""

    def __init__(self, path: Path) -> None:
        places = (path, *path.resolve().parents[:2])
        # The folder itself, or that of a file in RUN/games.
        run = next((place for place in places if (place / "config.yaml").is_file()), path)
        self._settings = _settings(run / "config.yaml")
        self._staleness = dict(_staleness(run / "metrics.jsonl"))

    def version(self, step: int | None) -> int | None:
        """Steps that the weights of a step's games had learnt from; ``None``: not known."""
        stale = None if step is None else self._staleness.get(step)
        # Weights of n - 1 steps play step n, less the steps by which they are stale.
        return None if step is None or stale is None else step - 1 - stale

    def world(self, saved: SavedGame) -> World | None:
        """The world that a game was played in; ``None``: not known.

        It is that of the run's settings, or else the packaged one of this name, if all passages
        that the game has found are in it, and there are any."""
        name = saved.rules.parts.world
        is_named = self._settings.get("world") == name and not self._settings.get("rules")
        options = self._settings.get("world_options") or {} if is_named else {}
        if name not in WORLDS or name == "files":
            return None
        try:
            world, texts = _opened(name, json.dumps(options))
        except SSPError:
            return None
        searches = [search for t in saved.record.trajectories for search in t.searches]
        found = [document for search in searches for document in search.documents]
        there = all(texts.get(document.id) == document.text for document in found)
        return world if is_named or (found and there) else None


@lru_cache(4)
def _opened(name: str, options: str) -> tuple[World, dict[str, str]]:
    """A world, and the texts of its passages by their ids."""
    world = open_world(name, **json.loads(options))
    return world, {document.id: document.text for document in world.corpus}


def _settings(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return values if isinstance(values, dict) else {}


def _staleness(file: Path) -> Iterator[tuple[int, int]]:
    """Steps, and the age of the weights that played each, from a run's figures."""
    for text in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if "staleness" in line:
            yield line["step"], round(line["staleness"])


def group_of(record: GameRecord, world: World | None) -> str | None:
    """The group of the question that a game was given, as its world has it; where the question is
    none of the world's own, as the record has it."""
    if record.initial_state.origin is not Origin.GIVEN:
        return None
    asked: Any = world  # hashed by identity
    # Questions are drawn by the seed of the evaluation, the first number of its games' seeds.
    known = {} if asked is None else _groups(asked, record.initial_state.seed[0])
    return known.get((record.initial_state.truth.id, record.question), record.question_group)


@lru_cache(4)
def _groups(world: Any, seed: int) -> dict[tuple[str, str | None], str]:
    try:
        return {(asked.id, asked.text): asked.group for asked in world.questions(seed)}
    except SSPError:  # it has no questions of its own
        return {}

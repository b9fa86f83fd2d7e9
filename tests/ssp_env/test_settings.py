"""The reader of settings: what it converts, what it refuses, and by which name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from agents.config import LearningConfig
from experiments.config import (
    ComputeConfig,
    EvaluationConfig,
    OpenAIConfig,
    RunConfig,
)
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.search.config import SearchConfig
from ssp_env.settings import check_path, named, plain, read


class Colour(Enum):
    """Of a lamp."""

    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Inner:
    """A section in a section."""

    depth: int = 1
    rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ConfigError("inner.depth", self.depth, "must be at least 0")


@dataclass(frozen=True)
class Outer:
    """Every kind of field that settings have."""

    name: str
    size: int = 3
    place: Path | None = None
    either: Inner | str = ""
    inner: Inner = field(default_factory=lambda: Inner(7, (0.5,)))
    pair: tuple[int, float] = (1, 2.0)
    free: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    colour: Colour = Colour.RED

    SYNONYMS: ClassVar[Mapping[str, str]] = {"length": "size"}


WHOLE = Outer(
    "lone \ud800 half",
    3,
    Path("a/b"),
    Inner(2),
    Inner(0, (float("inf"), 1e-6)),
    (4, 0.25),
    {"a": [1, None]},
    {"b": 2},
    Colour.GREEN,
)


def test_what_is_written_is_read_back() -> None:
    text = json.dumps(plain(WHOLE), allow_nan=False)
    assert read(Outer, json.loads(text), strict=True) == WHOLE
    assert read(Outer, json.loads(text)) == WHOLE


def test_a_half_that_json_would_join_comes_back_in_two() -> None:
    values = json.loads(json.dumps(plain(Outer("\ud83d\ude00"))))
    assert read(Outer, values, strict=True).name == "\ud83d\ude00"


def test_lenient_reading_completes_and_converts() -> None:
    values = {
        "name": Path("x"),
        "size": np.int64(5),
        "pair": [1, "1e-3"],
        "inner": {"depth": 2},
        "either": "text",
        "free": None,
    }
    made = read(Outer, values)
    assert made == Outer("x", 5, None, "text", Inner(2, (0.5,)), (1, 1e-3), {})
    assert type(made.size) is int
    assert read(Outer, {"size": 1}, default=WHOLE).place == WHOLE.place


@pytest.mark.parametrize(
    ("values", "name", "fix"),
    [
        ({}, "top.name", "is missing"),
        ({"length": 3}, "top.length", "did you mean 'size'?"),
        ({"lenght": 3}, "top.lenght", "did you mean 'size'?"),
        ({"depth": 3}, "top.depth", "did you mean 'either.depth' or 'inner.depth'?"),
        ({"inner": {"dept": 3}}, "top.inner.dept", "did you mean 'depth'?"),
        ({"inner": {"depth": -1}}, "top.inner.depth", "must be at least 0"),
        ({"inner": 3}, "top.inner", "needs a mapping of Inner's fields"),
        ({"inner": {1: 2}}, "top.inner", "needs a mapping of settings"),
        ({"either": 3}, "top.either", "needs a mapping of Inner's fields or a text"),
        ({"place": 3}, "top.place", "needs a path or null"),
        ({"pair": [1]}, "top.pair", "needs 2 items, not 1"),
        ({"pair": [1, "x"]}, "top.pair", "needs a number, not a text"),
        ({"free": []}, "top.free", "needs a mapping of settings, by name"),
        ({"counts": {"a": "b"}}, "top.counts.a", "needs a whole number, not a text"),
        ({"colour": "blue"}, "top.colour", "needs one of red, green"),
        ({"size": True}, "top.size", "needs a whole number"),
    ],
)
def test_what_is_refused(values: dict[str, Any], name: str, fix: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(Outer, values if name == "top.name" else {"name": "n", **values}, "top")
    assert raised.value.field == name
    assert fix in raised.value.fix


@pytest.mark.parametrize(
    ("change", "name", "fix"),
    [
        ({"more": 1}, "more", "is not known"),
        ({"pair": [1, "1e-3"]}, "pair[1]", "type float, not str"),
        ({"pair": [10**400, 10**400]}, "pair[1]", "too large"),
        ({"inner": None}, "inner", "type Inner, not NoneType"),
        ({"inner": {"depth": 1}}, "inner.rates", "is missing"),
        ({"inner": {"depth": -1, "rates": []}}, "inner.depth", "cannot be -1: must be"),
    ],
)
def test_strict_reading_completes_nothing(change: dict[str, Any], name: str, fix: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(Outer, {**plain(WHOLE), **change}, strict=True)
    assert raised.value.field == name
    assert fix in raised.value.fix


def test_a_name_is_the_one_that_was_typed() -> None:
    with pytest.raises(ConfigError) as raised, named("env_config"):
        read(GameConfig, {"attempts": 0}, "game")
    assert raised.value.field == "env_config.game.attempts"


def test_names_of_paths() -> None:
    for path in ("inner.depth", "either.depth", "free.anything", "size"):
        check_path(Outer, path, 1)
    for path in ("size.x", "inner.depth.x", "free.a.b", "inner.size", "outer"):
        with pytest.raises(ConfigError) as raised:
            check_path(Outer, path, 1)
        assert raised.value.field == path


@pytest.mark.parametrize(
    "kind",
    [
        GameConfig,
        LearningConfig,
        EvaluationConfig,
        ComputeConfig,
        OpenAIConfig,
        RunConfig,
        SearchConfig,
    ],
)
def test_every_synonym_leads_to_a_setting(kind: Any) -> None:
    names = {field.name for field in fields(kind)}
    assert set(kind.SYNONYMS.values()) <= names
    assert not set(kind.SYNONYMS) & names

"""Settings of the game: every knob does something, and every mistake is named with its fix."""

from __future__ import annotations

import ast
import json
import math
from dataclasses import FrozenInstanceError, asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted import (
    Script,
    begin,
    by_role,
    play,
    propose,
    records,
    rules_of,
    say,
    solve,
    word_tokenizer,
)

import ssp_env
import ssp_env.game.config
from ssp_env.errors import ConfigError
from ssp_env.game.config import MINI_GAME, VERIFIERS, GameConfig, ViewConfig
from ssp_env.game.protocol import Tags
from ssp_env.settings import read
from ssp_env.types import Role
from ssp_env.worlds.mini import MiniWorld

SEARCH = "<search> mentor rival </search>"
GOOD = by_role(propose(2), solve)
NO_SEARCH = by_role(say("<question> what is the mentor of it ? </question>"), say([1]))
UNVERIFIED = by_role(say(SEARCH, "<question> what is the mentor of Nobody ? </question>"), say([1]))
UNSOLVED = by_role(propose(), say([1]))
READS = by_role(propose(2), solve, say("<answer> nothing </answer>"))

KNOBS: dict[str, tuple[Any, Script]] = {
    "attempts": (2, GOOD),
    "proposals": (2, GOOD),
    "max_searches": (1, GOOD),
    "top_k": (1, GOOD),
    "max_prompt_tokens": (2, GOOD),
    "max_response_tokens": (30, GOOD),
    "max_document_tokens": (5, GOOD),
    "max_verification_tokens": (60, READS),
    "max_query_tokens": (1, by_role(say(SEARCH, [1]))),
    "max_answer_tokens": (1, by_role(propose(), say("<answer> what is it </answer>"))),
    "min_question_chars": (90, GOOD),
    "max_question_chars": (11, GOOD),
    "min_question_words": (40, GOOD),
    "min_searches": (3, GOOD),
    "asked_searches": ((2, 3), GOOD),
    "filters": ((), NO_SEARCH),
    "verifier": ("none", UNVERIFIED),
    "verification_prompt": ("documents", READS),
    "closed_book": (True, lambda t: [1] if t.role is Role.CLOSED_BOOK else GOOD(t)),
    "noise_documents": (1, GOOD),
    "noise_kind": ("near", GOOD),
    "proposer_reward": ("4p(1-p)", UNSOLVED),
    "invalid_reward": (-0.5, NO_SEARCH),
    "tags": (Tags(information="observation"), by_role(say("<search> what </search>", [1]))),
    "prompts": ("plain", by_role(say([1]))),
}
"""A turn of each knob, and a script that feels it."""
BESIDES = {
    name: {"verifier": "policy"} for name in ("max_verification_tokens", "verification_prompt")
}
"""What has to be set besides."""


def outcome(mini: MiniWorld, script: Script, **changes: Any) -> str:
    """Everything that a round leaves behind."""
    room = {"max_prompt_tokens": 1000, "asked_searches": (1, 1)}
    tokenizer = word_tokenizer(changes.get("tags"))
    played = play(begin(rules_of(mini, tokenizer, **{**room, **changes})), script)
    ids = [[list(t.ids) for t in game.trajectories()] for game in played.games]
    return json.dumps([[asdict(game) for game in records(played)], ids])


def test_every_knob_is_turned() -> None:
    assert set(KNOBS) == {field.name for field in fields(GameConfig)}


VIEW_KNOBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "window": (8, {}),
    "one_hot": (True, {"window": 8}),
    "legal_moves": (True, {}),
}
"""A turn of each knob of the view, and what has to be set besides."""


def seen(mini: MiniWorld, **view: Any) -> list[tuple[str, list[int]]]:
    """Shape, dtype and content of a first observation."""
    env = ssp_env.raw_env(world=mini, game=MINI_GAME, view=ViewConfig(**view))
    env.reset(seed=1)
    observation = env.observe("proposer")
    return [
        (f"{name} {array.shape} {array.dtype}", array.tolist())
        for name, array in observation.items()
    ]


def test_every_knob_of_the_view_is_turned() -> None:
    assert set(VIEW_KNOBS) == {field.name for field in fields(ViewConfig)}


@pytest.mark.parametrize("name", sorted(VIEW_KNOBS))
def test_a_knob_of_the_view_does_something(mini: MiniWorld, name: str) -> None:
    value, besides = VIEW_KNOBS[name]
    assert seen(mini, **besides, **{name: value}) != seen(mini, **besides)
    default = getattr(ViewConfig(), name)
    assert seen(mini, **besides, **{name: default}) == seen(mini, **besides)


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_a_knob_does_something(mini: MiniWorld, name: str) -> None:
    value, script = KNOBS[name]
    besides = BESIDES.get(name, {})
    assert outcome(mini, script, **besides) != outcome(mini, script, **besides, **{name: value})


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_the_default_written_down_does_nothing(mini: MiniWorld, name: str) -> None:
    if name not in ("max_prompt_tokens", "asked_searches"):
        script = KNOBS[name][1]
        assert outcome(mini, script) == outcome(mini, script, **{name: getattr(MINI_GAME, name)})


@pytest.mark.parametrize("kind", ["GameConfig", "ViewConfig"])
def test_every_field_is_documented(kind: str) -> None:
    tree = ast.parse(Path(ssp_env.game.config.__file__).read_text(encoding="utf-8"))
    (body,) = (
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind
    )
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign):
            assert isinstance(after, ast.Expr)
            assert isinstance(after.value, ast.Constant)
            assert isinstance(after.value.value, str)


def test_the_defaults_are_the_papers() -> None:
    config = GameConfig()
    assert (config.attempts, config.proposals, config.max_searches, config.top_k) == (5, 1, 10, 3)
    assert (config.max_prompt_tokens, config.max_response_tokens) == (4096, 8192)
    assert (
        config.noise_documents,
        config.verifier,
        config.proposer_reward,
        config.invalid_reward,
    ) == (
        4,
        "policy",
        "1-p",
        0.0,
    )


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field", "fix"),
    [
        ({"attempts": 0}, "game.attempts", "must be at least 1"),
        ({"noise_documents": -1}, "game.noise_documents", "must be at least 0"),
        ({"attempts": math.nan}, "game.attempts", "needs a whole number"),
        ({"filters": "spoiler"}, "game.filters", "needs a list, each item a text, not a text"),
        ({"tags": "search"}, "game.tags", "needs a mapping of Tags's fields, not a text"),
        (
            {"max_question_chars": 9},
            "game.max_question_chars",
            "must not be below min_question_chars = 10",
        ),
        (
            {"asked_searches": (0, 1)},
            "game.asked_searches",
            "1 <= low <= high <= max_searches = 10",
        ),
        ({"asked_searches": (1,)}, "game.asked_searches", "needs 2 items, not 1"),
        ({"filters": ("spoilr",)}, "game.filters", "did you mean 'spoiler'?"),
        ({"verifier": "polcy"}, "game.verifier", "did you mean 'policy'?"),
        ({"verifier": ""}, "game.verifier", "known: " + ", ".join(sorted(VERIFIERS))),
        ({"invalid_reward": math.nan}, "game.invalid_reward", "finite"),
    ],
)
def test_values_that_cannot_work(changes: dict[str, Any], field: str, fix: str) -> None:
    with pytest.raises(ConfigError) as error:
        GameConfig(**changes)
    assert error.value.field == field
    (value,) = changes.values()
    given = error.value.value
    assert given is value or given == value or given in value
    assert fix in error.value.fix
    assert str(error.value) == f"{field} = {given!r}: {error.value.fix}"


def test_numbers_of_numpy_become_pythons() -> None:
    config = GameConfig(
        attempts=np.int64(3), invalid_reward=np.float32(-0.5), asked_searches=[1, np.int32(2)]
    )  # type: ignore[arg-type]
    assert config == GameConfig(attempts=3, invalid_reward=-0.5, asked_searches=(1, 2))
    assert [type(value) for value in (config.attempts, config.invalid_reward)] == [int, float]
    assert type(config.asked_searches) is tuple


@pytest.mark.parametrize(
    ("changes", "field", "fix"),
    [
        ({"window": 0}, "view.window", "must be at least 1"),
        ({"one_hot": True}, "view.one_hot", "set view.window as well"),
    ],
)
def test_views_that_cannot_work(changes: dict[str, Any], field: str, fix: str) -> None:
    with pytest.raises(ConfigError) as error:
        ViewConfig(**changes)
    assert error.value.field == field
    assert fix in error.value.fix


def test_a_config_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        GameConfig().attempts = 3  # type: ignore[misc]


# -- from plain values -------------------------------------------------------------------------


def test_from_a_mapping() -> None:
    values = {
        "attempts": 3,
        "asked_searches": [1, 2],
        "filters": ["spoiler"],
        "tags": {"information": "observation"},
        "invalid_reward": -1,
        "prompts": "mini",
    }
    config = read(GameConfig, values, "game")
    assert config == GameConfig(
        attempts=3,
        asked_searches=(1, 2),
        filters=("spoiler",),
        tags=Tags(information="observation"),
        invalid_reward=-1.0,
        prompts="mini",
    )
    assert type(config.invalid_reward) is float
    assert read(GameConfig, {}, "game") == GameConfig()
    assert read(GameConfig, {"tags": Tags(search="find")}, "game").tags.search == "find"


@pytest.mark.parametrize("text", ["1e-6", "-1E+3", "2.5e1", "1.e2"])
def test_what_yaml_takes_for_text(text: str) -> None:
    assert read(GameConfig, {"invalid_reward": text}, "game").invalid_reward == float(text)


@pytest.mark.parametrize(
    ("values", "field", "fix"),
    [
        ({"atempts": 3}, "game.atempts", "did you mean 'attempts'"),
        ({"tags": {"serch": "x"}}, "game.tags.serch", "did you mean 'search'"),
        ({"tags": {"search": 5}}, "game.tags.search", "needs a text"),
        ({"attempts": "3"}, "game.attempts", "needs a whole number, not a text"),
        ({"filters": [1]}, "game.filters", "needs a text"),
        ({"attempts": 0}, "game.attempts", "at least 1"),
    ],
)
def test_mappings_that_cannot_work(values: dict[str, Any], field: str, fix: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(GameConfig, values, "game")
    assert error.value.field == field
    assert fix in error.value.fix

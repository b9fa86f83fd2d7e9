"""Settings of the game: every knob does something, and every mistake is named with its fix."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

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
from ssp_env.game.config import MINI_GAME, GameConfig, ViewConfig
from ssp_env.game.protocol import Tags
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
    "max_query_tokens": (1, by_role(say(SEARCH, [1]))),
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
BESIDES = {"verification_prompt": {"verifier": "policy"}}
"""What has to be set besides."""


def outcome(mini: MiniWorld, script: Script, **changes: Any) -> str:
    """Everything that a round leaves behind."""
    room = {"max_prompt_tokens": 1000, "asked_searches": (1, 1)}
    tokenizer = word_tokenizer(changes.get("tags"))
    played = play(begin(rules_of(mini, tokenizer, **{**room, **changes})), script)
    ids = [[list(t.ids) for t in game.trajectories()] for game in played.games]
    return json.dumps([[asdict(game) for game in records(played)], ids])


def test_every_knob_is_turned() -> None:
    assert set(KNOBS) == set(GameConfig.model_fields)


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
    assert set(VIEW_KNOBS) == set(ViewConfig.model_fields)


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

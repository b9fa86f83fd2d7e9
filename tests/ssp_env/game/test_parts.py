"""Settings and parts of the game: every knob does something, wrong parts are named, and what a
result depends on is known."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from scripted import (
    OPENING,
    Script,
    again,
    begin,
    by_role,
    play,
    propose,
    rules_of,
    say,
    solve,
    word_tokenizer,
)

import ssp_env
from ssp_env.envs.setup import set_up
from ssp_env.game.config import MINI_GAME, GameConfig, ViewConfig
from ssp_env.game.outcome import Outcome
from ssp_env.game.rules import fingerprint
from ssp_env.judge.judges import F1Judge
from ssp_env.players import MiniPlayer, scripted_player
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.client import HTTPRetriever
from ssp_env.types import Role
from ssp_env.worlds.mini import MiniWorld, SmallWorld

SEARCH = "<search> mentor rival </search>"
GOOD = by_role(propose(2), solve)
NO_SEARCH = by_role(say("<question> what is the mentor of it ? </question>"), say([1]))
UNVERIFIED = by_role(say(SEARCH, "<question> what is the mentor of Nobody ? </question>"), say([1]))
READS = by_role(propose(2), solve, say("<answer> nothing </answer>"))
KNOBS: dict[str, tuple[Any, Script]] = {
    "attempts": (2, GOOD),
    "proposals": (2, GOOD),
    "answers": ("proposed", by_role(say([1]))),
    "max_searches": (1, GOOD),
    "tools": (("search", "open"), MiniPlayer(OPENING, hops=2).write),
    "top_k": (1, GOOD),
    "max_prompt_tokens": (2, GOOD),
    "max_response_tokens": (30, GOOD),
    "max_document_tokens": (5, GOOD),
    "max_query_tokens": (1, by_role(say(SEARCH, [1]))),
    "question_chars": ((90, 999), GOOD),
    "retries": (1, by_role(say([1]))),
    "asked_searches": ((2, 3), GOOD),
    "filters": ((), NO_SEARCH),
    "verifier": ("none", UNVERIFIED),
    "verification_prompt": ("documents", READS),
    "verifications": ((1, 2), READS),
    "closed_book": (True, lambda t: [1] if t.role is Role.CLOSED_BOOK else GOOD(t)),
    "noise_documents": (1, GOOD),
    "noise_kind": ("near", GOOD),
    "proposer_reward": ("4p(1-p)", by_role(propose(), say([1]))),
    "invalid_reward": (-0.5, NO_SEARCH),
    "prompts": ("plain", by_role(say([1]))),
}
"""A turn of each knob, and a script that feels it."""


def outcome(mini: MiniWorld, script: Script, **changes: Any) -> str:
    """Everything that a batch of games leaves behind; it is replayed to the bit."""
    room = {"max_prompt_tokens": 1000, "asked_searches": (1, 1)}
    rules = rules_of(mini, word_tokenizer(OPENING), **{**room, **changes})
    played = play(begin(rules), script)
    return json.dumps([asdict(again(game, rules).record) for game in played.games])


@pytest.mark.parametrize("name", GameConfig.model_fields)
def test_every_knob_does_something(mini: MiniWorld, name: str) -> None:
    value, script = KNOBS[name]
    besides = {"verifier": "policy"} if script is READS else {}
    assert outcome(mini, script, **besides) != outcome(mini, script, **besides, **{name: value})


@pytest.mark.parametrize("name", ViewConfig.model_fields)
def test_every_knob_of_the_view_does_something(mini: MiniWorld, name: str) -> None:
    def seen(**view: Any) -> list[tuple[Any, ...]]:
        env = ssp_env.raw_env(world=mini, game=MINI_GAME, view=ViewConfig(**view))
        env.reset(seed=1)
        observed = env.observe("proposer").items()
        return [(key, array.dtype, array.tolist()) for key, array in observed]

    value = {"window": 8, "one_hot": True, "legal_moves": True}[name]
    besides = {"window": 8} if name == "one_hot" else {}
    assert seen(**besides, **{name: value}) != seen(**besides)


SMALL = SmallWorld()
BM25 = BM25Retriever(SMALL.corpus)


def broken(*_: Any) -> Any:
    raise KeyError("a bug")


@pytest.mark.parametrize(
    "parts", [{"judge": SimpleNamespace(judge=broken)}, {"filters": {"mine": broken}}]
)
def test_a_part_that_raises_decides_no_game(parts: dict[str, Any]) -> None:
    """Neither invalid nor void: nobody is paid or blamed for code of the user's own."""
    env = ssp_env.TurnVectorEnv(2, world=SMALL, **parts)
    player = scripted_player(env.rules)

    def play_on() -> None:
        turns = env.reset(seed=0)
        while turns:
            texts = [player.write(turn.trajectory) for turn in turns]
            turns = env.step([env.rules.tokenizer.encode(text) for text in texts])

    with pytest.raises(KeyError, match="a bug") as raised:
        play_on()
    assert "of your rules" in raised.value.__notes__[0], "it says which part it was"
    for game in env.games:
        assert (game.outcome, game.reason, game.proposer_reward) == (Outcome.PENDING, None, None)


class Empty(list[Any]):
    """A part that is falsy, as a container without anything in it is."""

    search = judge = verify = broken
    __call__ = broken


def test_a_falsy_part_is_given_all_the_same(mini: MiniWorld) -> None:
    names = ("retriever", "judge", "verifier", "noise", "proposer_reward", "solver_reward")
    parts: dict[str, Any] = {name: Empty() for name in names}
    rules = set_up({"world": mini, **parts}).rules  # type: ignore[typeddict-item]
    assert all(getattr(rules, name) is part for name, part in parts.items())


def test_a_fingerprint_says_what_differs() -> None:
    def of(**setup: Any) -> dict[str, Any]:
        return fingerprint(set_up({"world": "mini", **setup}).rules)

    base = of()
    assert base == of() == json.loads(json.dumps(base))
    for change in (
        {"game": {"top_k": 3}},
        {"game": {"verifier": "none"}},
        {"world_options": {"seed": 1}},
        {"judge": F1Judge(0.5)},
        {"retriever": HTTPRetriever("http://127.0.0.1:9")},
    ):
        assert of(**change)["hash"] != base["hash"], change
    assert of(game={"attempts": 2})["hash"] == base["hash"], "the same task at another size"


def test_one_search_takes_few_calls_in_few_files() -> None:
    batch = ssp_env.TurnVectorEnv(1, world="mini")
    (turn,) = batch.reset(seed=0)
    ids = batch.rules.tokenizer.encode(scripted_player(batch.rules).write(turn.trajectory))
    root, calls = str(Path(ssp_env.__file__).parent), []

    def count(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        # Comprehensions are frames of their own, but nothing that a reader follows.
        if event == "call" and code.co_filename.startswith(root) and code.co_name[0] != "<":
            calls.append(code.co_filename)

    sys.setprofile(count)
    try:
        batch.step([ids], [[-0.5] * len(ids)])
    finally:
        sys.setprofile(None)
    assert len(turn.trajectory.searches) == 1
    assert len(calls) <= 60
    assert len(set(calls)) <= 12

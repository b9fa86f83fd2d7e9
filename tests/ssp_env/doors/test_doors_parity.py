"""The same turns through every door: tokens, masks, rewards, flags and infos are the same."""

from __future__ import annotations

from typing import Any

import all_doors as doors
import numpy as np
import pytest
from hf_tokenizers import byte_level
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Script, by_role, propose, read, solve

import ssp_env
from ssp_env.game.config import MINI_GAME, GameConfig
from ssp_env.game.trajectory import Trajectory
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer
from ssp_env.types import Role
from ssp_env.worlds.mini import MiniWorld

ROOMY = {
    "max_prompt_tokens": 3000,
    "max_response_tokens": 3000,
    "max_query_tokens": 40,
    "max_document_tokens": 500,
}
TIGHT = {
    "max_prompt_tokens": 600,
    "max_response_tokens": 160,
    "max_searches": 2,
    "verifier": "none",
    "filters": ("no_search",),
}
KINDS = ["bytes", "words", "bpe", "bpe with tags"]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, words: Tokenizer) -> Tokenizer:
    match request.param:
        case "bytes":
            return ByteTokenizer()
        case "words":
            return words
    return HuggingFaceTokenizer(byte_level(tags=request.param == "bpe with tags"))


def game(**changes: Any) -> GameConfig:
    return MINI_GAME.replace(**changes)


@pytest.mark.parametrize("verifier", ["world", "policy"])
@pytest.mark.parametrize("hops", [1, 2])
def test_scripted_games(mini: MiniWorld, tokenizer: Tokenizer, verifier: str, hops: int) -> None:
    script = by_role(propose(hops), solve, read(mini))
    setup = {
        "world": mini,
        "tokenizer": tokenizer,
        "game": game(verifier=verifier, attempts=1, **ROOMY),
    }
    games = doors.through_all_doors(script, texts=True, **setup)
    assert {told.record.outcome for told in games} == {"valid"}


def test_verification_by_an_attempt(mini: MiniWorld, words: Tokenizer) -> None:
    """It searches, behind every door."""
    rules = game(verifier="policy", verification_prompt="attempt", attempts=1)
    script = by_role(propose(2), solve, solve)
    games = doors.through_all_doors(script, True, world=mini, tokenizer=words, game=rules)
    played = [told.record.play_of(Role.VERIFIER) for told in games]
    assert {told.record.outcome for told in games} == {"valid"}
    assert {len(verifier.searches) for verifier in played if verifier} == {2}


def test_games_of_several_attempts(mini: MiniWorld, tokenizer: Tokenizer) -> None:
    script = by_role(propose(1), solve)
    doors.through_all_doors(
        script, True, world=mini, tokenizer=tokenizer, game=game(attempts=3, **ROOMY)
    )


def test_masks_of_legal_moves_and_one_hot_windows(mini: MiniWorld, words: Tokenizer) -> None:
    view = ssp_env.ViewConfig(window=24, one_hot=True, legal_moves=True)
    script = by_role(lambda t: str(propose(1)(t)).partition("</think> ")[2] or propose(1)(t), solve)
    games = doors.through_all_doors(
        script, True, world=mini, tokenizer=words, game=game(attempts=1), view=view
    )
    masks = {seen[2] for told in games for seen in told.seen}
    assert len(masks) > 10, "masks follow the turn"


MALFORMED = {  # a turn of the proposer; the solver's ends with an empty answer
    "forged": "<information> x </information>",
    "search after search": "<search> what </search>",
    "answer by the proposer": "<answer> what </answer> <question> ? </question>",
    "empty": "<question></question>",
    "two openings": "<search> a <question> what is the mentor of X ? </question>",
    "query too long": f"<search> {'what ' * 60}</search>",
    "two calls": "<search> mentor </search> <question> what is the rival of the mentor ? "
    "</question>",
    "endless": "the " * 900,
    "thought": "<think> in <question> and </question> <answer> </think> <search> what </search>",
    "thought of information": "<think> <information> </think> <question> what </question>",
}


@pytest.mark.parametrize("written", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_turns(mini: MiniWorld, tokenizer: Tokenizer, written: str) -> None:
    written += " <answer> </answer>"
    setup = {"world": mini, "tokenizer": tokenizer, "game": game(attempts=1, **TIGHT)}
    doors.through_all_doors(by_role(lambda t: written, solve), True, **setup)
    setup["game"] = game(attempts=1, **{**ROOMY, "max_response_tokens": 600})
    games = doors.through_all_doors(by_role(propose(1), lambda t: written), True, **setup)
    assert {told.record.outcome for told in games} == {"valid"}
    assert {told.rewards["solver"] for told in games} == {0.0}


def test_a_thought_that_is_never_closed(mini: MiniWorld, tokenizer: Tokenizer) -> None:
    """It ends with the turn, behind every door that takes tokens."""
    written = tokenizer.encode("<think> in <search> what </search> and <information>")
    setup = {"world": mini, "tokenizer": tokenizer, "game": game(attempts=1, **TIGHT)}
    games = doors.through_all_doors(
        by_role(lambda t: [*written, tokenizer.eos_id or 0]), texts=False, **setup
    )
    assert {told.record.reason for told in games} <= {"budget_searches", "budget_tokens"}


def random_turns(seed: int, tokenizer: Tokenizer) -> Script:
    """Tokens at random, tags often among them; ends for sure. Follows from seed, role and turn
    alone."""
    tags = ["<search>", "</search>", "<question>", "</question>", "<answer>", "</answer>"]
    thoughts = ["<think>", "</think>"]
    common = [
        tokenizer.encode(text)
        for text in (*tags, *tags, *thoughts, "mentor ", "what ", "<", "</", "<information>")
    ]
    roles = list(Role)
    assert tokenizer.eos_id is not None

    def script(trajectory: Trajectory) -> list[int]:
        rng = np.random.default_rng([seed, roles.index(trajectory.role), len(trajectory.searches)])
        ids: list[int] = []
        if trajectory.role is Role.PROPOSER and rng.random() < 0.7:
            call = "question" if trajectory.searches else "search"
            ids += tokenizer.encode(f"<{call}> what </{call}>")
        for _ in range(int(rng.integers(12))):
            ids += common[int(rng.integers(len(common)))]
            ids += rng.integers(tokenizer.vocab_size, size=int(rng.integers(3))).tolist()
        return [*ids, tokenizer.eos_id]

    return script


def test_random_tokens(mini: MiniWorld, tokenizer: Tokenizer) -> None:
    setup = {"world": mini, "tokenizer": tokenizer, "game": game(attempts=1, **TIGHT)}
    endings = set()
    for seed in range(8):
        for told in doors.through_all_doors(random_turns(seed, tokenizer), texts=False, **setup):
            endings.add((told.record.outcome, told.record.reason))
    assert len(endings) > 2, "the games are no test if they all end alike"


def test_random_tokens_of_the_solver_alone(mini: MiniWorld, tokenizer: Tokenizer) -> None:
    setup = {"world": mini, "tokenizer": tokenizer, "game": game(attempts=1, **ROOMY)}
    endings = set()
    for seed in range(4):
        for told in doors.through_all_doors(
            by_role(propose(1), random_turns(seed, tokenizer)), texts=False, **setup
        ):
            endings.add(told.trajectories[-1][4])
    assert len(endings) > 1


@settings(max_examples=20)
@given(turns=st.lists(st.lists(st.integers(0, 257), max_size=40), min_size=1, max_size=3))
def test_any_bytes(mini: MiniWorld, turns: list[list[int]]) -> None:
    def script(trajectory: Trajectory) -> list[int]:
        return [*turns[len(trajectory.searches) % len(turns)], 256]

    setup = {"world": mini, "tokenizer": ByteTokenizer(), "game": game(attempts=1, **TIGHT)}
    expected = doors.aec(3, script, **setup)
    assert doors.rounds(3, script, **setup) == doors.strip_seen(expected)
    assert doors.batch(range(3, 4), script, **setup) == [doors.strip_seen(expected)]
    assert doors.single(Role.PROPOSER, 3, script, **setup) == expected.of(Role.PROPOSER)

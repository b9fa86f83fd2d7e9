"""Copies of games in the middle, as tree search makes them: small, exact, and on their own."""

from __future__ import annotations

import copy
import operator
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ssp_env
from ssp_env.game.record import record_game
from ssp_env.worlds.files import WikiMini

SEARCHES = ("river city", "painter born in the city", "film of that year")


@pytest.fixture(scope="module")
def midgame() -> Any:
    """A game over wiki-mini after a few searches, in the middle of a turn."""
    # The world that pickles refer to, so that the passages are read once.
    env = ssp_env.env(
        world=pickle.loads(pickle.dumps(WikiMini())), game={"max_document_tokens": 256}
    )
    env.reset(seed=0)
    encode = env.unwrapped.rules.tokenizer.encode
    for query in SEARCHES:
        for token in encode(f"<think> next </think><search> {query} </search>"):
            env.step(token)
            env.last()
    env.step(encode("<search> riv")[0])
    return env


def test_a_copy_is_small_and_shares_what_never_changes(midgame: Any) -> None:
    copy.deepcopy(midgame)
    tracemalloc.start()
    twin = copy.deepcopy(midgame)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 100_000

    ours, its = midgame.unwrapped, twin.unwrapped
    assert its.rules is ours.rules, "tokenizer, corpus, answers, index"
    first, second = ours.game.proposer, its.game.proposer
    assert second is not first
    assert second.limits is first.limits
    assert all(map(operator.is_, first.searches, second.searches))
    assert second.key != first.key, "an engine would take one for the other"


def test_a_pickle_refers_to_a_packaged_world(midgame: Any) -> None:
    data = pickle.dumps(midgame)
    assert len(data) < 150_000

    rules, own = pickle.loads(data).unwrapped.rules, midgame.unwrapped.rules
    assert rules.world is own.world, "opened once per process"
    assert rules.corpus is rules.world.corpus
    retrieved = {d.id for s in midgame.unwrapped.game.proposer.searches for d in s.documents}
    others = [document for document in rules.corpus[:2000] if document.id not in retrieved]
    assert not any(document.text.encode() in data for document in others)


@settings(max_examples=10)
@given(st.integers(0, 999), st.integers(0, 60), st.data())
def test_a_copy_goes_on_like_the_original_and_leaves_it_alone(
    seed: int, before: int, data: st.DataObject
) -> None:
    env = ssp_env.env(world="small", game={"attempts": 2})
    env.reset(seed=seed)
    _play(env, [data.draw(st.integers(0, 99)) for _ in range(before)])
    state, moves = _state(env), [data.draw(st.integers(0, 99)) for _ in range(40)]

    twin, other = copy.deepcopy(env), copy.deepcopy(env)
    _play(other, [move + 1 for move in moves])
    assert _state(env) == _state(twin) == state, "playing a copy changed the original"

    assert _play(twin, moves) == _play(env, moves)
    assert _state(twin) == _state(env)


def _play(env: Any, moves: list[int]) -> list[Any]:
    """Plays legal tokens; what was seen, paid and told on the way. A new game follows an end."""
    told: list[Any] = []
    for move in moves:
        seen, reward, terminated, truncated, info = env.last()
        told.append((env.agent_selection, seen["observation"].tobytes(), reward, terminated, info))
        if terminated or truncated:
            env.reset()
            continue
        legal = np.flatnonzero(seen["action_mask"])
        env.step(int(legal[move % len(legal)]))
    return told


def _state(env: Any) -> Any:
    seen, *rest = env.last()
    game = record_game(env.unwrapped.game, env.unwrapped.rules)
    return game, env.agent_selection, seen["observation"].tobytes(), rest

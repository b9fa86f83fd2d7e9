"""Batch strategies: what they ask for, what they fill in, what they remember."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.game.pool import PooledQuestion, compose
from ssp_env.game.strategies import (
    STRATEGIES,
    BalancedReuse,
    BatchStrategy,
    Composition,
    DummyPadding,
    ReplayBuffer,
    make_strategy,
)
from ssp_env.types import GroundTruth


def question(i: int) -> PooledQuestion:
    return PooledQuestion(f"what is {i} ?", GroundTruth(f"g{i}", str(i), (f"alias {i}",)))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def step(
    strategy: BatchStrategy, fresh: Sequence[PooledQuestion], empty: int, seed: int = 0
) -> list[PooledQuestion]:
    strategy.begin_step()
    return strategy.fill(rng(seed), fresh, empty)


def test_dummy_padding_leaves_slots_empty() -> None:
    strategy = DummyPadding()
    assert step(strategy, [question(1)], 3) == step(strategy, [question(2)], 3) == []
    assert not strategy.wants_more(0, 8, 1)
    assert strategy.get_state() == {}


def test_a_reused_question_does_not_enter_the_pool_again() -> None:
    strategy = ReplayBuffer()
    step(strategy, [question(1)], 0)
    for _ in range(5):
        assert step(strategy, [], 2) == [question(1)] * 2
    assert strategy.pool == [question(1)]


@pytest.mark.parametrize("every", [1, 2, 3, 10])
def test_periodic_reset_comes_exactly_every_k_steps(every: int) -> None:
    strategy = ReplayBuffer(reset_every=every)
    sizes = []
    for i in range(4 * every):
        step(strategy, [question(i)], 0)
        sizes.append(len(strategy.pool))
    assert sizes == list(range(1, every + 1)) * 4


@given(
    name=st.sampled_from(STRATEGIES),
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=8),
    cut=st.integers(0, 8),
)
def test_a_state_taken_back_goes_on_the_same(
    name: str, steps: list[tuple[int, int]], cut: int
) -> None:
    """Also through JSON, as checkpoints keep it."""
    whole, first = make_strategy(name, reset_every=3), make_strategy(name, reset_every=3)
    number = 0
    for i, (fresh, empty) in enumerate(steps):
        if i == cut:
            second = make_strategy(name, reset_every=3)
            second.set_state(json.loads(json.dumps(first.get_state())))
            first = second
        questions = [question(number + j) for j in range(fresh)]
        number += fresh
        filled = step(whole, questions, empty, seed=i)
        assert step(first, questions, empty, seed=i) == filled
        assert len(filled) <= empty
        own = set(filled) & set(questions)
        assert not own or (name == "periodic_reset" and own == set(filled)), (
            "only earlier steps' questions, or after a reset, only its own"
        )
    assert first.get_state() == whole.get_state()


def asked(text: str, answer: str, searches: int = 1) -> PooledQuestion:
    return PooledQuestion(text, GroundTruth(answer, answer), searches)


@pytest.mark.parametrize(
    ("outer", "inner", "whole"),
    [
        (
            asked("what is the rival of Tasen ?", "Havik"),
            asked("what is the author of Kemoris ?", "Tasen", 2),
            "what is the rival of the author of Kemoris ?",
        ),
        (
            asked("Who led the country of Paris?", "de Gaulle"),
            asked("What is the capital of France?", "Paris"),
            "Who led the country of the capital of France?",
        ),
        (
            asked("Who designed the Eiffel Tower?", "Koechlin"),
            asked("What was the tallest building of 1900?", "Eiffel Tower"),
            "Who designed the tallest building of 1900?",
        ),
        (
            asked("Who led the country of Paris?", "de Gaulle"),
            asked("Which city hosted the games of 1924?", "Paris"),
            "Who led the country of (the answer to: Which city hosted the games of 1924?)?",
        ),
    ],
)
def test_two_questions_make_one(outer: PooledQuestion, inner: PooledQuestion, whole: str) -> None:
    made = compose(outer, inner)
    assert made == PooledQuestion(whole, outer.truth, outer.searches + inner.searches, 2)


def test_a_step_is_filled_up_with_the_lengths_that_it_lacks() -> None:
    strategy = BalancedReuse()
    step(strategy, [asked(f"what is {i} ?", str(i), 1 + i % 3) for i in range(10)], 0)
    fresh = [asked(f"which is {i} ?", str(i), 2) for i in range(8)]
    lengths = Counter(item.searches for item in step(strategy, fresh, 16))
    assert lengths == {1: 4, 3: 12}, "with eight of two searches, 4 : 8 : 12"


@pytest.mark.parametrize("name", ["balanced", "compose"])
def test_what_has_been_asked_little_is_filled_in_more(name: str) -> None:
    strategy = make_strategy(name)
    often = [asked(f"what is the rival of N{i} ?", f"A{i}") for i in range(90)]
    seldom = [asked(f"what is the owner of N{90 + i} ?", f"B{i}") for i in range(10)]
    step(strategy, [*often, *seldom], 0)
    owners = sum("owner" in item.question for item in step(strategy, [], 400))
    assert 400 * 0.25 < owners < 400 * 0.45, "one of ten was one of four that were drawn"


def chain(start: int) -> PooledQuestion:
    """The question of one hop whose answer the next one asks about."""
    return asked(f"what is the heir of N{start} ?", f"N{start + 1}")


@given(st.integers(0, 2**32 - 1))
def test_questions_are_put_together_up_to_one_search_beyond_the_longest(seed: int) -> None:
    two = asked("what is the heir of the heir of N20 ?", "N22", 2)
    strategy = Composition(max_searches=5)
    step(strategy, [*map(chain, range(8)), two], 0)
    filled = step(strategy, [], 40, seed)

    for item in (item for item in filled if item.parts > 1):
        links = item.question.count("the heir of")
        start = int(item.question.split()[-2][1:])
        assert links == item.parts == item.searches <= 3
        assert item.truth.answer == f"N{start + links}"
    assert 3 in {item.searches for item in filled}
    assert any(item.parts == 1 for item in filled)

"""Batch strategies: what they ask for, what they fill in, what they remember."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.errors import ConfigError
from ssp_env.game.strategies import (
    MOST_WAVES,
    STRATEGIES,
    BatchStrategy,
    DummyPadding,
    DynamicResampling,
    PooledQuestion,
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


def test_resampling_goes_on_until_the_batch_is_full() -> None:
    strategy = DynamicResampling(max_waves=3)
    assert strategy.wants_more(valid=7, slots=8, waves=1)
    assert strategy.wants_more(0, 8, 2)
    assert not strategy.wants_more(8, 8, 1)
    assert not strategy.wants_more(0, 8, 3), (
        "a proposer that never succeeds must not hold the step up for ever"
    )
    assert step(strategy, [question(1)], 3) == []


def test_reuse_fills_with_earlier_questions_only() -> None:
    strategy = ReplayBuffer()
    assert step(strategy, [question(1), question(2)], 2) == [], (
        "there is nothing earlier in the first step"
    )
    assert set(step(strategy, [question(3)], 2)) == {question(1), question(2)}
    assert set(step(strategy, [], 9)) == {question(1), question(2), question(3)}
    assert not strategy.wants_more(0, 8, 1)


def test_reuse_repeats_only_what_it_must() -> None:
    strategy = ReplayBuffer()
    step(strategy, [question(i) for i in range(4)], 0)
    filled = step(strategy, [], 10)
    counts = sorted(filled.count(question(i)) for i in range(4))
    assert (len(filled), counts) == (10, [2, 2, 3, 3])


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


def test_a_step_after_a_reset_is_filled_with_its_own_questions() -> None:
    strategy = ReplayBuffer(reset_every=2)
    assert sorted(step(strategy, [question(1), question(2)], 4), key=str) == [
        question(1), question(1), question(2), question(2)
    ]  # fmt: skip
    step(strategy, [question(3)], 0)
    assert step(strategy, [question(4)], 5) == [question(4)] * 5, "nothing from before the reset"
    assert strategy.pool == [question(4)], "what was played again does not enter the pool again"
    assert ReplayBuffer(reset_every=2).fill(rng(), [], 5) == []
    assert set(step(strategy, [], 5)) == {question(4)}


def test_full_reuse_never_forgets() -> None:
    strategy = make_strategy("reuse", reset_every=2)
    for i in range(20):
        step(strategy, [question(i)], 0)
    assert len(step(strategy, [], 20)) == len({*step(strategy, [], 20)}) == 20


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


def test_a_state_is_a_copy() -> None:
    strategy = ReplayBuffer()
    step(strategy, [question(1)], 0)
    state = strategy.get_state()
    step(strategy, [question(2)], 0)
    assert len(state["pool"]) == 1


def test_filling_is_seeded() -> None:
    def filled(seed: int) -> list[PooledQuestion]:
        strategy = ReplayBuffer()
        step(strategy, [question(i) for i in range(20)], 0)
        return step(strategy, [], 5, seed)

    assert filled(1) == filled(1) != filled(2)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dummy", DummyPadding),
        ("resample", DynamicResampling),
        ("reuse", ReplayBuffer),
        ("periodic_reset", ReplayBuffer),
    ],
)
def test_by_name(name: str, kind: type) -> None:
    strategy = make_strategy(name, reset_every=7)
    assert type(strategy) is kind
    assert make_strategy(name) is not make_strategy(name), (
        "strategies have state: everybody gets an own one"
    )
    if isinstance(strategy, ReplayBuffer):
        assert strategy.reset_every == (7 if name == "periodic_reset" else None)


def test_all_names_are_known() -> None:
    assert len({type(make_strategy(name)).__name__ + name for name in STRATEGIES}) == 4


def test_settings_that_cannot_work() -> None:
    with pytest.raises(ConfigError, match="did you mean 'reuse'"):
        make_strategy("reus")
    with pytest.raises(ConfigError, match="reset_every = 0"):
        make_strategy("periodic_reset", reset_every=0)
    with pytest.raises(ConfigError, match="max_waves = 0"):
        DynamicResampling(0)
    with pytest.raises(ConfigError, match=f"max_waves = {MOST_WAVES + 1}: .* at most {MOST_WAVES}"):
        DynamicResampling(MOST_WAVES + 1)

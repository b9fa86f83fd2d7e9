"""Scores of several attempts, against counts by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.evaluation.scores import bootstrap, compare, estimate, majority, pass_at_k
from experiments.evaluation.tables import _p_value


@settings(deadline=None)
@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.data())
def test_pass_at_k_counts_all_draws(made: tuple[int, int], data: st.DataObject) -> None:
    right, attempts = made
    k = data.draw(st.integers(1, attempts))
    draws = list(combinations(range(attempts), k))
    hit = sum(any(i < right for i in draw) for draw in draws)
    assert pass_at_k(right, attempts, k) == pytest.approx(hit / len(draws))


def test_pass_at_more_than_were_made_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 5"):
        pass_at_k(1, 4, 5)


@pytest.mark.parametrize(
    ("answers", "right", "wins"),
    [
        (["Paris", "paris.", "Rome"], [True, True, False], True),
        (["Rome", "Paris", "the Rome"], [False, True, False], False),
        (["Paris", "Rome"], [True, False], True),
        (["Rome", "Paris"], [False, True], False),
        ([None, "Paris", None], [False, True, False], True),
        ([None, None], [False, False], False),
    ],
)
def test_majority(answers: list[str | None], right: list[bool], wins: bool) -> None:
    assert majority(answers, right) is wins


def test_an_interval_encloses_its_mean_and_narrows_with_questions() -> None:
    rng = np.random.default_rng(0)
    few, many = (bootstrap([1.0, 0.0] * n, rng) for n in (10, 1000))
    assert few.low < few.mean == 0.5 < few.high
    assert many.high - many.low < (few.high - few.low) / 5
    # The normal approximation of a share of .5 over 2,000 questions.
    assert many.high - many.low == pytest.approx(2 * 1.96 * 0.5 / 2000**0.5, rel=0.1)


def test_questions_that_are_all_wrong_do_not_make_a_policy_certain_to_fail() -> None:
    rng = np.random.default_rng(0)
    nothing = estimate([0.0] * 20, rng)
    assert (nothing.mean, nothing.low) == (0.0, 0.0)
    assert nothing.high == pytest.approx(0.161, abs=0.001)  # Wilson's, from a table
    shares = [0.25, 0.5, 1.0]
    drawn = estimate(shares, np.random.default_rng(1))
    assert drawn == bootstrap(shares, np.random.default_rng(1))


def test_a_difference_in_every_question_is_no_chance() -> None:
    rng = np.random.default_rng(0)
    found = compare([0.0] * 40, [0.5] * 40, rng)
    assert (found.better, found.worse) == (40, 0)
    assert 0.3 < found.difference.low < found.difference.mean == 0.5 < found.difference.high
    assert found.p_value < 0.001
    assert (_p_value(found.p_value), _p_value(0.001)) == ("<.001", "0.001")


def test_equal_scores_do_not_differ() -> None:
    found = compare([0.0, 1.0, 1.0], [0.0, 1.0, 1.0], np.random.default_rng(0))
    assert (found.better, found.worse, found.p_value) == (0, 0, 1.0)
    # Three questions without a change do not say that there is none.
    assert found.difference.low < -0.5
    assert found.difference.high > 0.5


def test_as_many_for_as_against_is_chance() -> None:
    found = compare([0.0, 1.0] * 20, [1.0, 0.0] * 20, np.random.default_rng(0))
    assert found.p_value > 0.9

"""Scores of several attempts."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp_experiments.evaluation import majority, pass_at_k


@settings(deadline=None)
@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.data())
def test_pass_at_k_counts_all_draws(made: tuple[int, int], data: st.DataObject) -> None:
    right, attempts = made
    k = data.draw(st.integers(1, attempts))
    draws = list(combinations(range(attempts), k))
    hit = sum(any(i < right for i in draw) for draw in draws)
    assert pass_at_k(right, attempts, k) == pytest.approx(hit / len(draws))


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

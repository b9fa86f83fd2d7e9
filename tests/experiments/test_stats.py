"""Intervals and comparisons, against tables and the normal approximation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ssp_experiments.stats import compare, over_questions, over_runs, share


@pytest.mark.parametrize(
    ("right", "asked", "low", "high"),
    # Wilson's score interval as statistics texts tabulate it.
    [
        (0, 10, 0.0, 0.2775),
        (75, 150, 0.4209, 0.5791),
        (0, 0, 0.0, 1.0),
    ],
)
def test_shares(right: int, asked: int, low: float, high: float) -> None:
    found = share(right, asked)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)
    assert math.isnan(found.mean) if not asked else found.mean == right / asked


def test_student_s_interval_over_runs() -> None:
    found = over_runs([0.4, 0.6, 0.8])
    assert (found.mean, found.half) == pytest.approx((0.6, 4.303 * 0.2 / 3**0.5), abs=1e-3)
    assert found.interval == [found.low, found.high]
    one = over_runs([0.4])
    assert (one.mean, one.half, one.interval) == (0.4, None, None)


def test_an_interval_of_many_questions_is_the_normal_one() -> None:
    found = over_questions([1.0, 0.5, 0.0, 0.5] * 1000, np.random.default_rng(0))
    assert found.low < found.mean == 0.5 < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(0.125 / 4000), rel=0.1)


def test_a_difference_in_every_question_is_no_chance() -> None:
    found = compare([0.0] * 40, [0.5] * 40, np.random.default_rng(0))
    assert (found["better"], found["worse"]) == (40, 0)
    low, high = found["interval"]
    assert 0.3 < low < found["difference"] == 0.5 < high
    assert found["p"] < 0.001

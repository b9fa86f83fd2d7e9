"""Estimates with 95% intervals and paired comparisons, all of them computed by ``scipy.stats``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import ndtr

LEVEL = float(2 * ndtr(1.96) - 1)
"""Confidence level of every interval: 95%, as 1.96 standard deviations."""
RESAMPLES = 2000
"""Bootstrap samples, and sign flips of a paired test: enough for two digits of an interval."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float
    """Ends of the interval; not a number where a single run says nothing of the spread."""
    count: int
    """Questions or runs that it rests on."""

    @property
    def half(self) -> float | None:
        """Half the width of the interval; ``None`` of a single run."""
        return None if math.isnan(self.high) else (self.high - self.low) / 2

    @property
    def interval(self) -> list[float] | None:
        """Both ends as plain data; ``None`` of a single run."""
        return None if math.isnan(self.high) else [self.low, self.high]


def share(right: int, asked: int) -> Estimate:
    """A share of questions with Wilson's interval; from 0 to 1 if nothing was asked.

    >>> known = share(8, 10)
    >>> f"{known.mean:.2f} [{known.low:.2f}, {known.high:.2f}]"
    '0.80 [0.49, 0.94]'
    """
    # All p with |right/asked - p| <= z sqrt(p (1 - p) / asked): it never leaves [0, 1].
    if not asked:
        return Estimate(math.nan, 0.0, 1.0, 0)
    interval = stats.binomtest(right, asked).proportion_ci(LEVEL, method="wilson")
    return Estimate(right / asked, float(interval.low), float(interval.high), asked)


def over_runs(values: Sequence[float]) -> Estimate:
    """The mean of one value per run, with Student's t interval.

    >>> three = over_runs([0.5, 0.6, 0.7])
    >>> f"{three.mean:.2f} ±{three.half:.2f}"
    '0.60 ±0.25'
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Estimate(mean, math.nan, math.nan, count)
    # mean ± t_(n-1) s / sqrt(n); sem is s / sqrt(n), s with n - 1 in its denominator.
    half = float(stats.t.ppf((1 + LEVEL) / 2, count - 1) * stats.sem(values))
    return Estimate(mean, mean - half, mean + half, count)


def over_questions(
    scores: Sequence[float], rng: np.random.Generator, lowest: float = 0.0
) -> Estimate:
    """The mean of one score per question, from ``lowest`` to 1, with an interval by bootstrap.

    Of scores that are all alike, resampling would say that they are certain. Another score may
    still come, with as large a share as Wilson's interval leaves for what never came; of scores
    that are 0 or 1, the interval is Wilson's.
    """
    mean, count = float(np.mean(scores)), len(scores)
    if lowest == 0 and {*scores} <= {0.0, 1.0}:
        return share(int(sum(scores)), count)
    if len({*scores}) == 1:
        # The most that another score may have by Wilson, where it came 0 times of ``count``.
        rest = share(0, count).high
        return Estimate(mean, max(lowest, mean - rest), min(1.0, mean + rest), count)

    low, high = resampled(scores, np.mean, rng)
    return Estimate(mean, float(low), float(high), count)


def resampled(
    sample: ArrayLike, statistic: Callable[..., Any], rng: np.random.Generator
) -> tuple[Any, Any]:
    """Ends of the percentile bootstrap's interval of a statistic, which is a number or a vector."""
    result = stats.bootstrap(
        (np.asarray(sample),),
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=rng,
    )
    return result.confidence_interval.low, result.confidence_interval.high


def compare(
    first: Sequence[float], second: Sequence[float], rng: np.random.Generator
) -> dict[str, Any]:
    """Two policies' scores on the same questions, compared pair by pair.

    Returns the mean ``difference`` of the second's score from the first's with its ``interval``;
    on how many questions the second is ``better`` and ``worse``; and ``p``, the probability of a
    difference of this size if it is chance which of the two is which (two-sided; sign flips).
    """
    # d_q = second_q - first_q: what makes a question hard for both is no part of it.
    apart = np.subtract(second, first, dtype=np.float64)
    p_value = 1.0
    # If it is chance which is which, each difference is as likely with the other sign.
    if len(apart) > 1 and apart.any():
        p_value = stats.permutation_test(
            (apart,),
            lambda values, axis: values.mean(axis=axis),
            permutation_type="samples",
            n_resamples=RESAMPLES,
            rng=rng,
        ).pvalue

    difference = over_questions(apart.tolist(), rng, lowest=-1.0)
    return {
        "difference": difference.mean,
        "interval": difference.interval,
        "better": int((apart > 0).sum()),
        "worse": int((apart < 0).sum()),
        "p": float(p_value),
    }

"""What several attempts at the same questions say: pass@k, majority, intervals, comparisons.

All functions are of plain numbers, so that any table of results can use them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from experiments.run.evaluation import Accuracy
from ssp_env.wording.answers import normalise

RESAMPLES = 2000
"""Bootstrap samples, and sign flips of a paired test: enough for two digits of an interval."""


def pass_at_k(right: int, attempts: int, k: int) -> float:
    """The chance that at least one of ``k`` attempts is right, drawn from those that were made.

    The unbiased estimate of Chen et al. (2021), "Evaluating Large Language Models Trained on
    Code": one minus the share of draws of k without a right one.

    Args:
        right: how many of the attempts were right.
        attempts: how many were made, at least ``k``.
        k: how many are drawn.
    """
    if not 0 < k <= attempts:
        raise ValueError(f"pass@{k} needs at least {k} attempts, not {attempts}")
    return 1.0 - comb(attempts - right, k) / comb(attempts, k)


def majority(answers: Sequence[str | None], right: Sequence[bool]) -> bool:
    """Whether the most frequent answer is right (self-consistency).

    Wordings with one normal form are one answer. Of equally frequent answers the one that was
    given first counts. Attempts without an answer have no vote; if none has an answer, it is wrong.

    Args:
        answers: one per attempt.
        right: the judge's verdict on each.
    """
    votes = [normalise(answer) if answer else "" for answer in answers]
    counted = Counter(vote for vote in votes if vote)
    if not counted:
        return False

    # Counter keeps the order of first appearance, and most_common() is stable.
    winner = counted.most_common(1)[0][0]
    return right[votes.index(winner)]


@dataclass(frozen=True)
class Estimate:
    """A mean over questions, with a 95% interval."""

    mean: float
    low: float
    high: float
    count: int
    """Questions."""


def estimate(values: Sequence[float], rng: np.random.Generator) -> Estimate:
    """The mean of some questions' scores with its interval.

    It is Wilson's where every score is 0 or 1 (of questions that are all wrong, resampling would
    say that it is certain), else that of :func:`bootstrap`.

    Args:
        values: one score per question, from 0 to 1, at least one.
        rng: draws the resamples.
    """
    if not set(values) <= {0.0, 1.0}:
        return bootstrap(values, rng)

    share = Accuracy(int(sum(values)), len(values))
    return Estimate(share.value, *share.interval(), len(values))


def bootstrap(values: Sequence[float], rng: np.random.Generator) -> Estimate:
    """The mean of some questions' scores, and the interval that resampling questions gives.

    Args:
        values: one score per question, at least one.
        rng: draws the resamples.
    """
    scores = np.asarray(values, dtype=np.float64)
    low, high = np.quantile(_resampled_means(scores, rng), [0.025, 0.975])
    return Estimate(float(scores.mean()), float(low), float(high), len(scores))


@dataclass(frozen=True)
class Comparison:
    """Two policies on the same questions."""

    difference: Estimate
    """Mean of the second's score minus the first's."""
    better: int
    """Questions on which the second scored higher."""
    worse: int
    p_value: float
    """How often a difference of this size comes about if it is chance which of the two is which
    (two-sided; sign flips of the questions' differences)."""


def compare(
    first: Sequence[float], second: Sequence[float], rng: np.random.Generator
) -> Comparison:
    """Compares two policies question by question.

    Args:
        first: one score per question, at least one.
        second: of the same questions, in the same order.
        rng: draws resamples and sign flips.
    """
    differences = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)

    flips = rng.integers(0, 2, (RESAMPLES, len(differences))) * 2 - 1
    by_chance = np.abs((flips * differences).mean(axis=1))
    # The split that was seen is one of those that chance could have brought.
    extreme = int((by_chance >= abs(differences.mean()) - 1e-12).sum())

    return Comparison(
        _difference(differences, rng),
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        (extreme + 1) / (RESAMPLES + 1),
    )


def _difference(differences: np.ndarray, rng: np.random.Generator) -> Estimate:
    """The mean difference with its interval.

    Where all questions differ alike, resampling would say that this is certain. Another difference
    may then still come, with as large a share as Wilson's interval leaves for what never came.
    """
    found = bootstrap(list(differences), rng)
    if found.low < found.high:
        return found

    _, rest = Accuracy(0, found.count).interval()
    low, high = found.mean - rest, found.mean + rest
    return Estimate(found.mean, max(-1.0, low), min(1.0, high), found.count)


def _resampled_means(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn = rng.integers(0, len(scores), (RESAMPLES, len(scores)))
    means: np.ndarray = scores[drawn].mean(axis=1)
    return means

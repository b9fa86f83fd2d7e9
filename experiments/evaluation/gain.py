"""What a gain in accuracy is made of: memory, search and reasoning.

A policy answers right in one of three ways: it knew the answer anyway; its searches brought the
answer into view, and it gave it; or it gave it all the same. With the shares

    known          of questions that it answers without searching,
    found          of attempts at the others whose documents contain the answer,
    right          of attempts that are right: where it knew, where it found, and in all others,

its accuracy is, exactly,

    known * right_known + (1 - known) * (found * right_found + (1 - found) * right_else).

Two policies differ in ``known`` (memory), in ``found`` (search) and in the three ``right``
(reasoning). What each contributes to the gain is its Shapley value: the change of accuracy when it
alone turns from the first policy's to the second's, averaged over the six orders in which the three
can turn. The three add up to the gain, and to its negative when the policies change places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from experiments.evaluation.results import Answered, groups_of, pairs_of
from experiments.evaluation.scores import RESAMPLES, Estimate

PARTS = ("memory", "search", "reasoning")
_TURNS = ((0,), (1,), (2, 3, 4))
"""What belongs to each part among the shares of :func:`_shares`."""
_SEED = 0x6A1
"""Sets the resamples apart from those of other tables."""


@dataclass(frozen=True)
class Shares:
    """One policy's shares; ``None`` where there was no case of the kind."""

    accuracy: float
    known: float
    found: float | None
    right_known: float | None
    right_found: float | None
    right_else: float | None


@dataclass(frozen=True)
class Gain:
    """What the second policy answers more than the first, and by what."""

    total: Estimate
    parts: dict[str, Estimate]
    """Keys: :data:`PARTS`. Their means add up to the total's."""
    first: Shares
    second: Shares

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        estimates = {"total": self.total, **self.parts}
        return {
            "questions": self.total.count,
            **{
                name: {"gain": one.mean, "interval": [one.low, one.high]}
                for name, one in estimates.items()
            },
            "first": vars(self.first),
            "second": vars(self.second),
        }


def gains(
    first: Sequence[Answered], second: Sequence[Answered], judge: str, seed: int
) -> list[tuple[str, Gain]]:
    """The gain per group, and over all; empty if either was not asked without search.

    Questions that an outage has taken from either, with search or without, are left out.

    Args:
        first: what one policy made of some questions.
        second: what the other made of them.
        judge: whose verdicts count.
        seed: of the intervals.

    Raises:
        UsageError: they have no question in common.
    """
    pairs = [
        (one, other)
        for one, other in pairs_of(first, second)
        if one.known is not None and other.known is not None
    ]
    found = []
    for group, members in groups_of(pairs):
        columns = np.array([[_row(one, judge) for one in pair] for pair in members])
        rng = np.random.default_rng([seed, _SEED, len(group)])
        found.append((group, split(columns[:, 0], columns[:, 1], rng)))
    return found


def split(first: np.ndarray, second: np.ndarray, rng: np.random.Generator) -> Gain:
    """Splits a gain, with intervals from resampling questions.

    Args:
        first: one row per question, float64, shape (questions, 4): whether it was known, then the
            shares of attempts that found the answer, that found it and are right, and that are
            right.
        second: the other policy on the same questions, in the same order.
        rng: draws the resamples.
    """
    # Many questions have one outcome, so outcomes are drawn: as often as questions would be.
    outcomes, often = np.unique(np.hstack([first, second]), axis=0, return_counts=True)
    count, width = len(first), first.shape[1]
    draws = rng.multinomial(count, often / count, RESAMPLES)
    # The first row is the sample itself.
    weights = np.vstack([often, draws]) / count

    theirs = _shares(weights @ _cells(outcomes[:, :width]))
    ours = _shares(weights @ _cells(outcomes[:, width:]))
    parts = _shapley(theirs, ours)
    total = parts.sum(axis=1)

    named = {name: _estimate(parts[:, i], count) for i, name in enumerate(PARTS)}
    return Gain(_estimate(total, count), named, _named(theirs[0]), _named(ours[0]))


def _row(result: Answered, judge: str) -> tuple[float, float, float, float]:
    found, right = np.array(result.found), np.array(result.right[judge])
    return float(bool(result.known)), found.mean(), (found & right).mean(), right.mean()


def _cells(rows: np.ndarray) -> np.ndarray:
    """Per question, shape (questions, 6): whether it was known and not; of what was known, the
    right; of what was not, the found, the found and right, and the right without having found."""
    known, found, found_right, right = rows.T
    new = 1 - known
    return np.stack(
        [known, new, known * right, new * found, new * found_right, new * (right - found_right)],
        axis=1,
    )


def _shares(means: np.ndarray) -> np.ndarray:
    """From means of cells, shape (samples, 6), to known, found, and the three right, (samples, 5).

    Not a number where there was no case.
    """
    known, new, known_right, found, found_right, else_right = means.T
    return np.stack(
        [
            known,
            _ratio(found, new),
            _ratio(known_right, known),
            _ratio(found_right, found),
            _ratio(else_right, new - found),
        ],
        axis=1,
    )


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    # Sums of weights that should be zero need not be it to the last bit.
    there = whole > 1e-12
    ratio: np.ndarray = np.where(there, part / np.where(there, whole, 1.0), np.nan)
    return ratio


def _shapley(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The contribution of each part, shape (samples, 3)."""
    # Where one policy met no case of a kind, nothing is known to have changed: the other's share
    # stands for it. Where neither did, it has no weight.
    first, second = (
        np.where(np.isnan(first), second, first),
        np.where(np.isnan(second), first, second),
    )
    first, second = np.nan_to_num(first), np.nan_to_num(second)

    gained = np.zeros((len(first), len(PARTS)))
    orders = list(permutations(range(len(PARTS))))
    for order in orders:
        turned = first.copy()
        before = _accuracy(turned)
        for part in order:
            turned[:, _TURNS[part]] = second[:, _TURNS[part]]
            after = _accuracy(turned)
            gained[:, part] += after - before
            before = after
    return gained / len(orders)


def _accuracy(shares: np.ndarray) -> np.ndarray:
    known, found, right_known, right_found, right_else = shares.T
    new: np.ndarray = found * right_found + (1 - found) * right_else
    accuracy: np.ndarray = known * right_known + (1 - known) * new
    return accuracy


def _estimate(samples: np.ndarray, count: int) -> Estimate:
    low, high = np.quantile(samples[1:], [0.025, 0.975])
    return Estimate(float(samples[0]), float(low), float(high), count)


def _named(shares: np.ndarray) -> Shares:
    accuracy = float(_accuracy(np.nan_to_num(shares)[None])[0])
    found, *right = (None if np.isnan(share) else float(share) for share in shares[1:])
    return Shares(accuracy, float(shares[0]), found, *right)

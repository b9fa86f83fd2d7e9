"""Which questions of a batch say nearly the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

NEAR = 0.8
"""Two questions are near-identical if they share this part of their words and pairs of neighbouring
words: about one word in ten may differ. Questions of one pattern about different things, as all of
a generated world are, stay below it."""


def repetition(questions: Sequence[str]) -> np.ndarray:
    """For each question, the share of the others that are near-identical to it.

    Similarity is Jaccard's, of the sets of words and of pairs of neighbouring words, whatever their
    case and punctuation.

    Returns:
        float64 (questions,), from 0 (unlike all others) to 1 (all are the same).
    """
    if len(questions) < 2:
        return np.zeros(len(questions))

    grams = [_grams(question) for question in questions]
    column = {gram: i for i, gram in enumerate(sorted(set().union(*grams)))}
    holds = np.zeros((len(questions), max(1, len(column))), dtype=np.float32)
    for i, own in enumerate(grams):
        holds[i, [column[gram] for gram in own]] = 1.0

    shared = holds @ holds.T
    sizes = holds.sum(axis=1)
    either = sizes[:, None] + sizes[None, :] - shared
    # Questions without a single word are alike.
    similarity = np.where(either > 0, shared / np.maximum(either, 1.0), 1.0)
    near = (similarity >= NEAR).sum(axis=1) - 1

    share: np.ndarray = near / (len(questions) - 1)
    return share


def _grams(question: str) -> set[str]:
    words = re.findall(r"\w+", question.casefold())
    return {*words, *(" ".join(pair) for pair in pairwise(words))}

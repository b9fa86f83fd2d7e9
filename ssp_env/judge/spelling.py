"""Names that are spelled in another way, or misspelled."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ssp_env.wording.words import Word, keys

_FOLDS = (
    (re.compile(r"ph"), "f"),
    (re.compile(r"ck|q|c(?![eiyh])"), "k"),
    (re.compile(r"(?:ynn?e?|ine?)$"), "in"),
    (re.compile(r"(?<=[a-z])h(?![aeiouy])"), ""),
    (re.compile(r"y"), "i"),
    (re.compile(r"ei"), "ie"),
    (re.compile(r"(.)\1"), r"\1"),
)
_LEAST = 8
"""Letters that texts have to have; in shorter ones one letter makes another word."""
_LONG_WORD, _LONG_NAME = 8, 12


def spelled_alike(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """Whether two texts are one but for their spelling.

    ``Hesse-Cassel`` is ``Hesse-Kassel``, ``Dar es Salam`` is ``Dar es Salaam``. In names of many
    letters one wrong letter within a long word is a slip (``Arnold Schwarzeneger``); at its start
    or end it may be another name.
    """
    left, right = "".join(keys(mine)), "".join(keys(other))
    if not (left.isalpha() and right.isalpha()) or min(len(left), len(right)) < _LEAST:
        return False
    if abs(len(left) - len(right)) > 3 or len({left[0], right[0]} - {"c", "k"}) > 1:
        return False
    if _folded(mine) == _folded(other):
        return True
    if len(mine) != len(other) or min(len(left), len(right)) < _LONG_NAME:
        return False
    differ = [(a, b) for a, b in zip(keys(mine), keys(other), strict=True) if a != b]
    return len(differ) == 1 and _is_slip(*differ[0])


def _folded(run: Sequence[Word]) -> str:
    return "".join(map(_fold, keys(run)))


def _fold(key: str) -> str:
    if len(key) < 5:
        return key
    for found, read in _FOLDS:
        key = found.sub(read, key)
    return key


def _is_slip(left: str, right: str) -> bool:
    """One letter too many, missing, wrong, or two in the wrong order, within a long word."""
    if min(len(left), len(right)) < _LONG_WORD or left[:2] != right[:2] or left[-3:] != right[-3:]:
        return False
    start = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
    for skip_left, skip_right in ((1, 0), (0, 1), (1, 1)):
        if left[start + skip_left :] == right[start + skip_right :]:
            return True
    swapped = left[start + 1 : start + 2] + left[start : start + 1] + left[start + 2 :]
    return swapped == right[start:]

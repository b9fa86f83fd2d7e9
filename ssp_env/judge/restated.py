"""Answers that repeat words of the question, or leave out what it says already."""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.judge.reading import Asked
from ssp_env.judge.vocabularies import FUNCTION, KINDS, LITTLE, TURNS
from ssp_env.wording.nicknames import FIRST_NAMES
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, keys, stem

_JOINS = vocabulary("of and")


def same_beside_question(about: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """Whether two texts differ in nothing but words of the question.

    ``Blue Christmas`` answers for ``Blue`` where it says ``... Christmas``; ``the governor`` for
    ``the governor of West Virginia`` where it asks who heads West Virginia. Of two answers that the
    question offers, neither is told by its words.
    """
    if "or" in about.run or any(word.key in TURNS for word in (*mine, *other)):
        return False
    gold, given = keys(mine), keys(other)
    if len(gold) < len(given):
        added = _around(gold, given)
        return added is not None and all(_is_asked(about, key) for key in added)
    missing = _around(given, gold)
    new = any(_is_new(about, key) for key in given)
    if not missing or not (new or all(word.is_capital for word in other)):
        return False
    # "The Argand", where the question itself says "Argand lamp".
    if not new and any(word.is_capital for word in mine if word.key in missing):
        return False
    # What kind of thing it is ("Black" for "Black Sea") is decided elsewhere, first names too.
    if all(stem(key) in KINDS or key in _JOINS for key in missing):
        return False
    if about.person and len(given) == 1 and given[0] in FIRST_NAMES:
        return False
    return not any(map(_has_digit, missing)) and all(_is_asked(about, key) for key in missing)


def same_bag(about: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``the death of Joseph Lyons in 1939`` for ``Lyons' death in 1939``: the same words, put
    otherwise, with nothing new but first names and words of the question."""
    gold, given = (
        [stem(word.key) for word in run if word.key not in FUNCTION] for run in (mine, other)
    )
    if len(gold) < 3 or min(map(len, gold)) < 2:
        return False
    if any(word.key in TURNS for word in other) or "and" in keys(other):
        return False
    rest = list(given)
    for key in gold:
        if key not in rest:
            return False
        rest.remove(key)
    return all(key in FIRST_NAMES or stem(key) in about.stems for key in rest)


def same_besides_asked(about: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``the fourth Rocky film`` for ``Rocky IV``: in any order, but for words of the question."""
    if "or" in about.run or any(word.key in TURNS | {"and"} for word in (*mine, *other)):
        return False
    new, said = (
        [word.key for word in run if stem(word.key) not in about.stems | LITTLE]
        for run in (mine, other)
    )
    named = keys(mine)
    added = [w for w in other if w.key not in named and w.is_capital and w.key not in FUNCTION]
    return any(map(_has_digit, new)) and new == said and len(new) < len(mine) and not added


def list_said(about: Asked, gold: str, other: Sequence[Word]) -> str | None:
    """The list that a sentence ends with (``Bees collect both nectar and pollen``)."""
    if "," not in gold and " and " not in gold:
        return None
    at = next(
        (i for i, w in enumerate(other) if not _is_asked(about, w.key) and w.key != "both"), 0
    )
    rest = other[at:]
    if not at or not rest:
        return None
    return " ".join(("" if not i else w.gap) + " " + (w.cased or w.key) for i, w in enumerate(rest))


def _around(short: tuple[str, ...], long: tuple[str, ...]) -> tuple[str, ...] | None:
    """What stands around a run in a longer one; ``None`` where it is not in it."""
    size = len(short)
    for at in range(len(long) - size + 1):
        if long[at : at + size] == short:
            return long[:at] + long[at + size :]
    return None


def _is_asked(about: Asked, key: str) -> bool:
    return stem(key) in about.stems or key in LITTLE or key in _JOINS


def _is_new(about: Asked, key: str) -> bool:
    return key not in FUNCTION and stem(key) not in about.stems


def _has_digit(key: str) -> bool:
    return any(map(str.isdigit, key))

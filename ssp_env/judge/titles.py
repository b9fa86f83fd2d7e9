"""Titles of works and of nobles: which part of one stands for the whole."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ssp_env.wording.names import NOBILITY
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, compact, keys, words

_TITLE_PARTS = re.compile(r":\s+|\s+[–—-]\s+")
_VOLUMES = vocabulary("part vol episode chapter season series book")


def alternative_title(gold: str, other: Sequence[Word]) -> bool:
    """``Frankenstein; or, The Modern Prometheus`` is either; a subtitle stands for the whole."""
    for mark in ("; or, ", "; or ", ", or, ", " or, ", " or: ", ", or "):
        before, found, after = gold.partition(mark)
        if found:
            return _same_keys(words(before), other) or _same_keys(words(after), other)
    # "Star Wars: Episode IV – A New Hope" goes by its number and by its own name.
    parts = _TITLE_PARTS.split(gold)
    if len(parts) > 2 and len(words(parts[-1])) > 1:
        first = words(" ".join(parts[:-1]))
        if _same_keys(words(parts[-1]), other) or _same_keys(first, other):
            return True
    main, found, after = gold.partition(": ")
    # "Terminator 2" for "Terminator 2: Judgment Day": the number says which.
    numbers = keys(words(main))[-1:]
    numbered = bool(found and numbers and numbers[0].isdigit()) and len(words(main)) > 1
    if numbered and _same_keys(words(main), other):
        return True
    subtitle = words(after)
    numbered = all(key in _VOLUMES or key[0].isdigit() for key in keys(subtitle))
    return bool(found) and len(subtitle) >= 2 and not numbered and _same_keys(subtitle, other)


def titled_in_full(mine: Sequence[Word], given: str) -> bool:
    """``Star Wars: Episode V – The Empire Strikes Back`` for its last part, which has a name."""
    # "Back to the Future 3" for "Back to the Future Part III".
    bare, short = ([word for word in run if word.key != "part"] for run in (mine, words(given)))
    if bare and bare[-1].key.isdigit() and len(bare) > 1 and _same_keys(bare, short):
        return True

    before, found, _ = given.partition("; or,")
    if found and _same_keys(words(before), mine):
        return True
    parts = _TITLE_PARTS.split(given)
    named = len(parts) > 1 and len(mine) > 1 and mine[0].is_capital
    return named and parts[0][:1].isupper() and _same_keys(words(parts[-1]), mine)


def styled(gold: str, other: Sequence[Word]) -> bool:
    """``Duke of Wellington`` for ``Arthur Wellesley, 1st Duke of Wellington``."""
    style, given = list(words(gold.partition(",")[2])), list(other)
    numbers = [run.pop(0).key if run and run[0].key.isdigit() else "" for run in (style, given)]
    if all(numbers) and numbers[0] != numbers[1]:
        return False
    return len(style) > 1 and style[0].key in NOBILITY and _same_keys(style, given)


def _same_keys(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    return bool(mine) and compact(keys(mine)) == compact(keys(other))

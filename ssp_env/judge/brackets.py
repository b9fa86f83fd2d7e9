"""What stands in brackets behind an answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ssp_env.judge.reading import Asked
from ssp_env.judge.vocabularies import TURNS
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, keys, words

_ONCE = vocabulary("formerly previously before after until near")
"""Words that turn a sentence, but only add to what stands outside of brackets."""


@lru_cache(maxsize=8192)
def without_brackets(text: str) -> tuple[tuple[str, str], ...]:
    """The text without what its brackets hold, and that; nothing where it has none."""
    start, end = text.find("("), text.rfind(")")
    if start < 0 or end < start:
        return ()
    outside = (text[:start] + text[end + 1 :]).strip()
    return ((outside, text[start + 1 : end]),) if outside else ()


def brackets_differ(about: Asked, gold: str, given: str) -> bool:
    """Whether the brackets of two texts say different things."""
    mine, other = without_brackets(gold), without_brackets(given)
    if not mine or not other:
        return False
    left, right = (set(keys(words(pair[0][1]))) for pair in (mine, other))
    return not (left <= right or right <= left or right <= about.stems)


def turns_elsewhere(inside: Sequence[Word]) -> bool:
    """Whether what a prediction adds in brackets names something else."""
    return any(word.key in TURNS and word.key not in _ONCE for word in inside)

"""When two wordings are the same answer: SQuAD's normal form, exact match and F1.

The normal form is the one of the SQuAD evaluation, with Unicode's punctuation in place of ASCII's,
so figures can be compared. Like there, punctuation is deleted rather than turned into spaces:
``"3.5"`` and ``"35"`` have one normal form, ``"Jean-Paul"`` and ``"Jean Paul"`` have two."""

from __future__ import annotations

import string
import unicodedata
from collections import Counter
from collections.abc import Iterable

from ssp_env.wording.mention import mentions
from ssp_env.wording.unicode import fold, is_unspaced

__all__ = ["exact_match", "f1", "mentions", "normalise"]

_ARTICLES = frozenset({"a", "an", "the"})


def normalise(text: str) -> str:
    """SQuAD's normal form: no case, punctuation or articles, single spaces.

    What would leave nothing is kept: articles where there is no other word (``"The The"``),
    punctuation where there is nothing else (``"!!!"``). Only blank text has the normal form ``""``.
    Idempotent."""
    folded = fold(text)

    # Deleting what stood between a letter and an accent may let them compose.
    bare = fold(folded.translate(_PUNCTUATION)).split()

    words = [word for word in bare if word not in _ARTICLES]
    return " ".join(words or bare or folded.split())


def exact_match(prediction: str, wordings: Iterable[str]) -> bool:
    """Whether the prediction has the normal form of a wording; a blank one matches nothing."""
    normal = normalise(prediction)
    return normal != "" and any(normal == normalise(wording) for wording in wordings)


def f1(prediction: str, wordings: Iterable[str]) -> float:
    """The best token F1 of the prediction against the wordings, from 0 to 1.

    Tokens are the words of the normal forms; single letters in scripts without spaces between
    words."""
    tokens = Counter(_tokens(normalise(prediction)))
    return max(
        (_overlap(tokens, Counter(_tokens(normalise(wording)))) for wording in wordings),
        default=0.0,
    )


def _overlap(left: Counter[str], right: Counter[str]) -> float:
    common = (left & right).total()
    return 2.0 * common / (left.total() + right.total()) if common else 0.0


def _tokens(normal: str) -> list[str]:
    tokens: list[str] = []
    for word in normal.split():
        goes_on = False
        for position, character in enumerate(word):
            alone = is_unspaced(character)
            mark = unicodedata.category(character)[0] == "M"
            if position and (mark or (goes_on and not alone)):
                tokens[-1] += character
            else:
                tokens.append(character)
                goes_on = not alone

    return tokens


class _Punctuation(dict[int, int | None]):
    """A translation table that deletes punctuation and is filled as characters turn up."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        deleted = character in string.punctuation or unicodedata.category(character)[0] == "P"
        self[code] = None if deleted else code
        return self[code]


_PUNCTUATION = _Punctuation()

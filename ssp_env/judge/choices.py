"""Questions that offer two answers, and sentences that weigh both."""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.judge.reading import Asked
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, keys

_COMPARED = vocabulary("more most less least first last earlier later older younger before after")
_NOT_COMPARED = vocabulary(
    "other another whether their her number river director founder member owner former never "
    "over under actor singer writer producer composer performer player border"
)
_DENIED = vocabulary("not never neither nor or no but both")


def prefers(about: Asked, gold: Sequence[Word], given: Sequence[Word]) -> bool:
    """Whether a sentence puts the right one of two before the other, as the question does.

    ``Gogarten lived longer than Feltrinelli`` answers ``Who lived longer, Gogarten or
    Feltrinelli?``; the comparison has to be the question's own word.
    """
    other = _other(about, keys(gold))
    said = keys(given)
    if other is None or other not in said or "than" not in said or _DENIED & set(said):
        return False
    than = said.index("than")
    if other in said[:than] or other not in said[than:]:
        return False
    compared = [key for key in said[max(0, than - 3) : than] if _is_comparison(key)]
    named = next((word.key for word in reversed(gold) if word.is_capital), gold[-1].key)
    return named in said[:than] and any(key in about.run for key in compared)


def _other(about: Asked, gold: tuple[str, ...]) -> str | None:
    """The word of the question that stands across its ``or`` from the right answer."""
    if about.run.count("or") != 1:
        return None
    at, size = about.run.index("or"), len(gold)
    if about.run[at - size : at] == gold and at + 1 < len(about.run):
        return about.run[-1] if about.run[-1] not in gold else about.run[at + 1]
    if about.run[at + 1 : at + 1 + size] == gold:
        return about.run[at - 1]
    return None


def _is_comparison(key: str) -> bool:
    return key in _COMPARED or (len(key) > 4 and key.endswith("er") and key not in _NOT_COMPARED)

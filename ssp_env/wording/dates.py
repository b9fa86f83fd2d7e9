"""Dates as people write them: day, month, year and era, as far as they are given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ssp_env.wording.vocabulary import vocabulary

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul",
            "august aug", "september sep sept", "october oct", "november nov", "december dec",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
WEEKDAYS = vocabulary(
    "monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri "
    "sat sun"
)
DATE_WORDS = frozenset(_MONTHS) | WEEKDAYS | {"bc", "ad", "ce"}
"""Words that a date is made of, beside its numbers."""
_LEAD = vocabulary("on in of the year born ca c circa around about")
_ISO = re.compile(r"(\d{4})\.(\d{1,2})\.(\d{1,2})")
_MONTH = re.compile(r"(\d{1,2})[./](\d{4})")
_NUMERIC = re.compile(r"(\d{1,2})[./](\d{1,2})[./](\d{4}|\d\d)")


@dataclass(frozen=True, slots=True)
class Date:
    """A date; what it leaves open is ``None``."""

    year: int | None
    """Negative before Christ."""
    month: int | None = None
    day: int | None = None


def dates(run: Sequence[str]) -> tuple[Date, ...]:
    """The readings of a run of words that is a date and nothing else.

    Several where day and month may be the other way round (``5/6/1934``), none where it is no
    date. A lone number is no date: see :func:`year`.

    Args:
        run: keys of words, numbers folded.
    """
    words = [word for word in run if word not in WEEKDAYS and word not in _LEAD]
    words, era = _without_era(words)
    if not words:
        return ()
    if len(words) == 1:
        month = _MONTHS.get(words[0])
        return _in_figures(words[0]) if month is None else (Date(None, month),)
    if not any(word in _MONTHS for word in words):
        year = _integer(words[0]) if len(words) == 1 else None
        return () if year is None or not era else (Date(year * era),)
    if len(words) > 3:
        return ()

    month = next(_MONTHS[word] for word in words if word in _MONTHS)
    numbers = [_integer(word) for word in words if word not in _MONTHS]
    if None in numbers or len(numbers) + 1 != len(words):
        return ()
    values = [value for value in numbers if value is not None]
    if len(values) == 2:
        # "1934 May 2" beside "2 May 1934" and "May 2 1934".
        day, year = (values[1], values[0]) if values[0] > 31 else (values[0], values[1])
        return (Date(year * (era or 1), month, day),) if 1 <= day <= 31 else ()
    if not values:
        return (Date(None, month),)
    if values[0] <= 31 and not era:
        return (Date(None, month, values[0]),)
    return (Date(values[0] * (era or 1), month),)


def year(run: Sequence[str]) -> int | None:
    """The year that a run of words is, with or without its era; ``None`` if it is none."""
    words, era = _without_era([word for word in run if word not in _LEAD])
    if len(words) != 1:
        return None
    value = _integer(words[0])
    if value is None or not (era or 100 <= value < 3000):
        return None
    return value * (era or 1)


def agrees(gold: Date, given: Date) -> bool:
    """Whether a given date has everything that the right one says; it may say more."""
    return all(
        mine is None or mine == other
        for mine, other in (
            (gold.year, given.year),
            (gold.month, given.month),
            (gold.day, given.day),
        )
    )


def _without_era(words: list[str]) -> tuple[list[str], int]:
    """Drops the era; -1 before Christ, 1 after, 0 where none is given."""
    eras = {"bc": -1, "ad": 1, "ce": 1}
    found = [eras[word] for word in words if word in eras]
    return [word for word in words if word not in eras], found[0] if len(found) == 1 else 0


def _in_figures(word: str) -> tuple[Date, ...]:
    if found := _ISO.fullmatch(word):
        parts = (int(found[1]), int(found[2]), int(found[3]))
        return (Date(*parts),) if _is_day(parts[1], parts[2]) else ()
    if (found := _MONTH.fullmatch(word)) and 1 <= int(found[1]) <= 12:
        return (Date(int(found[2]), int(found[1])),)
    if found := _NUMERIC.fullmatch(word):
        first, second, said = int(found[1]), int(found[2]), int(found[3])
        years = (said,) if said > 99 else (1900 + said, 2000 + said)
        readings = sorted({(second, first), (first, second)})
        return tuple(Date(y, m, d) for y in years for m, d in readings if _is_day(m, d))
    return ()


def _is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= 31


def _integer(word: str) -> int | None:
    return int(word) if word.isdigit() and len(word) <= 4 else None

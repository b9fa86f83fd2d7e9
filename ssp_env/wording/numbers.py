"""Numbers as people write them: words, separators, signs, fractions, scales, units."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ssp_env.wording.units import UNITS, Unit
from ssp_env.wording.vocabulary import vocabulary

_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SMALL: dict[str, int] = {word: value for value, word in enumerate(_UNITS)}
_SMALL |= {word: 10 * value for value, word in enumerate(_TENS, start=2)}
_SMALL |= {"once": 1, "twice": 2, "thrice": 3, "fourty": 40}
_ORDINALS = [
    "zeroth",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
]
_ORDINAL: dict[str, int] = {word: value for value, word in enumerate(_ORDINALS) if value}
_ORDINAL |= {word[:-1] + "ieth": 10 * value for value, word in enumerate(_TENS, start=2)}
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_SCALES |= {"trillion": 10**12, "dozen": 12, "lakh": 10**5, "crore": 10**7, "mn": 10**6}
_SCALES |= {"bn": 10**9, "dozens": 12, "millions": 10**6}
_PARTS = {"half": 0.5, "halves": 0.5, "third": 1 / 3, "thirds": 1 / 3, "quarter": 0.25}
_PARTS |= {"quarters": 0.25}
_PARTS |= {
    part + end: 1 / below
    for below, part in enumerate(("fifth", "sixth", "seventh", "eighth", "ninth", "tenth"), start=5)
    for end in ("", "s")
}
_DECADES = {word[:-1] + "ies": f"19{10 * value}s" for value, word in enumerate(_TENS, start=2)}

_STARTS = frozenset(_SMALL) | frozenset(_ORDINAL) | frozenset(_SCALES) | frozenset(_PARTS)
_STARTS |= frozenset(_DECADES) | {"minus", "negative"}
_NUMBER = re.compile(r"[-+]?\d*\.?\d+")
_FRACTION = re.compile(r"(\d+)/(\d+)")
_ORDINAL_SIGN = re.compile(r"(\d+)(?:st|nd|rd|th)")


def fold_numbers(run: Sequence[str]) -> list[tuple[str, int, int]] | None:
    """Writes every number of a run of words in digits.

    ``"one thousand nine hundred and two"`` becomes ``"1902"``, ``"5 million"`` ``"5000000"``,
    ``"eighteenth"`` and ``"18th"`` ``"18"``, ``"sixties"`` ``"1960s"``.

    Args:
        run: words in lower case.

    Returns: Each word with where it begins and ends in the run; ``None`` if nothing changes.
    """
    if _STARTS.isdisjoint(run) and not any(map(str.isdigit, "".join(run))):
        return None
    folded: list[tuple[str, int, int]] = []
    at = 0
    while at < len(run):
        found = _number_at(run, at)
        if found is None:
            folded.append((_digits(run[at]), at, at + 1))
            at += 1
        else:
            value, end = found
            folded.append((_written(value), at, end))
            at = end
    return folded


def _digits(word: str) -> str:
    """A word with digits in its plain form."""
    if word in _DECADES:
        return _DECADES[word]
    if ordinal := _ORDINAL_SIGN.fullmatch(word):
        return ordinal[1]
    if re.fullmatch(r"\d0s", word):
        return "19" + word
    return word


def _written(value: float) -> str:
    if abs(value) >= 1e15:
        return f"{value:.10g}"
    return str(int(value)) if value == int(value) else f"{value:.10g}"


def _number_at(run: Sequence[str], at: int) -> tuple[float, int] | None:
    """The number that begins here and where it ends."""
    if run[at] in ("minus", "negative") and at + 1 < len(run):
        found = _number_at(run, at + 1)
        return None if found is None else (-found[0], found[1])

    plain = _plain(run[at])
    if plain is not None:
        return _scaled(run, plain, at + 1)

    # "a third" and "two thirds" are parts; "third" alone is a rank.
    if run[at] in ("a", "one", "two", "three") and at + 1 < len(run) and run[at + 1] in _PARTS:
        value, end = _SMALL.get(run[at], 1) * _PARTS[run[at + 1]], at + 2
        return _of_scale(run, value, end)
    if run[at] == "a" and at + 2 < len(run) and run[at + 1] == "half" and run[at + 2] == "dozen":
        return 6, at + 3
    if run[at] == "half":
        return (6.0, at + 2) if run[at + 1 : at + 2] == ["dozen"] else _of_scale(run, 0.5, at + 1)
    if run[at] == "a" and at + 1 < len(run) and run[at + 1] in _SCALES:
        return _scaled(run, 1.0, at + 1)
    if run[at] in _SCALES and at == 0 and not run[at].endswith("s"):
        return _scaled(run, 1.0, at)
    if run[at] in _ORDINAL and not (run[at] == "second" and at and _is_counted(run[at - 1])):
        return _ORDINAL[run[at]], at + 1
    if run[at] in _SMALL:
        return _spelled(run, at)
    return None


def _of_scale(run: Sequence[str], part: float, at: int) -> tuple[float, int]:
    """A part with the scale that follows: ``a quarter of a billion``, ``half a million``."""
    start = at + (run[at : at + 1] == ["of"])
    if run[start : start + 1] == ["a"] and start + 1 < len(run) and run[start + 1] in _SCALES:
        return _scaled(run, part, start + 1)
    return part, at


def _is_counted(word: str) -> bool:
    """Whether a second behind this word is one of time."""
    return word == "per" or _plain(word) is not None


def _plain(word: str) -> float | None:
    """The value of digits: ``1,000``, ``-5``, ``3.5``, ``1/3``."""
    # What has more digits is a code, not an amount.
    if word[-1].isdigit() and len(word) <= 30:
        if _NUMBER.fullmatch(bare := word.replace(",", "")):
            return float(bare)
        if (part := _FRACTION.fullmatch(word)) and int(part[2]) and int(part[2]) < 100:
            return int(part[1]) / int(part[2])
    return None


def _scaled(run: Sequence[str], value: float, at: int) -> tuple[float, int]:
    """A value with the scales and the fraction that follow: ``5 million``, ``2 and a half``."""
    while at < len(run) and run[at] in _SCALES:
        value *= _SCALES[run[at]]
        at += 1
    if list(run[at : at + 3]) == ["and", "a", "half"]:
        return value + 0.5, at + 3
    if list(run[at : at + 2]) == ["and", "half"]:
        return value + 0.5, at + 2
    if list(run[at : at + 1]) == ["and"] and at + 1 < len(run) and _FRACTION.fullmatch(run[at + 1]):
        part = _plain(run[at + 1])
        return value + (part or 0.0), at + 2
    return value, at


def _spelled(run: Sequence[str], at: int) -> tuple[float, int]:
    """A number in words."""
    total = group = 0.0
    last = ""
    while at < len(run):
        word = run[at]
        if word in _SMALL and _may_follow(last, word):
            # "nineteen seventy-one", "twenty twenty": years are read in two halves.
            value = _SMALL[word]
            if last in _SMALL and _SMALL[last] >= 10 and value >= 10 and total == 0:
                group *= 100
            group += value
        elif word in _ORDINAL and last in _SMALL and _SMALL[last] >= 20 > _ORDINAL[word]:
            return total + group + _ORDINAL[word], at + 1
        elif word == "hundred" and last:
            group *= 100
        elif word in _SCALES and last and word not in ("dozens", "millions"):
            total, group = total + group * _SCALES[word], 0.0
        elif word == "and" and last in _SCALES and _goes_on(run, at + 1):
            at += 1
            continue
        elif word == "point" and at + 1 < len(run) and run[at + 1] in _SMALL:
            digits = ""
            at += 1
            while at < len(run) and _SMALL.get(run[at], 10) < 10:
                digits += str(_SMALL[run[at]])
                at += 1
            return _scaled(run, total + group + float(f"0.{digits or 0}"), at)
        else:
            break
        last = word
        at += 1
    return _scaled(run, total + group, at)


def _goes_on(run: Sequence[str], at: int) -> bool:
    return at < len(run) and run[at] in _SMALL


def _may_follow(last: str, word: str) -> bool:
    if last == "" or last in _SCALES:
        return True
    before, value = _SMALL[last], _SMALL[word]
    return (before >= 20 and 0 < value < 10) or (10 <= before <= 20 and value >= 10)


_ABOUT = vocabulary("about approximately around roughly circa ca c approx nearly almost some")
_BOUNDS = {"over": ">", "above": ">", "exceeding": ">", "under": "<", "below": "<"}
_LEAD = vocabulary("in on at total of combined exactly just only all both")
_PAIRS = {("more", "than"): ">", ("at", "least"): ">", ("less", "than"): "<", ("up", "to"): "<"}
_PAIRS |= {("fewer", "than"): "<", ("at", "most"): "<"}


NUMBER_WORDS = (
    vocabulary("all both exactly only")
    | _ABOUT
    | frozenset(_BOUNDS)
    | frozenset(word for pair in _PAIRS for word in pair)
)
"""Words that belong to the number behind them."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with what it counts."""

    value: float
    """In its unit; several parts (``5 ft 11 in``) are summed in that of the first."""
    unit: Unit | None
    """``None`` where it has none, or where ``noun`` is no unit of measure."""
    noun: tuple[str, ...]
    """What is counted, in stems."""
    about: bool
    """Whether it says that it is rounded."""
    bound: str
    """``>``, ``<`` or nothing."""


@lru_cache(maxsize=16384)
def quantity(run: tuple[str, ...]) -> Quantity | None:
    """Reads a whole run of words as one quantity, or gives ``None``.

    Args:
        run: keys of words, numbers folded, singular.
    """
    # "An hour and a half".
    if len(run) == 3 and run[0] in UNITS and run[1] == "and" and run[2] == "0.5":
        run = ("1.5", run[0])

    about, bound, at = False, "", 0
    before: list[str] = []
    while at < len(run) and _plain(run[at]) is None:
        word = run[at]
        if tuple(run[at : at + 2]) in _PAIRS:
            bound, at = _PAIRS[run[at], run[at + 1]], at + 1
        elif word in _ABOUT:
            about = True
        elif word in _BOUNDS:
            bound = _BOUNDS[word]
        elif " ".join([*before, word]) in UNITS or word in ("usa",):
            before.append(word)
        elif word not in _LEAD:
            return None
        at += 1
    if at == len(run):
        return None

    parts = _parts(run[at:])
    if parts is None:
        return None
    if before and parts[0][1] == ():
        parts[0] = (parts[0][0], tuple(before))
    (value, noun), *rest = parts
    unit = UNITS.get(" ".join(noun))
    for more, of in rest:
        other = UNITS.get(" ".join(of))
        if unit is None or other is None or other.dimension != unit.dimension:
            return None
        value += more * other.factor / unit.factor
    return Quantity(value, unit, noun, about, bound)


def _parts(run: Sequence[str]) -> list[tuple[float, tuple[str, ...]]] | None:
    """Numbers, each with the words that follow it."""
    parts: list[tuple[float, list[str]]] = []
    for word in run:
        value = _plain(word)
        if value is not None and parts and (not parts[-1][1] or parts[-1][1] in (["km"], ["m"])):
            # "km 2" is an area, not a length and a number.
            if parts[-1][1] and value == 2:
                parts[-1][1].append(word)
                continue
            return None
        if value is not None:
            parts.append((value, []))
        elif word != "and" or not parts[-1][1]:
            parts[-1][1].append(word)
    return [(value, _unit_alone(tuple(noun))) for value, noun in parts]


def _unit_alone(noun: tuple[str, ...]) -> tuple[str, ...]:
    """A unit without what it measures ("percent of the vote")."""
    unit = noun[: noun.index("of")] if "of" in noun else noun
    return unit if " ".join(unit) in UNITS else noun


def same_amount(left: Quantity, right: Quantity) -> bool:
    """Whether two quantities have one value; units of one dimension are converted.

    Converted amounts may differ by 1 %. So may a rounded figure, if it says that it is rounded
    ("about") or is in the millions, and the other one rounds to it; years are never rounded.
    """
    a, b = left.value, right.value
    if left.unit and right.unit and left.unit != right.unit:
        if left.unit.dimension != right.unit.dimension:
            return False
        a = a * left.unit.factor + left.unit.offset
        b = b * right.unit.factor + right.unit.offset
        return abs(a - b) <= 0.01 * max(abs(a), abs(b))
    if math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12):
        return True

    year = any(q.unit is None and q.value.is_integer() and 1000 <= q.value < 2100
               for q in (left, right))  # fmt: skip
    rounded = left.about or right.about or min(abs(a), abs(b)) >= 1e6
    if year or not rounded or abs(a - b) > 0.01 * max(abs(a), abs(b)):
        return False
    return _rounds_to(a, b) or _rounds_to(b, a)


def _rounds_to(exact: float, figure: float) -> bool:
    """Whether a value, at the precision of a figure (two digits or more), is that figure."""
    digits = max(2, len(f"{abs(figure):.10e}".partition("e")[0].replace(".", "").rstrip("0")))
    return math.isclose(float(f"{exact:.{digits - 1}e}"), figure, rel_tol=1e-9)

"""Numbers as values with units: figures, fractions, powers, number words, scales, SI prefixes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import product
from math import gcd
from typing import NamedTuple

from ssp_env.judge.tables import read_table, stem


class Unit(NamedTuple):
    """A unit, as ``factor`` times the base unit of its dimension, plus ``offset``."""

    dimension: str = ""
    """``length``, ``length^2``, ``length/time``, ``dollar``, ...; nothing: no unit."""
    factor: float = 1.0
    offset: float = 0.0


NONE, ORDINAL = Unit(), Unit("place")


class Quantity(NamedTuple):
    """A number, with its unit where it has one."""

    value: float
    unit: Unit = NONE
    others: tuple[Quantity, ...] = ()
    """What the same signs may mean as well: 12.500 is 12500, and 5 pounds are money."""

    @property
    def key(self) -> str:
        plain = self.unit in (NONE, ORDINAL)
        return f"{self.value:.12g}" + ("" if plain else f" {self.unit[0]} {self.unit[1]:.6g}")

    @property
    def in_base_units(self) -> float:
        return self.value * self.unit.factor + self.unit.offset

    def measured_in(self, *units: Unit) -> Quantity:
        """The number with a unit, whose name may stand for others as well."""
        values = [self.value, *(other.value for other in self.others)]
        first, *others = [Quantity(value, unit) for unit in units for value in values]
        return first._replace(others=tuple(others))

    def difference(self, given: Quantity) -> str:
        """What differs in a given amount; nothing where it says the same.

        A unit may be missing. The same amount in another unit may be 1% off. A number from 10,000
        may be rounded to as many digits as were given, at least two: 1,234,567 is 1.2 million.

        >>> Quantity(5, Unit("length")).difference(Quantity(5000, Unit("length", 0.001)))
        ''
        >>> Quantity(5, Unit("length")).difference(Quantity(5, Unit("mass")))
        'other units'
        """
        found = [a._apart(b) for a, b in product((self, *self.others), (given, *given.others))]
        return min(found)  # nothing, numbers, units

    def _apart(self, given: Quantity) -> str:
        mine, other = self.unit, given.unit
        if mine.dimension and other.dimension and mine.dimension != other.dimension:
            return "other units"
        if mine.dimension == other.dimension and mine != other:
            # Where zeros differ, as of temperatures, .05 of the base unit is allowed besides.
            base, apart = self.in_base_units, 0.05 if mine.offset != other.offset else 0.0
            near = abs(base - given.in_base_units) <= 0.01 * abs(base) + apart
            return "" if near else "other numbers"
        same = abs(self.value - given.value) <= 1e-9 * abs(self.value)
        # Significant figures of what is given.
        digits = len(f"{abs(given.value):.12g}".partition("e")[0].replace(".", "").strip("0"))
        if not same and abs(self.value) >= 10_000 and digits >= 2:
            same = float(f"{self.value:.{digits - 1}e}") == given.value
        if not same and "share" in (mine.dimension, other.dimension):  # half is 50%
            same = f"{self.in_base_units:.9g}" == f"{given.in_base_units:.9g}"
        return "" if same else "other numbers"


# -- figures ---------------------------------------------------------------------------------------

# Figures with signs between them; a power, maybe with a factor; a fraction, maybe with a whole.
_GROUPED = re.compile(
    r"(?<![\d.,])(?:\d{1,3}(?:[ ']\d{3})+(?:[.,]\d+)?(?![\d'])|\d+(?:[.,]\d+)+(?![.,]?\d))"
)
_POWER = re.compile(
    r"(?<![\w.])(?:(\d{1,15}(?:\.\d{1,15})?)\s?[x×*·⋅]\s?)?([1-9]\d{0,2})(?:\^|\*\*)(-?[1-4]?\d)\b"
)
_FRACTION = re.compile(
    r"(?<![\w./])(?:(\d{1,15})(?: | ?- ?| and ))?(\d{1,3})/([1-9]\d{0,2})(?![\w/]|\.\d)"
)


def plain_figures(text: str) -> str:
    """The text with each number in one form: no groups of thousands, a decimal point, no powers,
    no fractions.

    >>> plain_figures("1.234.567 or 3,5 or 10 000 or 1.5 × 10^8 or 5 1/2")
    '1234567 or 3.5 or 10000 or 150000000 or 5.5'
    """
    text = _GROUPED.sub(lambda m: _ungrouped(m[0]), text)
    text = _POWER.sub(lambda m: _decimal(float(m[1] or 1) * float(m[2]) ** int(m[3])), text)
    return _FRACTION.sub(_divided, text)


def _decimal(value: float) -> str:
    # No exponent, and no more decimals than a figure may have.
    return f"{value:.50f}".rstrip("0").rstrip(".")


def _divided(match: re.Match[str]) -> str:
    whole, upper, lower = (int(figure or 0) for figure in match.groups())
    return match[0] if lower == 1 or gcd(upper, lower) > 1 else _decimal(whole + upper / lower)


def _ungrouped(figure: str) -> str:
    signs, parts = re.sub(r"\d", "", figure), re.split(r"\D", figure)
    if len({*signs}) == 2 and signs.count(signs[-1]) == 1:
        return "".join(parts[:-1]) + "." + parts[-1]  # 1,234.5 and 1.234,5
    sizes = {len(part) for part in parts[1:]}
    # Groups of two and three figures: 12,34,567.
    indian = signs[0] == "," and sizes == {2, 3}
    groups = sizes == {3} and len(parts[0]) <= 3 and parts[0] != "0"
    # A single point is a decimal one, as in 1.234, unless three zeros follow.
    if indian or (groups and (signs != "." or parts[1] == "000")):
        return "".join(parts)
    return ".".join(parts) if signs in ".," else figure


# -- words -----------------------------------------------------------------------------------------


def _numbers(*kinds: str) -> dict[str, float]:
    """Words or signs of ``numbers.csv``, with their values: each a step above the one before."""
    return {
        word: float(row["value"]) + place * float(row["step"])
        for row in read_table("numbers")
        if row["kind"] in kinds
        for place, word in enumerate(row["words"].split())
    }


_SCALES, _PARTS, _SMALL = _numbers("scale"), _numbers("part"), _numbers("number", "ordinal")
_ORDINALS, _SHORT = _numbers("ordinal"), _numbers("short")
MONEY_SCALES = _SHORT | _numbers("short of money")
BEGINNINGS = frozenset({*_SMALL, *_SCALES, "a", "an", "half", "quarter"})
_FIGURE = re.compile(r"\d{1,50}(?:\.\d{1,50})?")
_EITHER = re.compile(r"[1-9]\d{0,2}\.\d\d0")
"""Decimals that nobody writes so, unless the point stands between thousands."""


class Token(NamedTuple):
    """A word or a figure, as it is written, and the signs between it and the one before."""

    written: str
    low: str
    gap: str


def read_number(
    tokens: Sequence[Token], at: int, money: bool = False
) -> tuple[Quantity, int] | None:
    """The number that begins at a token, in figures or words, and the place where it ends.

    ``money``: a currency stands before it, so that ``5 m`` is five million, and no length. The last
    two tokens have to be empty."""
    # ``parts`` are closed by a scale, ``last`` is the number since then, and the next word's value
    # has to be below ``room``, which is 10 after "twenty".
    parts: list[float] = []
    last, end, room = 0.0, at, 1e16  # a small number has to be below the place that is free
    if _FIGURE.fullmatch(tokens[at].low):
        last, end, room = float(tokens[at].low), at + 1, 0.0
        letters, gap, short = *tokens[end][::2], MONEY_SCALES if money else _SHORT
        if gap == "" and letters in ("st", "nd", "rd", "th"):
            return Quantity(last, ORDINAL), end + 1
        if letters in short and (gap == "" or (gap == " " and money)):
            return Quantity(last * short[letters]), end + 1
    # Each round takes one word more, as long as it goes on the number.
    while tokens[end].low:
        (_, low, gap), ahead = tokens[end], tokens[end + 1].low
        # Words of one number have a blank, a hyphen or nothing between them; behind thousands,
        # it may be a comma.
        if end > at and gap not in (" ", "-", "", ", " if room >= 1000 else ""):
            break
        value, scaled = _SMALL.get(low, 1e16), end
        while last % 1 and tokens[scaled].low in ("of", "a", "an"):
            scaled += 1  # half a million, a quarter of a million
        if tokens[scaled].low in _SCALES and (end > at or low[-1] != "s"):
            room, end = _SCALES[tokens[scaled].low], scaled
            last = _multiply(parts, last, room)
        elif part := _part(tokens, end + (low == "and")) if low == "and" or end == at else None:
            last, room, end = last + part[0], 0.0, part[1] - 1  # two and a half
        elif (low == "and" and 100 <= room < 1e16 and 0 < _SMALL.get(ahead, 0) < 100) or (
            end == at and low in ("a", "an") and ahead in _SCALES
        ):
            pass
        elif value < room:
            last, room = last + value, 10.0 if 20 <= value < 100 else 0.0
        elif 10 <= last <= 20 and 10 <= value < 100:
            last, room = last * 100 + value, 10.0  # nineteen seventy-one
        elif low in _PARTS and (last == 1) != (low[-1] == "s"):
            last, room = last / _PARTS[low], 0.0  # two thirds
        elif low == "point" and _SMALL.get(ahead, 10.0) < 10:
            place, room = 0.1, 0.0
            while (digit := _SMALL.get(tokens[end + 1].low, 10.0)) < 10:
                last, place, end = last + digit * place, place / 10, end + 1
        else:
            break
        end += 1
        if low in _ORDINALS:
            return Quantity(sum(parts) + last, ORDINAL), end
    found = Quantity(sum(parts) + last)
    if end == at + 1 and _EITHER.fullmatch(tokens[at].low):
        found = found._replace(others=(Quantity(1000 * last),))
    return (found, end) if end > at else None


def _part(tokens: Sequence[Token], at: int) -> tuple[float, int] | None:
    """Half, a third, a quarter, and where it ends; not in "a third person"."""
    article = tokens[at].low in ("a", "an", "one")
    part, after = (tokens[at + article + i].low for i in (0, 1))
    ends = after in ("", "of", "percent", "a", "an", *_SCALES) or tokens[at - 1].low == "and"
    if ends and part in _PARTS and (article or part in ("half", "quarter")):
        return 1 / _PARTS[part], at + article + 1
    return None


def _multiply(parts: list[float], last: float, scale: float) -> float:
    """Adds to the parts of a number what a scale makes of the last ones: 500, 20 and 1000 are 520
    thousand. Nothing is left over."""
    while parts and parts[-1] <= scale:
        last += parts.pop()
    parts.append((last or 1.0) * scale)
    return 0.0


_DIGITS, _TIMES = _numbers("digit"), _numbers("times")
_SIGN = f"[{''.join([*_DIGITS, *_TIMES])}]"
_CHINESE = re.compile(
    rf"(?:\d+(?:,\d{{3}})*(?:\.\d+)?|(?![万萬亿億兆]){_SIGN}+(?:点[{''.join(_DIGITS)}]+)?){_SIGN}*"
)


def from_chinese(text: str) -> str:
    """The text with Chinese numerals, and figures before a scale, in figures.

    >>> from_chinese("一九四九年"), from_chinese("三百二十万"), from_chinese("1.5亿")
    ('1949年', '3200000', '150000000')
    """
    return _CHINESE.sub(_in_figures, text)


def _in_figures(match: re.Match[str]) -> str:
    parts: list[float] = []
    last = ""
    for sign in match[0]:
        if sign in _TIMES:
            _multiply(parts, float(last.replace(",", "") or 0), _TIMES[sign])
            last = ""
        else:
            last += "." if sign == "点" else f"{_DIGITS[sign]:.0f}" if sign in _DIGITS else sign
    return f"{sum(parts) + float(last or 0):.15g}" if parts else last


# -- units -----------------------------------------------------------------------------------------

_Units = tuple[Unit, ...]
# Symbols of units that are nearly always words: times of day, and the article.
_NO_UNITS = ("pm", "am", "a")


@cache
def _units() -> dict[str, _Units]:
    """Units by symbols and names, and by symbols in small letters where their case is free. One of
    the ``others`` may name several units."""
    made: dict[str, _Units] = {}
    others: dict[str, _Units] = {}
    symbols, names = _numbers("prefix symbol"), _numbers("prefix")
    prefixes = [("", "", 1.0), *zip(symbols, names, names.values(), strict=True)]
    for row in read_table("units"):
        unit = Unit(row["dimension"], float(row["factor"]), float(row["offset"]))
        for symbol, name, factor in prefixes:
            # Twelve digits, so that equal units are equal whatever they were multiplied from.
            bigger = unit._replace(factor=float(f"{unit.factor * factor:.12g}"))
            made |= {symbol + s: (bigger,) for s in row["symbols"].split("|") if s}
            made |= {name + s: (bigger,) for s in row["names"].split("|") if s}
        for name in filter(None, row["others"].split("|")):
            others[name] = (*others.get(name, ()), unit)
    made |= others
    lows = Counter(name.lower() for name in made)
    made |= {name.lower(): units for name, units in made.items() if lows[name.lower()] == 1}
    return {name: units for name, units in made.items() if name not in _NO_UNITS}


def read_unit(tokens: Sequence[Token]) -> tuple[_Units, int] | None:
    """What the unit may be that words begin with, and how many of them it takes.

    >>> read_unit([Token(word, word, " ") for word in ("km", "per", "hour")])[0][0].dimension
    'length/time'
    """
    match = _simple_unit(tokens)
    if match and len(tokens) > match[1] and tokens[match[1]].low in ("per", "a", "an"):
        (unit, *_), end = match
        below = _simple_unit(tokens[end + 1 :])
        if below and (tokens[end].low == "per" or below[0][0].dimension == "time"):
            dimension = f"{unit.dimension}/{below[0][0].dimension}"
            return (Unit(dimension, unit.factor / below[0][0].factor),), end + 1 + below[1]
    return match


def _simple_unit(tokens: Sequence[Token]) -> tuple[_Units, int] | None:
    for end in range(min(3, len(tokens)), 0, -1):
        base, power = " ".join(stem(token.low) for token in tokens[:end]), 1
        symbol = tokens[0].written if end == 1 else ""
        if symbol[-1:] in ("2", "3"):  # km2
            symbol, power = symbol[:-1], int(symbol[-1])
            base = stem(symbol.lower())
        if units := _units().get(symbol) or _units().get(base):
            raised = [Unit(f"{u.dimension}^{power}", u.factor**power) for u in units]
            return units if power == 1 else tuple(raised), end
    return None

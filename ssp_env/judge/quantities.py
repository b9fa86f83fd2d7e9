"""Numbers as values with units: figures, number words, fractions, powers, scales, SI prefixes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from math import gcd
from typing import NamedTuple

from ssp_env.judge.tables import read_table, word_list


class Unit(NamedTuple):
    """A unit, as ``factor`` times the base unit of its dimension, plus ``offset``."""

    dimension: str = ""
    """``length``, ``length^2``, ``length/time``, ``dollar``, ...; nothing: no unit."""
    factor: float = 1.0
    offset: float = 0.0


ORDINAL = Unit("place")


class Quantity(NamedTuple):
    """A number, with its unit where it has one."""

    value: float
    unit: Unit = Unit()

    @property
    def key(self) -> str:
        plain = self.unit in (Unit(), ORDINAL)
        return f"{self.value:.12g}" + ("" if plain else f" {self.unit[0]} {self.unit[1]:.6g}")

    @property
    def in_base_units(self) -> float:
        return self.value * self.unit.factor + self.unit.offset

    def difference(self, given: Quantity) -> str:
        """What differs in a given amount; nothing where it says the same.

        A unit may be missing. The same amount in another unit may be 1% off. A number from 10,000
        may be rounded to as many digits as were given, at least two: 1,234,567 is 1.2 million.

        >>> Quantity(5, Unit("length")).difference(Quantity(5000, Unit("length", 0.001)))
        ''
        >>> Quantity(5, Unit("length")).difference(Quantity(5, Unit("mass")))
        'other units'
        """
        mine, other = self.unit, given.unit
        if mine.dimension and other.dimension and mine.dimension != other.dimension:
            return "other units"
        if mine.dimension == other.dimension and mine != other:
            base, apart = self.in_base_units, 0.05 if mine.offset != other.offset else 0.0
            near = abs(base - given.in_base_units) <= 0.01 * abs(base) + apart
            return "" if near else "other numbers"
        same = abs(self.value - given.value) <= 1e-9 * abs(self.value)
        digits = len(f"{abs(given.value):.12g}".partition("e")[0].replace(".", "").strip("0"))
        if not same and abs(self.value) >= 10_000 and digits >= 2:
            same = float(f"{self.value:.{digits - 1}e}") == given.value
        if not same and "share" in (mine.dimension, other.dimension):  # half is 50%
            same = f"{self.in_base_units:.9g}" == f"{given.in_base_units:.9g}"
        return "" if same else "other numbers"


# -- figures in a text -----------------------------------------------------------------------------

_GROUPED = re.compile(
    r"(?<![\d.,])(?:\d{1,3}(?:[ ']\d{3})+(?:[.,]\d+)?(?![\d'])|\d+(?:[.,]\d+)+(?![.,]?\d))"
)
_POWER = re.compile(
    r"(?<![\w.])(?:(\d+(?:\.\d+)?)(?:\s?[x×*·⋅]\s?))?(\d{1,9})(?:\^|\*\*)(-?\d{1,3})\b"
)
_EXPONENT = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)()e([+-]?\d{1,3})\b")
_FRACTION = re.compile(r"(?<![\w./])(?:(\d+)(?: | ?- ?| and ))?(\d{1,3})/(\d{1,3})(?![\w/]|\.\d)")


def plain_figures(text: str) -> str:
    """The text with each number in one form: no groups of thousands, a decimal point, no powers,
    no fractions.

    >>> plain_figures("1.234.567 or 3,5 or 10 000 or 1.5 × 10^8 or 5 1/2")
    '1234567 or 3.5 or 10000 or 150000000 or 5.5'
    """
    text = _GROUPED.sub(lambda match: _ungrouped(match[0]), text)
    text = _EXPONENT.sub(_multiplied, _POWER.sub(_multiplied, text))
    return _FRACTION.sub(_divided, text)


def _ungrouped(figure: str) -> str:
    signs, parts = re.sub(r"\d", "", figure), re.split(r"\D", figure)
    if len({*signs}) == 2 and signs.count(signs[-1]) == 1:
        return "".join(parts[:-1]) + "." + parts[-1]  # 1,234.5 and 1.234,5
    sizes = {len(part) for part in parts[1:]}
    indian = len(signs) > 1 and signs[0] == "," and len(parts[-1]) == 3 and sizes == {2, 3}
    thousands = sizes == {3} and len(parts[0]) <= 3 and (signs != "." or parts[1] == "000")
    return "".join(parts) if indian or thousands else ".".join(parts) if signs in ".," else figure


def _multiplied(match: re.Match[str]) -> str:
    base, power = Decimal(match[2] or 10), int(match[3])
    if abs(power) > 30 or not base:
        return match[0]
    shown = f"{Decimal(match[1] or 1) * base**power:f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _divided(match: re.Match[str]) -> str:
    whole, upper, lower = int(match[1] or 0), int(match[2]), int(match[3])
    if lower < 2 or gcd(upper, lower) > 1 or (match[1] and upper > lower):
        return match[0]
    return f"{whole + upper / lower:.15g}"


# -- numbers in words ------------------------------------------------------------------------------

_SCALES = {"hundred": 1e2, "thousand": 1e3, "lakh": 1e5, "million": 1e6, "crore": 1e7}
_SCALES |= {"billion": 1e9, "trillion": 1e12, "quadrillion": 1e15, "dozen": 12.0}
_SHORT = {"k": 1e3, "K": 1e3, "M": 1e6, "mn": 1e6, "bn": 1e9, "b": 1e9, "B": 1e9, "tn": 1e12}
_MONEY_SHORT = _SHORT | {"m": 1e6, "T": 1e12, "t": 1e12}
_FIGURE = re.compile(r"\d{1,50}(?:\.\d{1,50})?")
_NUMBERS = {word: float(value) for value, word in enumerate(word_list("number"))} | _SCALES
_NUMBERS |= {word: value * 10.0 for value, word in enumerate(word_list("tens"), 2)}
_ORDINALS = {f"{word.removesuffix('y')}th": value for word, value in _NUMBERS.items()}
_ORDINALS |= {word[:-1] + "ieth": _NUMBERS[word] for word in word_list("tens")}
_ORDINALS |= {word: float(value) for value, word in enumerate(word_list("first"))}
BEGINNINGS = frozenset(_NUMBERS | _ORDINALS) | {"a", "an", "half"}
_PARTS = {"half": 2, "quarter": 4} | {w: n for n, w in enumerate(word_list("first")) if n > 2}
"""Lower halves of fractions; a second is none."""
_PARTS |= {f"{word}s": value for word, value in _PARTS.items()} | {"halves": 2}


class Token(NamedTuple):
    """A word or a figure, as it is written, and the signs between it and the one before."""

    written: str
    low: str
    gap: str


def read_number(
    tokens: Sequence[Token], at: int, money: bool = False
) -> tuple[Quantity, int] | None:
    """The number that begins at a token, in figures or words, and the place where it ends.

    ``money``: a currency stands before it, so that ``5m`` is five million, and no length. The last
    two tokens have to be empty."""
    first, ahead = tokens[at].low, tokens[at + 1].low
    if first in ("a", "an", "half"):
        if first == "half" and ahead in ("", "of", "percent", "a", "an"):
            more = read_number(tokens, at + 2) if ahead[:1] == "a" else None
            big = more is not None and more[0].value >= 12
            return (
                (Quantity(0.5 * more[0].value), more[1])
                if more and big
                else (Quantity(0.5), at + 1)
            )
        last = tokens[at + 2].low in ("", "of", *_SCALES) or tokens[at - 1].low == "and"
        if ahead in _PARTS and last:
            return Quantity(1 / _PARTS[ahead]), at + 2
        return read_number(tokens, at + 1) if ahead in _SCALES else None

    value, end, ordinal = _whole(tokens, at, _MONEY_SHORT if money else _SHORT)
    if end == at or ordinal:
        return (Quantity(value, ORDINAL), end) if ordinal else None
    after, gap = tokens[end].low, tokens[end].gap
    if after in _PARTS and value > 0 and gap in (" ", "-") and (value == 1) != (after[-1] == "s"):
        return Quantity(value / _PARTS[after]), end + 1  # two thirds
    more = read_number(tokens, end + 1) if after == "and" else None
    if more and 0 < more[0].value < 1:  # two and a half million
        value, end = value + more[0].value, more[1]
    elif after == "point":  # one point five
        digits = [_NUMBERS.get(token.low, 10.0) for token in tokens[end + 1 :]]
        size = next(i for i, digit in enumerate(digits) if digit > 9)
        value += float("0." + "".join(f"{digit:.0f}" for digit in digits[:size]) + "0")
        end += 1 + size if size else 0
    scale = _SCALES.get(tokens[end].low, 1.0) if value % 1 else 1.0
    return Quantity(value * scale), end + (scale > 1)


def _whole(tokens: Sequence[Token], at: int, short: dict[str, float]) -> tuple[float, int, bool]:
    """A number without fractions, where it ends, and whether it is an ordinal."""
    total, group, end = 0.0, 0.0, at
    room = 1e16  # the next small number has to be below
    if _FIGURE.fullmatch(tokens[at].low):
        group, room, end = float(tokens[at].low), 0.0, at + 1
        letters, gap = tokens[end].written, tokens[end].gap
        if gap == "" and letters in ("st", "nd", "rd", "th"):
            return group, end + 1, True
        if letters in short and (gap == "" or (gap == " " and short is _MONEY_SHORT)):
            return group * short[letters], end + 1, False

    while True:
        low, gap = tokens[end].low, tokens[end].gap
        following = tokens[end + 1].low if low == "and" else ""
        if (
            room in (100.0, 1000.0)
            and 0 < (_NUMBERS | _ORDINALS if following else {}).get(following, 0) < 100
        ):
            end += 1
            continue
        plural = end > at and low[-1:] == "s"
        value = _SCALES.get(low[:-1]) if plural else _NUMBERS.get(low, _ORDINALS.get(low))
        glued = end == at or gap in (" ", "-", "", ", " if room == 1000.0 else "")
        if value is None or not glued or (low == "second" and end > at and gap != "-"):
            break
        if value in _SCALES.values() and low not in ("twelve", "twelfth"):
            if value <= 100:
                group, room = (group or 1.0) * value, 100.0
            else:
                total = total + group * value if group else (total or 1.0) * value
                group, room = 0.0, 1000.0
        elif end > at and not total and room in (0.0, 10.0) and 10 <= group <= 20 and value >= 10:
            group, room = group * 100 + value, 10.0 if value >= 20 else 0.0  # nineteen seventy-one
        elif value < room:
            group, room = group + value, 10.0 if value >= 20 else 0.0
        else:
            break
        end += 1
        if low in _ORDINALS:
            return total + group, end, True
    return total + group, end, False


# -- units -----------------------------------------------------------------------------------------

_PREFIXES = "T tera 12 G giga 9 M mega 6 k kilo 3 h hecto 2 d deci -1 c centi -2 m milli -3"
_PREFIXES += " u micro -6 n nano -9 p pico -12 f femto -15 P peta 15"
_TIMES_OF_DAY = frozenset({"pm", "am"})
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}


@cache
def _units() -> tuple[dict[str, Unit], dict[str, Unit | None]]:
    """Units by symbols and names; and by symbols without their case, ``None`` if it matters."""
    made: dict[str, Unit] = {}
    others: dict[str, Unit] = {}
    prefixes = [("", "", "0"), *zip(*(_PREFIXES.split()[i::3] for i in range(3)), strict=True)]
    for row in read_table("units"):
        unit = Unit(row["dimension"], float(row["factor"]), float(row["offset"]))
        for symbol, name, power in prefixes:
            bigger = unit._replace(factor=float(f"{unit.factor * 10.0 ** int(power):.12g}"))
            made |= {symbol + s: bigger for s in row["symbols"].split("|") if s}
            made |= {name + s: bigger for s in row["names"].split("|") if s}
        others |= {name: unit for name in row["others"].split("|") if name}
    made = {name: unit for name, unit in made.items() if name not in _TIMES_OF_DAY} | others
    folded: dict[str, Unit | None] = {}
    for name, unit in made.items():
        folded[name.lower()] = unit if folded.get(name.lower(), unit) == unit else None
    return made, folded


def read_unit(written: Sequence[str], stems: Sequence[str]) -> tuple[Unit, int] | None:
    """The unit that words begin with, and how many of them it takes.

    >>> read_unit(["km", "per", "hour"], ["km", "per", "hour"])[0].dimension
    'length/time'
    """
    match = _simple_unit(written, stems)
    if match is None or stems[match[1] : match[1] + 1] in ([], ()):
        return match
    unit, end = match
    link = stems[end] in ("per", "an", "a")
    below = _simple_unit(written[end + link :], stems[end + link :])
    if below and (
        stems[end] == "per" or (unit.dimension == "length" and below[0].dimension == "time")
    ):
        dimension = f"{unit.dimension}/{below[0].dimension}"
        return Unit(dimension, unit.factor / below[0].factor), end + link + below[1]
    return match


def _simple_unit(written: Sequence[str], stems: Sequence[str]) -> tuple[Unit, int] | None:
    power = _POWERS.get(stems[0], 0) if stems else 0
    begins, (made, folded) = int(power > 0), _units()
    for length in (3, 2, 1):
        end = begins + length
        if end > len(stems):
            continue
        symbol = written[begins] if length == 1 else ""
        unit = made.get(symbol) or made.get(" ".join(stems[begins:end]))
        if unit is None and symbol[-1:] in ("2", "3"):  # km2
            unit, power = made.get(symbol[:-1]), int(symbol[-1])
        unit = unit or folded.get(symbol.lower())
        if unit is not None:
            if not power and unit.dimension in ("length", "time") and stems[end : end + 1]:
                power = _POWERS.get(stems[end], 0)
                end += power > 0
            return (Unit(f"{unit.dimension}^{power}", unit.factor**power) if power else unit), end
    return None

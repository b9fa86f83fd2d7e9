"""Texts as the lenient judge reads them: words, quantities and dates in one form each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

from ssp_env.judge.chinese import from_chinese
from ssp_env.judge.quantities import (
    BEGINNINGS,
    ORDINAL,
    Quantity,
    Token,
    Unit,
    plain_figures,
    read_number,
    read_unit,
)
from ssp_env.judge.tables import rewrite, stem
from ssp_env.wording.normal import in_latin, marks


class Word(NamedTuple):
    """A word of a text, or a quantity or date that takes several."""

    key: str
    """Its letters, folded, without a plural's ending; or its value."""
    is_name: bool = False
    """It begins with a capital or is a figure."""
    gap: str = ""
    """The signs between it and the word before."""
    amount: Quantity | None = None
    date: tuple[int, int, int] | None = None
    """Year, month and day, with 0 for what is left out."""
    written: str = ""


_MONTHS = "january february march april may june july august september october november december"
_MONTH = {name[:size]: n for n, name in enumerate(_MONTHS.split(), 1) for size in (3, len(name))}
_MONTH["sept"] = 9
_ONES = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
_ROMAN = {tens + ones: i for i, (tens, ones) in enumerate(product(("", "X", "XX"), _ONES))}
_CURRENCIES = frozenset({"dollar", "usd", "euro", "eur", "gbp", "yen", "jpy", "rupee", "inr"})
_FOOT, _INCH, _DEGREE = Unit("length", 0.3048), Unit("length", 0.0254), Unit("angle")
_ASCII_TOKEN = re.compile(r"[A-Za-z]+\d+|\d+(?:\.\d+)*|[A-Za-z]+")


@cache
def _token() -> re.Pattern[str]:
    """A word or figure in any script, where marks belong to their letters."""
    letter = rf"(?:[^\W\d_]|[{marks()}])"
    return re.compile(rf"[A-Za-z]+\d+|\d+(?:\.\d+)*|{letter}+")


@lru_cache(maxsize=16384)
def read(text: str) -> tuple[Word, ...]:
    """The words of a text, without articles; numbers with their units, and dates, are one word.

    >>> [word.key for word in read("The 1,500 km of May 1934")]
    ['1500 length 1000', 'of', '1934-5-0']
    """
    text = in_latin(text)
    text = rewrite(text if text.isascii() else from_chinese(text), "signs")
    if any(map(str.isdecimal, text)):
        text = plain_figures(rewrite(text, "figures"))
    tokens, end = [], 0
    for token in (_ASCII_TOKEN if text.isascii() else _token()).finditer(text):
        tokens.append(Token(token[0], token[0].casefold(), text[end : token.start()]))
        end = token.end()
    words = _numbered([*tokens, *[Token("", "", text[end:])] * 2])
    return (
        _dated(_measured(words))
        if any(w.is_name and w.key[0] in "-0123456789" for w in words)
        else tuple(words)
    )


def keys(words: Sequence[Word]) -> tuple[str, ...]:
    return tuple([word.key for word in words])


def _quantity(amount: Quantity, gap: str) -> Word:
    return Word(amount.key, True, gap, amount)


def _numbered(tokens: Sequence[Token]) -> list[Word]:
    """Words and numbers, without articles. The last two tokens are empty."""
    made: list[Word] = []
    at, kept, before = 0, "", ""
    while at < len(tokens) - 2:
        token, after = tokens[at], tokens[at + 1]
        gap, kept = kept or token.gap, ""
        last = made[-1] if made else Word("")
        timed = last.amount is not None or last.key == "per"
        second = token.low == "second" and timed  # of time
        begins = token.low in BEGINNINGS or token.low[0].isdecimal()
        number = begins and not second and read_number(tokens, at, last.key in _CURRENCIES)
        if number:
            amount, at = number
            if last.key == "minus":
                gap, amount = made.pop().gap, Quantity(-amount.value)
            made.append(_quantity(amount, gap))
            before = tokens[at - 1].written
            continue
        at += 1
        if token.low in ("a", "an", "the") and after.written and after.gap.isspace():
            kept = gap if gap.strip() else ""
            continue
        if token.low in ("ad", "ce") and (before[:1].isdigit() or after.gap[:1] == " "):
            continue
        if token.written in _ROMAN and before[:1].isupper() and after.gap[:1] != ".":
            made.append(_quantity(Quantity(float(_ROMAN[token.written])), gap))
        else:
            key = stem("bc" if token.low == "bce" else token.low)
            made.append(Word(key, not token.written[0].islower(), gap, written=token.written))
        before = token.written
    return made


def _measured(words: Sequence[Word]) -> list[Word]:
    """Numbers with the units behind them, or the currencies before them; 5 feet 10 is one."""
    made: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.amount is None:
            made.append(word)
            continue
        amount, last = word.amount, made[-1] if made else Word("")
        behind = words[at : at + 6]
        part = amount.value % 1 and keys(behind[:1]) == ("of",)  # three quarters of a mile
        behind = behind[1:] if part else behind
        match = read_unit([w.written for w in behind], keys(behind))
        letter = behind and behind[0].written.isupper() and len(behind[0].written) == 1
        if match and not (letter and made):  # 5 A, but not Boeing 737 A
            amount, at = amount._replace(unit=match[0]), at + match[1] + bool(part)
        big = last.amount.unit if last.amount else Unit()
        if big == _FOOT and amount.unit == Unit():
            amount = amount._replace(unit=_INCH)  # six foot two
        elif big == _DEGREE and amount.unit.dimension == "time":
            amount = amount._replace(unit=Unit("angle", amount.unit.factor / 3600))
        elif last.key in _CURRENCIES and not amount.unit.dimension:
            money = read_unit([""], [made.pop().key])
            made.append(_quantity(amount._replace(unit=money[0] if money else Unit()), last.gap))
            continue
        unit, joined = amount.unit, word.gap.strip() in ("", ",") and last.amount
        if joined and big.dimension == unit.dimension and big.factor > unit.factor:
            value = joined.value + amount.value * unit.factor / big.factor
            made[-1] = _quantity(Quantity(value, big), last.gap)
        else:
            made.append(_quantity(amount, word.gap))
    return made


def _dated(words: Sequence[Word]) -> tuple[Word, ...]:
    """Dates as one word: 2 May 1934, May 2nd, May 1934, 1934.5.2. May alone is a word."""
    made: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        month, day, year, gap = _MONTH.get(word.key, 0), 0, 0, word.gap
        if figures := re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", word.key):
            year, month, day = map(int, figures.groups()[:: 1 if len(figures[1]) > 2 else -1])
            if month > 12:  # of two orders of day and month, the one that is a date
                month, day = day, month
            month = month if 1 <= month <= 12 else 0
        elif month:
            back = 2 if keys(made[-1:]) == ("of",) else 1
            if day := _part_of_date(made[-back:], 31):
                gap = made[-back].gap
                del made[-back:]
            elif day := _part_of_date(words[at:], 31):
                at += 1
            skipped = at + (keys(words[at : at + 1]) == ("of",))
            if year := _part_of_date(words[skipped:], 9999):
                at = skipped + 1
            month = month if day or year else 0
        made.append(
            Word(f"{year}-{month}-{day}", True, gap, None, (year, month, day)) if month else word
        )
    return tuple(made)


def _part_of_date(words: Sequence[Word], most: int) -> int:
    """A number that words begin with, as a day or, if more than 31 are possible, a year; else 0."""
    amount = words[0].amount if words else None
    if amount is None or amount.unit not in (Unit(), ORDINAL) or amount.value % 1:
        return 0
    return int(amount.value) if (100 if most > 31 else 1) <= amount.value <= most else 0


def unread_script(text: str) -> str:
    """A script in a text whose words are compared letter by letter, beside Latin and Chinese."""
    letters = filter(str.isalpha, "" if text.isascii() else in_latin(text))
    names = (unicodedata.name(letter, "Other").split()[0].title() for letter in letters)
    return next((name for name in names if name not in ("Cjk", "Latin")), "")

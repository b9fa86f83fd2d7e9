"""Texts as the lenient judge reads them: words, quantities and dates in one form each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

from ssp_env.judge.quantities import (
    BEGINNINGS,
    MONEY_SCALES,
    NONE,
    ORDINAL,
    Quantity,
    Token,
    Unit,
    from_chinese,
    plain_figures,
    read_number,
    read_unit,
)
from ssp_env.judge.tables import rewrite, stem
from ssp_env.wording.normal import ARTICLES, in_latin, marks


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


_MONTHS = "january february march april may june july august september october november december"
# Months by their names and by the first three letters of these.
_MONTH = {name[:size]: n for n, name in enumerate(_MONTHS.split(), 1) for size in (3, len(name))}
_MONTH["sept"] = 9
_ONES = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
_ROMAN = {tens + ones: i for i, (tens, ones) in enumerate(product(("", "X", "XX"), _ONES))}
_CURRENCIES = frozenset({"dollar", "usd", "euro", "eur", "gbp", "yen", "jpy", "rupee", "inr"})
_FOOT, _INCH = Unit("length", 0.3048), Unit("length", 0.0254)
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
    text = text if text.isascii() else rewrite(from_chinese(text), "chinese")
    text = rewrite(text, "signs")
    if any(map(str.isdecimal, text)):
        text = plain_figures(rewrite(text, "figures"))
    tokens, end = [], 0
    for token in (_ASCII_TOKEN if text.isascii() else _token()).finditer(text):
        tokens.append(Token(token[0], token[0].casefold(), text[end : token.start()]))
        end = token.end()
    return tuple(_words([*tokens, *[Token("", "", text[end:])] * 2]))


def keys(words: Sequence[Word]) -> tuple[str, ...]:
    return tuple([word.key for word in words])


def _words(tokens: Sequence[Token]) -> list[Word]:
    """Words without articles, quantities and dates. The last two tokens are empty."""
    made: list[Word] = []
    at, kept, before = 0, "", ""
    # Each round takes a quantity, a date or a word, or passes over an article.
    while at < len(tokens) - 2:
        token, after = tokens[at], tokens[at + 1]
        gap, kept = kept or token.gap, ""
        last, low = made[-1] if made else Word(""), token.low
        begins = low[0].isdecimal() or low in BEGINNINGS
        if begins and (number := read_number(tokens, at, last.key in _CURRENCIES)):
            at, before = _add_quantity(made, tokens, *number, gap), tokens[number[1] - 1].written
            continue
        if (low in _MONTH or low[0].isdecimal()) and (date := _date(made, tokens, at, gap)):
            made.append(date[0])
            at, before = date[1], tokens[date[1] - 1].written
            continue
        at += 1
        if low in ARTICLES and (after.gap.isspace() if after.written else made and low == "the"):
            # Signs before an article become those before the next word.
            kept = gap if gap.strip() else ""
            continue
        # Beside a year, this says nothing new.
        if low in ("ad", "ce") and (before[:1].isdigit() or after.gap[:1] == " "):
            continue
        # Behind a name, a Roman numeral is a number: Henry VIII; with a point, an initial.
        if token.written in _ROMAN and before[:1].isupper() and after.gap[:1] != ".":
            amount = Quantity(float(_ROMAN[token.written]))
            made.append(Word(amount.key, True, gap, amount))
        else:
            made.append(
                Word(stem("bc" if low == "bce" else low), not token.written[0].islower(), gap)
            )
        before = token.written
    return made


def _date(made: list[Word], tokens: Sequence[Token], at: int, gap: str) -> tuple[Word, int] | None:
    """A date at a token, and where it ends: 2 May 1934, May 2nd, May 1934, 1934.5.2. Its day may
    be among the words before, which it takes away. May alone is a word."""
    day = year = 0
    if figures := re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", tokens[at].low):
        # A year of more than two figures may come first, as in 1934.5.2; any other comes last.
        year, month, day = map(int, figures.groups()[:: 1 if len(figures[1]) > 2 else -1])
        month, day = (day, month) if month > 12 else (month, day)  # whichever order is a date
        at += 1
    elif month := _MONTH.get(tokens[at].low, 0):
        back = 1 + (keys(made[-1:]) == ("of",))
        if day := _part_of_date(made[-back].amount if made[back - 1 :] else None, 1, 31):
            gap = made[-back].gap
            del made[-back:]
        at += 1
        # Behind the month there may be a day, unless one stood before it, and then a year.
        for least, most in ((1, 0 if day else 31), (100, 9999)):
            behind = at + (tokens[at].low in ("of", "the", "ad"))
            number = read_number(tokens, behind) if tokens[behind].low else None
            if number and (part := _part_of_date(number[0], least, most)):
                day, year, at = (part, year, number[1]) if most == 31 else (day, part, number[1])
    if not 1 <= month <= 12 or not (day or year):
        return None
    return Word(f"{year}-{month}-{day}", True, gap, None, (year, month, day)), at


def _part_of_date(amount: Quantity | None, least: int, most: int) -> int:
    """A number as a day or a year; 0 where it cannot be one."""
    if amount is None or amount.unit not in (NONE, ORDINAL) or amount.value % 1:
        return 0
    return int(amount.value) if least <= amount.value <= most else 0


def _add_quantity(
    made: list[Word], tokens: Sequence[Token], amount: Quantity, at: int, gap: str
) -> int:
    """Adds a number with its unit, which stands at a token, or a currency before it, or a smaller
    part of the same quantity: 5 feet 10. Returns where it ends."""
    if made and made[-1].key == "minus":
        gap, amount = made.pop().gap, Quantity(-amount.value)
    last, behind = made[-1] if made else Word(""), at
    while amount.value % 1 and tokens[behind].low in ("of", "a", "an"):
        behind += 1  # three quarters of a mile
    found, mark = read_unit(tokens[behind : behind + 6]), tokens[behind].written
    if found and not (made and len(mark) == 1 and mark.isupper()):  # 5 A, but not Boeing 737 A
        amount, at = amount.measured_in(*found[0]), behind + found[1]
        if tokens[behind].gap == "" and mark in MONEY_SCALES:  # 5m: five million as well
            more = Quantity(amount.value * MONEY_SCALES[mark])
            amount = amount._replace(others=(*amount.others, more))
    big, unit = last.amount.unit if last.amount else NONE, amount.unit
    if big == _FOOT and unit == NONE:
        amount = amount.measured_in(_INCH)  # six foot two
    elif last.key in _CURRENCIES and not unit.dimension:
        money = read_unit([Token(last.key, last.key, "")])
        amount, gap = amount.measured_in(*(money[0] if money else [NONE])), made.pop().gap
    unit = amount.unit
    if last.amount and gap.strip() in ("", ",") and big[0] == unit[0] and big[1] > unit[1]:
        # In the larger unit: 5 feet 10 inches are 5 + 10 (inch / foot) feet.
        value = last.amount.value + amount.value * unit.factor / big.factor
        amount, gap = Quantity(value, big), made.pop().gap
    made.append(Word(amount.key, True, gap, amount))
    return at


def unread_script(text: str) -> str:
    """A script in a text whose words are compared letter by letter, beside Latin and Chinese."""
    letters = filter(str.isalpha, "" if text.isascii() else in_latin(text))
    # Unicode's name of a letter begins with its script: GREEK SMALL LETTER ALPHA.
    names = (unicodedata.name(letter, "Other").split()[0].title() for letter in letters)
    return next((name for name in names if name not in ("Cjk", "Latin")), "")

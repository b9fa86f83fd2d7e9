"""Texts as the lenient judge reads them: words, numbers, amounts and dates in one form each."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from pathlib import Path

from ssp_env.wording.answers import compatible


@dataclass(frozen=True, slots=True)
class Amount:
    """A number, with its unit where it has one."""

    value: float
    dimension: str = ""
    """``length``, ``share``, ``dollar``, ...; nothing: no unit."""
    factor: float = 1.0
    offset: float = 0.0
    digits: int = 99
    """Significant digits, trailing zeros apart: how far it may have been rounded."""

    @property
    def in_base_units(self) -> float:
        return self.value * self.factor + self.offset


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text, or a number or date that takes several."""

    key: str
    """Its letters, folded, without a plural's ending; or its digits."""
    is_name: bool = False
    """It begins with a capital or is a figure."""
    gap: str = ""
    """The signs between it and the word before."""
    amount: Amount | None = None
    date: tuple[int, int, int] | None = None
    """Year, month and day, with 0 for what is left out."""


def read_table(name: str) -> list[dict[str, str]]:
    text = (Path(__file__).parent / "data" / f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def vocabulary(name: str) -> frozenset[str]:
    """The stems of a list in ``words.csv``."""
    return frozenset(
        stem(word)
        for row in read_table("words")
        if row["list"] == name
        for word in row["words"].split()
    )


@cache
def _units() -> dict[tuple[str, ...], Amount]:
    return {
        tuple(name.split()): Amount(
            1.0, row["dimension"], float(row["factor"]), float(row["offset"])
        )
        for row in read_table("units")
        for name in row["names"].split("|")
        if name
    }


@cache
def _short_regions() -> dict[str, str]:
    rows = reversed(read_table("regions"))  # of two with one abbreviation, the first one has it
    return {row["short"]: row["name"].title() for row in rows if row["short"]}


_MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august"]
_MONTHS += ["september", "october", "november", "december"]
_MONTH = rf"\b({'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in _MONTHS)}|sept)\b\.?"
_DAY = r"\b(?:the )?(\d{1,2})(?:st|nd|rd|th)?\b(?! ?[:.]\d)"
_YEAR = r",? (?:of )?(\d{3,4})\b"
_WRITTEN_DATES = (
    re.compile(rf"(?i){_DAY}(?: of)? (?P<month>{_MONTH})(?:{_YEAR})?"),
    re.compile(rf"(?i)(?P<month>{_MONTH}) {_DAY}(?:{_YEAR})?"),
    re.compile(rf"(?i)(?P<month>{_MONTH}){_YEAR}"),
)
"""2 May 1934, May 2nd, May 1934. A month's name alone is a word like any other: May, March."""


def stem(word: str) -> str:
    """A word without a plural's ending, in American spelling."""
    word = re.sub(r"(?<=\w{3})our(?=s?$|ed$|ite)", "or", word)
    word = re.sub(r"(?<=\w{2})(?:tre)(?=s?$)", "ter", word)
    word = re.sub(r"(?<=\w{3})is(?=e[sd]?$|ation|ing$)", "iz", word)
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] not in "su" else word


# What a sign stands for depends on what is beside it. Applied in this order.
_SIGNS = tuple(
    (re.compile(found), read)
    for found, read in (
        (r"[‐-―−]", "-"),
        # Languages, keys, blood types, names: C++, C#, E♭, O-, P!nk, Ke$ha, U.S.A.
        (r"(?<=[A-Za-z])\+\+", " plus plus"),
        (r"(?<=\b[A-G])[♭]", " flat "),
        (r"(?<=\b[A-Z])#", " sharp"),
        (r"(?<=\b[ABCDFO])\+|(?<=\bAB)\+", " positive"),
        (r"(?<=\b[ABCDFO])-(?=\W|$)|(?<=\bAB)-(?=\W|$)", " negative"),
        (r"(?<=[a-z])!(?=[a-z])|(?<=[A-Z])!(?=[a-z])", "i"),
        (r"(?i:\bunited states(?: of america)?\b)|\bU\.S\.(?:A\.)?(?=\W|$)|\bUS\b", "USA"),
        (r"(?i)\b((?:[^\W\d_]\.){2,}|[^\W\d_]\.[^\W\d_]\b)", lambda m: m[0].replace(".", "")),
        (r"(?<=\w)['’](?=\w)|(?<=s)['’](?=\s|$)", ""),
        (r"(?i)\bst\.? (?=[A-Z])", "Saint "),
        (r"(?i)\bmt\.? (?=[A-Z])", "Mount "),
        # Numbers: 1,000, .5, dates in figures, ranges, minus, decades and centuries.
        (r"(?<=\d),(?=\d{3}\b)", ""),
        (r"(?<![\w.-])\.(?=\d)", "0."),
        (r"(?<!\w)(\d{4})-(\d\d?)-(\d\d?)(?!\w)", r"\1.\2.\3"),
        (r"(?<!\w)(\d\d?)/(\d\d?)/(\d{4})(?!\w)", r"\1.\2.\3"),
        (r"(?i)\bbetween (.*?\d\w*) and (?=.*\d)", r"\1 to "),
        (r"(?<=\d)\s?-\s?(?=\d)|(?<=\d[a-z]{2})\s?-\s?(?=\d)", " to "),
        (r"(?<![\w)])-(?=\d)|(?<=UTC|GMT)\s?-", " minus "),
        # Clatskanie, OR.
        (r",\s*([A-Z]{2,3})\b", lambda m: f", {_short_regions().get(m[1].lower(), m[1])}"),
        (r"(?<=\d)'?0'?s\b", "0 decade"),
        (r"\b(\d{1,2})00 decade", lambda m: f"{int(m[1]) + 1} century"),
        # Units and currencies.
        (r"°\s?C\b", " celsius"),
        (r"°\s?F\b", " fahrenheit"),
        (r"°", " degree "),
        (r"%|\bper cent\b", " percent"),
        (r"(?:US|C|A|NZ)?\$\s?(?=\d)", " dollar "),
        (r"€\s?(?=\d)", " euro "),
        (r"£\s?(?=\d)", " gbp "),
        (r"(?<=[A-Za-z])/(?=h\b|hr\b|s\b)", " per "),
        (r"\b(?:and|&|[nN])(?=\s)|(?<=\s)'?[nN]'?(?=\s)|&", " and "),
        (r"(?i)\ba dozen\b", "12"),
    )
)
_TOKEN = re.compile(r"[^\W\d_]+\d+|\d+(?:\.\d+)*|[^\W\d_]+")
_ONES = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
_ROMAN = {tens + ones: i for i, (tens, ones) in enumerate(product(("", "X", "XX"), _ONES))}
_SCALES = (1e3, 1e6, 1e9, 1e12)
_MONEY = frozenset({"dollar", "euro", "sterling", "yen", "rupee"})


@lru_cache(maxsize=16384)
def read(text: str) -> tuple[Word, ...]:
    """The words of a text, without articles; numbers with their units, and dates, are one word."""
    from anyascii import anyascii
    from text_to_num import alpha2digit

    text = compatible(text)
    for found, said in _SIGNS:
        text = found.sub(said, text)
    text = alpha2digit(anyascii(text), "en", 0.0)
    for written in _WRITTEN_DATES:
        text = written.sub(_in_figures, text)
    return tuple(map(_dated, _measured(_numbered(list(_tokens(text))))))


def keys(words: Sequence[Word]) -> tuple[str, ...]:
    return tuple(word.key for word in words)


def _tokens(text: str) -> Iterator[Word]:
    end, before = 0, ""
    for token in _TOKEN.finditer(text):
        written, gap, after = token[0], text[end : token.start()], text[token.end() :][:1]
        end = token.end()
        lower = written.lower()
        if lower in ("a", "an", "the") and re.match(r"\s+\w", text[end:]):
            end = end if gap.strip() == "" else token.start()
            continue
        if lower in ("st", "nd", "rd", "th") and before[-1:].isdigit() and gap == "":
            continue
        lower = "bc" if lower == "bce" else lower
        if lower in ("ad", "ce") and (before[:1].isdigit() or after == " "):
            continue
        if written in _ROMAN and before[:1].isupper() and after != ".":
            lower = str(_ROMAN[written])
        yield Word(lower if lower[0].isdigit() else stem(lower), not written[0].islower(), gap)
        before = written


def _numbered(words: list[Word]) -> list[Word]:
    """Scales and years that were spelled in two halves, joined to their numbers."""
    made: list[Word] = []
    for word in words:
        last = made[-1] if made else None
        if not re.fullmatch(r"\d{1,20}(?:\.\d{1,20})?", word.key):
            made.append(word)
            continue

        value = float(word.key)
        # Minus five; three million; nineteen seventy-one.
        if last and last.key == "minus":
            made[-1] = _number(replace(word, gap=last.gap), -value)
        elif last and last.amount and value in _SCALES and value > last.amount.value:
            made[-1] = _number(last, last.amount.value * value)
        elif (
            last and last.amount and last.amount.value in range(10, 21) and 10 <= value < 100
            and word.gap in (" ", "-") and "." not in word.key
        ):  # fmt: skip
            made[-1] = _number(last, last.amount.value * 100 + value)
        else:
            made.append(_number(word, value))
    return made


def _number(word: Word, value: float) -> Word:
    digits = len(f"{abs(value):.12g}".replace(".", "").strip("0"))
    return replace(word, key=f"{value:.12g}", is_name=True, amount=Amount(value, digits=digits))


def _measured(words: list[Word]) -> list[Word]:
    """Numbers with the units behind them, or the currencies before them."""
    units = _units()
    made: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.amount:
            # The longest unit first: miles per hour before miles.
            for behind in (words[at : at + count] for count in (3, 2, 1)):
                if unit := units.get(keys(behind)):
                    word = _with_unit(word, unit)
                    at += len(behind)
                    break
        last = made[-1] if made else None
        if word.amount and last and (unit := units.get((last.key,))) and unit.dimension in _MONEY:
            made[-1] = replace(_with_unit(word, unit), gap=last.gap)
        else:
            made.append(word)
    return made


def _with_unit(word: Word, unit: Amount) -> Word:
    number = word.amount or unit
    amount = replace(unit, value=number.value, digits=number.digits)
    key = f"{amount.value:.12g} {amount.dimension} {amount.factor:.6g}"
    return replace(word, amount=amount, key=key)


def _in_figures(found: re.Match[str]) -> str:
    """A date as year, month and day, with 0 for what is left out."""
    month = [name[:3] for name in _MONTHS].index(found["month"][:3].lower()) + 1
    numbers = [int(part) for part in found.groups() if part and part.isdigit()]
    year = next((number for number in numbers if number > 31), 0)
    day = next((number for number in numbers if number <= 31), 0)
    return f"{year:04d}.{month}.{day}"


def _dated(word: Word) -> Word:
    """A word of three figures, as a date."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", word.key)
    if found is None:
        return word
    year, month, day = map(int, found.groups() if len(found[1]) > 2 else found.groups()[::-1])
    # Of two orders of day and month, the one that is a date.
    if month > 12:
        month, day = day, month
    if not 1 <= month <= 12:
        return word
    return Word(f"{year}-{month}-{day}", True, word.gap, date=(year, month, day))

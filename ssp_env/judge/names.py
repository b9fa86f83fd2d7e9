"""Names of people, with titles, initials and nicknames, and of places, with their countries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from ssp_env.judge.reading import Word, keys, read
from ssp_env.judge.tables import read_table, stem, vocabulary

_QUOTED = re.compile(r"(?:[\"“”]([^\"“”]+)[\"“”]|(?<=\s)['‘]([^'‘’]+)['’]|\(([^()]+)\))(?= \w)")
# What no name has: other signs, three figures in a row, a Greek letter by itself.
_OTHER_SIGNS = re.compile(r"[^\w\s.,'’\"“”()-]|\d{3}|\b[Ͱ-Ͽ]\b")


class Person(NamedTuple):
    """A name, taken apart; all in keys."""

    first: str
    middle: tuple[str, ...]
    last: tuple[str, ...]
    nicknames: frozenset[str]
    number: str
    """Of a ruler, or ``jr`` or ``sr``; nothing where there is none."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*filter(None, (self.first,)), *self.middle, *self.last)


@lru_cache(maxsize=8192)
def parse(text: str) -> Person | None:
    """A text as one person's name; ``None`` where it cannot be one."""
    if _OTHER_SIGNS.search(text) or text.count(",") > 1:
        return None
    # Nicknames stand in quotes or brackets: George "Babe" Ruth. HG Wells is H. G. Wells.
    quoted = ("".join(groups) for groups in _QUOTED.findall(text))
    nicknames = frozenset(key for name in quoted for key in keys(read(name)))
    bare = re.sub(r"\b([A-Z])([A-Z])(?= [A-Z][a-z])", r"\1. \2.", _QUOTED.sub(" ", text))
    # A surname may come first: Wells, H. G.; but not in Ken Griffey, Jr.
    surname, _, behind = bare.partition(",")
    if behind and vocabulary("suffix").isdisjoint(keys(read(behind))):
        bare = f"{behind} {surname}"
    words = [word for word in read(bare) if word.key not in vocabulary("suffix") - {"jr", "sr"}]
    while words[1:] and words[0].key in vocabulary("title"):
        del words[0]
    numbered = words and (words[-1].key in ("jr", "sr") or words[-1].amount)
    number = words.pop().key if numbered else ""
    names, particles = keys(words), vocabulary("particle")
    if not names or not all(word.is_name or word.key in particles for word in words):
        return None
    if any(word.amount for word in words) or names[-1] in names[1:-1]:
        return None  # a number, or two people of one family
    # Particles belong to the surname: Ludwig van Beethoven; but Al Gore has a first name.
    begins = len(names) - 1
    while begins > (names[0] == "al") and names[begins - 1] in particles:
        begins -= 1
    return Person(names[0] if begins else "", names[1:begins], names[begins:], nicknames, number)


def same_person(gold: str, given: str, asked_for: bool) -> str:
    """How two names are one person's; nothing where they are not.

    ``given`` may leave out middle names and titles, and be a surname alone where the question asks
    for a person. First names are one if people use one for the other: Bill for William.

    >>> same_person("William Jefferson Clinton", "Bill Clinton", True)
    'first name in use'
    """
    mine, other = parse(gold), parse(given)
    if mine is None or other is None:
        return ""
    numbers = mine.number, other.number
    # "Jr." and "Sr." may be left out, and "Sr." added. An added "Jr." names another person.
    if numbers[0] != numbers[1] and numbers not in (("jr", ""), ("sr", ""), ("", "sr")):
        return ""
    if mine.names == other.names:
        return "same person"
    if asked_for and mine.names[-len(other.names) :] == other.names:
        return "surname alone"
    # No middle name contradicts one of the other's; either may leave out the last ones.
    middle = zip(mine.middle, other.middle, strict=False)
    if mine.last[-1] != other.last[-1] or not all(a == b or _is_initial(a, b) for a, b in middle):
        return ""
    ours, theirs = {mine.first, *mine.nicknames} - {""}, {other.first, *other.nicknames} - {""}
    if ours & theirs:
        return "same person"
    pairs = {(a, b) for a in ours for b in theirs}
    if any(_is_initial(a, b) for a, b in pairs):
        return "initials"
    return "first name in use" if pairs & _in_use() else ""


def _is_initial(a: str, b: str) -> bool:
    return min(len(a), len(b)) == 1 and a[0] == b[0]


@cache
def _in_use() -> frozenset[tuple[str, str]]:
    """First names that people use for each other; what two share with a third does not count."""
    rows = [
        (row["name"], name) for row in read_table("first_names") for name in row["used"].split("|")
    ]
    return frozenset((stem(a), stem(b)) for pair in rows for a, b in (pair, pair[::-1]))


# -- places ----------------------------------------------------------------------------------------


class Region(NamedTuple):
    name: str
    country: str


def _by_name(table: str, *columns: str) -> dict[str, Region]:
    return {
        " ".join(keys(read(name))): Region(row["name"], row.get("country", ""))
        for row in read_table(table)
        for column in columns
        for name in filter(None, row[column].split("|"))
    }


@cache
def countries() -> dict[str, Region]:
    """A country by each of its names and its people's."""
    return _by_name("countries", "name", "people", "other")


@cache
def _regions() -> dict[str, Region]:
    return countries() | _by_name("regions", "name", "short")


@lru_cache(maxsize=8192)
def _region(run: tuple[str, ...]) -> Region | None:
    # The longest name counts, and behind it another region may stand: Ontario, Canada.
    for end in range(len(run), 0, -1):
        if region := _regions().get(" ".join(run[:end])):
            return region if end == len(run) or _region(run[end:]) else None
    return None


def read_region(words: Sequence[Word]) -> Region | None:
    """The country, state or region that words name, possibly with its country behind it."""
    return _region(keys(words))


def lies_in(answer: Sequence[Word], region: Sequence[Word]) -> bool:
    """A place may be in a region as far as its name tells: a state only in its country."""
    here, there = read_region(answer), read_region(region)
    return there is not None and (here is None or here.country == there.name)


_OFFICES = re.compile(
    r"新?[市区區]|[省县縣州都府]|特[别別]行政[区區]|(?:\w{1,4}族)*自治[区區州县縣]"
)


def is_in_full(short: str, long: str) -> bool:
    """A Chinese place with what it is officially: 北京 and 北京市, but not 门市."""
    return (
        len(short) > 1 and long.startswith(short) and bool(_OFFICES.fullmatch(long[len(short) :]))
    )

"""People's names: titles, initials, middle names, nicknames and numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from ssp_env.judge.words import keys, read, vocabulary

if TYPE_CHECKING:
    from nicknames import NickNamer

_QUOTED = re.compile(r"(?:[\"“”]([^\"“”]+)[\"“”]|(?<=\s)['‘]([^'‘’]+)['’]|\(([^()]+)\))(?= \w)")
_OTHER_SIGNS = re.compile(r"[^\w\s.,'’\"“”()-]|\d{3}")
_PARTICLES = frozenset(
    {"da", "de", "del", "della", "di", "do", "dos", "du", "la", "le", "van", "von"}
)
_PARTICLES |= {"der", "den", "ter", "bin", "ibn", "al", "el", "y"}
_NUMBERS = frozenset({"jr", "sr", *map(str, range(1, 31))})


@dataclass(frozen=True, slots=True)
class Person:
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
    if not 2 <= len(text) <= 80 or _OTHER_SIGNS.search(text) or text.count(",") > 1:
        return None
    # Nicknames stand in quotes or brackets: George "Babe" Ruth.
    nicknames = frozenset(
        key for found in _QUOTED.findall(text) for key in keys(read("".join(found)))
    )
    # HG Wells is H. G. Wells.
    bare = re.sub(r"\b([A-Z])([A-Z])(?= [A-Z][a-z])", r"\1. \2.", _QUOTED.sub(" ", text))
    # A surname may come first: Wells, H. G.; but not in Ken Griffey, Jr.
    surname, comma, behind = bare.partition(",")
    if comma and not vocabulary("suffix") & {*keys(read(behind))}:
        bare = f"{behind} {surname}"
    words = [word for word in read(bare) if word.key not in vocabulary("suffix") - {"jr", "sr"}]
    titles = vocabulary("title")
    while words[1:] and words[0].key in titles and (words[2:] or words[1].key not in titles):
        del words[0]

    number = words.pop().key if len(words) > 1 and words[-1].key in _NUMBERS else ""
    if not words or any(word.amount or word.date for word in words):
        return None
    if not all(word.is_name or word.key in _PARTICLES for word in words):
        return None
    names = keys(words)
    if names[-1] in names[1:-1]:  # two people of one family
        return None
    # Particles belong to the surname: Ludwig van Beethoven.
    begins = len(names) - 1
    while begins > 0 and names[begins - 1] in _PARTICLES:
        begins -= 1
    if len(names) == 1:
        return Person(names[0], (), (), nicknames, number)
    first = names[0] if begins else ""
    return Person(first, names[1:begins], names[begins:], nicknames, number)


def same_person(gold: str, given: str, asked_for: bool) -> bool:
    """Two names of one person; ``given`` may leave out middle names and titles, and be a surname
    alone where the question asks for a person."""
    mine, other = parse(gold), parse(given)
    if mine is None or other is None:
        return False
    if mine.number != other.number and (mine.number, other.number) not in (
        ("jr", ""), ("sr", ""), ("", "sr"),
    ):  # fmt: skip
        return False

    if asked_for and mine.names[-len(other.names) :] == other.names:
        return True
    if not mine.last or not other.last:
        return mine.names == other.names
    if mine.last[-1] != other.last[-1]:
        return False
    ours, theirs = {mine.first, *mine.nicknames}, {other.first, *other.nicknames}
    same_first = any(
        _is_initial(a, b) or _forms(a) & _forms(b) for a in ours for b in theirs if a and b
    )
    # No middle name contradicts one of the other's; either may leave out the last ones.
    return same_first and all(
        a == b or _is_initial(a, b) for a, b in zip(mine.middle, other.middle, strict=False)
    )


def _is_initial(a: str, b: str) -> bool:
    return min(len(a), len(b)) == 1 and a[0] == b[0]


@cache
def _nicknames() -> NickNamer:
    from nicknames import NickNamer  # a third of a second

    return NickNamer()


@cache
def _forms(name: str) -> frozenset[str]:
    """A first name, and what it may be short for."""
    return frozenset({name, *_nicknames().canonicals_of(name)})

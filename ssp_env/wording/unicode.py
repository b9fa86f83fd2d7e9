"""Folding of letters, for comparing wordings in any script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

# Spacing accents and letters that people type for an apostrophe. NFKC would turn some of them into
# a space.
_APOSTROPHES = frozenset("\u00b4\u02b9\u02bb\u02bc\u02bd\u2018\u2019\u2032\uff07")

# Letters with a stroke or ligatures, which Unicode does not decompose.
_STROKES = str.maketrans(
    {
        "ø": "o",
        "Ø": "O",
        "ł": "l",
        "Ł": "L",
        "đ": "d",
        "Đ": "D",
        "ð": "d",
        "Ð": "D",
        "ħ": "h",
        "Ħ": "H",
        "ı": "i",
    }
    | {"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH"}
)

# Accents of alphabets, Hebrew points, Arabic vowel marks. Marks of other scripts are letters in
# their own right.
_ACCENTS = (
    (0x300, 0x36F),
    (0x591, 0x5C7),
    (0x64B, 0x65F),
    (0x1AB0, 0x1AFF),
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20FF),
)

# Thai, Lao, Tibetan, Myanmar, Khmer, kana, bopomofo, Han and Hangul. Korean has spaces, but glues
# particles on.
_UNSPACED = (
    (0x0E00, 0x0FFF),
    (0x1000, 0x109F),
    (0x1100, 0x11FF),
    (0x1780, 0x17FF),
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3021, 0x30FF),
    (0x3105, 0x318F),
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7FF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)

# Letters in boxes, which NFKC leaves alone: white on black in a circle or a square, and those that
# make up flags.
_BOXED = {first + i: chr(ord("A") + i) for first in (0x1F150, 0x1F170, 0x1F1E6) for i in range(26)}

# What shows as nothing, beside format characters (Cf): joiners, fillers, variation selectors.
_BLANKS = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0000, 0xE0FFF),
)
_STRETCH = "\u0640"  # the line that stretches an Arabic word
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")


def compatible(text: str) -> str:
    """NFKC with a single kind of apostrophe, and without control and invisible characters."""
    if text.isascii():
        return _CONTROLS.sub("", text)

    return unicodedata.normalize("NFKC", text.translate(_SEEN))


def spaced(text: str) -> str:
    """The text with a space for every control or invisible character: it may stand for either."""
    return _CONTROLS.sub(" ", text) if text.isascii() else text.translate(_SPACED)


def fold(text: str) -> str:
    """:func:`compatible`, with capitals and small letters made alike."""
    if text.isascii():
        return compatible(text).lower()

    # Folding may bring up a sequence that composes, and a composed letter may fold further.
    return compatible(compatible(text).casefold())


def plain(text: str) -> str:
    """:func:`compatible` with base letters for accented and boxed ones, and ASCII digits.

    Keeps capitals.
    """
    if text.isascii():
        return compatible(text)

    decomposed = unicodedata.normalize("NFKD", compatible(text).translate(_BOXED))
    return unicodedata.normalize("NFKC", decomposed.translate(_BASES)).translate(_STROKES)


def is_word_character(character: str) -> bool:
    """Whether it is a letter, a digit or a mark that belongs to a letter."""
    return unicodedata.category(character)[0] in "LNM"


def is_unspaced(character: str) -> bool:
    """Whether its script writes words without spaces between them.

    Korean counts as well, since particles are glued on to its words.
    """
    return character >= "\u0e00" and _within(character, _UNSPACED)


def _invisible(character: str) -> bool:
    category = unicodedata.category(character)
    return (
        category == "Cf"
        or (category == "Cc" and not character.isspace())
        or _within(character, _BLANKS)
    )


def _within(character: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    code = ord(character)
    return any(first <= code <= last for first, last in ranges)


def _base(character: str) -> str | None:
    if character == _STRETCH or _within(character, _ACCENTS):
        return None
    return str(unicodedata.decimal(character)) if character.isdecimal() else character


class _Table(dict[int, str | None]):
    """A translation table that is filled as characters turn up; ``None`` deletes."""

    def __init__(self, rule: Callable[[str], str | None]) -> None:
        self._rule = rule

    def __missing__(self, code: int) -> str | None:
        self[code] = self._rule(chr(code))
        return self[code]


_SEEN = _Table(lambda c: None if _invisible(c) else "'" if c in _APOSTROPHES else c)
_SPACED = _Table(lambda c: " " if _invisible(c) else c)
_BASES = _Table(_base)

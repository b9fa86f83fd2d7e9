"""Folding of letters, for comparing wordings in any script."""

from __future__ import annotations

import unicodedata

# Spacing accents and letters that people type for an apostrophe. NFKC would turn some of them into a space.
_APOSTROPHES = str.maketrans(dict.fromkeys("\u00b4\u02b9\u02bb\u02bc\u02bd\u2018\u2019\u2032\uff07", "'"))

# Letters with a stroke or ligatures, which Unicode does not decompose.
_STROKES = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ħ": "h", "Ħ": "H", "ı": "i"}
    | {"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH"}
)

# Accents of alphabets, Hebrew points, Arabic vowel marks. Marks of other scripts are letters in their own right.
_ACCENTS = ((0x300, 0x36F), (0x591, 0x5C7), (0x64B, 0x65F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF))

# Thai, Lao, Tibetan, Myanmar, Khmer, kana, bopomofo, Han and Hangul. Korean has spaces, but glues particles on.
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


def compatible(text: str) -> str:
    """NFKC with one apostrophe for all, and without invisible characters (zero-width, soft hyphen, variation marks)."""
    if text.isascii():
        return text
    seen = "".join(c for c in text.translate(_APOSTROPHES) if not _invisible(c))
    return unicodedata.normalize("NFKC", seen)


def fold(text: str) -> str:
    """:func:`compatible`, with capitals and small letters made alike."""
    if text.isascii():
        return text.lower()
    # Folding may bring up a sequence that composes, and a composed letter may fold further.
    return compatible(compatible(text).casefold())


def plain(text: str) -> str:
    """:func:`compatible`, with base letters for accented ones and ASCII for all decimal digits; keeps capitals."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", compatible(text))
    letters = "".join(_digit(c) for c in decomposed if not _within(c, _ACCENTS))
    return unicodedata.normalize("NFKC", letters).translate(_STROKES)


def is_word_character(character: str) -> bool:
    """Whether it is a letter, a digit or a mark that belongs to a letter."""
    return unicodedata.category(character)[0] in "LNM"


def is_unspaced(character: str) -> bool:
    """Whether its script writes words without spaces between them (or, in Korean, with particles glued on)."""
    return character >= "\u0e00" and _within(character, _UNSPACED)


def _digit(character: str) -> str:
    return str(unicodedata.decimal(character)) if character.isdecimal() else character


def _invisible(character: str) -> bool:
    return unicodedata.category(character) == "Cf" or "\ufe00" <= character <= "\ufe0f"


def _within(character: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    code = ord(character)
    return any(first <= code <= last for first, last in ranges)

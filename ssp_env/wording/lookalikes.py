"""Letters that are written with others: what a text reads as, whatever its characters are.

Only what looks the same is covered. Nobody reads "sirap" or rot13 as "Paris".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ssp_env.wording.unicode import plain, spaced

_CYRILLIC = dict(
    zip("АВЕЅІЈКМНОРСТУХԚԜаеорсухѕіјһԁԛԝктмвн", "ABESIJKMHOPCTYXQWaeopcyxsijhdqwktmbh", strict=True)
)
_GREEK = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεικνορτυχγω", "ABEZHIKMNOPTYXaeikvoptuxyw", strict=True))
_SMALL_CAPITALS = dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz", strict=True))
_OTHERS = dict(zip("ɑɡɩȷօսհոᎪᏟᎠᎬᎶᎻᎫᏦᏞᎷᏢᏚᎢᏙᎳᎩᏃ", "agijouhnACDEGHJKLMPSTVWYZ", strict=True))

_LATIN = str.maketrans(_CYRILLIC | _GREEK | _SMALL_CAPITALS | _OTHERS)
_TO_CYRILLIC = str.maketrans({latin: letter for letter, latin in _CYRILLIC.items()})
_TO_GREEK = str.maketrans({latin: letter for letter, latin in _GREEK.items()})

_WORD = re.compile(r"[^\W\d_]+")
_LONGER_WORD = re.compile(r"[^\W\d_]{2,}")
_LATIN_WORD = re.compile(r"[A-Za-z]+")
_CYRILLIC_WORD = re.compile(r"[\u0400-\u04ff]+")
_GREEK_WORD = re.compile(r"[\u0370-\u03ff]+")

_SIGNS = re.compile(r"[@$\w](?:[@$!|\w]*[@$\w])?")
"""A word in which digits and signs may stand for letters."""
_STAND_INS = re.compile(r"[0134578@$!|]")
_AS_LETTERS = [str.maketrans("0134578@$!|", f"o{one}eastb" + f"as{one}{one}") for one in "il"]

_CAPITAL_I = re.compile(r"(?<=[a-z])I(?![A-Z])")
_SMALL_L = re.compile(r"\bl(?=[bcdfghjkmnpqrstvwxz])")
"""Before a vowel, it may well be an l."""
_OVERRIDE = re.compile("\u202e([^\u202c]*)\u202c?")
_UMLAUTS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}
)


def as_latin(text: str) -> str:
    """Every word that can be read as Latin letters, in Latin letters; others stay."""
    return text if text.isascii() else _reread(text, _LATIN, _LATIN_WORD)


def spelled_out(text: str) -> str:
    """``ü`` as ``ue`` and the like, as people write where such letters are missing."""
    return text if text.isascii() else text.translate(_UMLAUTS)


def readings(text: str, wordings: Iterable[str]) -> list[str]:
    """All that a text can be read as, itself first; each in its :func:`plain` form.

    Args:
        text: any text.
        wordings: what is looked for; their scripts decide which letters are tried for others.
    """
    return list(dict.fromkeys(_readings(text, "".join(wordings))))


def _readings(text: str, wordings: str) -> Iterator[str]:
    seen = plain(text)
    yield seen
    yield plain(spaced(text))

    if "\u202e" in text:
        yield plain(_OVERRIDE.sub(lambda found: found[1][::-1], text))

    if not text.isascii():
        yield plain(spelled_out(text))

    if _CYRILLIC_WORD.search(wordings):
        yield _reread(seen, _TO_CYRILLIC, _CYRILLIC_WORD)
    if _GREEK_WORD.search(wordings):
        yield _reread(seen, _TO_GREEK, _GREEK_WORD)

    latin = as_latin(seen)
    yield latin
    yield _SMALL_L.sub("I", _CAPITAL_I.sub("l", latin))

    # Most texts have none of them, and read the same as before.
    for letters in _AS_LETTERS if _STAND_INS.search(latin) else ():
        yield _SIGNS.sub(lambda found, letters=letters: _letters(found[0], letters), latin)  # type: ignore[misc]


def _reread(text: str, table: dict[int, int] | dict[int, str], script: re.Pattern[str]) -> str:
    def word(found: re.Match[str]) -> str:
        read = found[0].translate(table)
        return read if script.fullmatch(read) else found[0]

    read = _LONGER_WORD.sub(word, text)

    # A lone letter may be a word of its own language ("в", "a"), where the text is in that
    # language.
    foreign = any(script.fullmatch(left) is None for left in _LONGER_WORD.findall(read))
    return read if foreign else _WORD.sub(word, read)


def _letters(word: str, table: dict[int, int]) -> str:
    """The word with letters for its digits and signs, if it is mixed and all can be read so."""
    if len(word) < 4 or sum(map(str.isalpha, word)) < 2:
        return word

    read = word.translate(table)
    return read if read.isalpha() else word

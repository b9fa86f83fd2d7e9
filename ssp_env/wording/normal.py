"""Normal forms of texts in any script: folding, SQuAD's form with exact match and F1, look-alikes.

:func:`squad_form` is the published one, so that figures can be compared. :func:`normalise` is the
same on folded text and with Unicode's punctuation, for telling what was said before. In both,
punctuation is deleted rather than turned into spaces: ``"3.5"`` and ``"35"`` have one form,
``"Jean-Paul"`` and ``"Jean Paul"`` have two."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import pairwise

from ssp_env.errors import MissingExtra

ARTICLES = frozenset({"a", "an", "the"})

# Spacing accents and letters that people type for an apostrophe; NFKC would turn some into a space.
_APOSTROPHES = frozenset("\u00b4\u02b9\u02bb\u02bc\u02bd\u2018\u2019\u2032\uff07")
_STROKES = str.maketrans(
    dict(zip("øØłŁđĐðÐħĦı", "oOlLdDdDhHi", strict=True))
    | {"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH"}
)
"""Letters with a stroke or ligatures, which Unicode does not decompose."""
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u0640]"
)
"""Marks of alphabets, Hebrew, Arabic, and the line that stretches an Arabic word. Marks of other
scripts are letters in their own right."""
UNSPACED = (
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u30ff"
    "\u3105-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of Thai, Lao, Tibetan, Myanmar, Khmer, kana, bopomofo, Han or Hangul."""
_UNSPACED = re.compile(UNSPACED)
_BLANKS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
"""Characters that show as nothing, in addition to format and control characters."""


class _Table(dict[int, str | None]):
    """A translation table that is filled as characters turn up; ``None`` deletes."""

    def __init__(self, rule: Callable[[str], str | None]) -> None:
        self._rule = rule

    def __missing__(self, code: int) -> str | None:
        self[code] = self._rule(chr(code))
        return self[code]


def _is_invisible(character: str) -> bool:
    category = unicodedata.category(character)
    control = category == "Cc" and not character.isspace()
    return control or category == "Cf" or _BLANKS.match(character) is not None


_SEEN = _Table(lambda c: None if _is_invisible(c) else "'" if c in _APOSTROPHES else c)
_SPACED = _Table(lambda c: " " if _is_invisible(c) else c)
_SIGNS = frozenset(string.punctuation)
_BARE = _Table(lambda c: None if c in _SIGNS or unicodedata.category(c)[0] == "P" else c)
_DIGITS = _Table(lambda c: str(unicodedata.decimal(c)) if c.isdecimal() else c)


def compatible(text: str) -> str:
    """NFKC with a single kind of apostrophe, and without control and invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    return unicodedata.normalize("NFKC", text.translate(_SEEN))


NEAR = 0.8
"""Part of their words and pairs of neighbouring words that near-identical texts share: about one
word in ten may differ. Questions of one pattern about different things, as all of a generated world
are, stay below it."""


def nearly_same(one: str, other: str) -> bool:
    """True for two texts that are alike but for some words, case, punctuation and invisible
    characters; those without a single word are alike."""
    a, b = _phrases(one), _phrases(other)
    return len(a & b) >= NEAR * len(a | b)  # Jaccard's similarity


@lru_cache(maxsize=4096)
def _phrases(text: str) -> frozenset[str]:
    words = re.findall(r"\w+", fold(text))
    return frozenset([*words, *(" ".join(pair) for pair in pairwise(words))])


def spaced(text: str) -> str:
    """The text with a space for every control or invisible character: it may stand for either."""
    return text.translate(_SPACED)


def fold(text: str) -> str:
    """:func:`compatible`, with capitals and small letters made alike."""
    # Folding may bring up a sequence that composes, and a composed letter may fold further.
    return compatible(compatible(text).casefold())


def plain(text: str) -> str:
    """:func:`compatible` with base letters for accented ones and ASCII digits; keeps capitals."""
    if text.isascii():
        return compatible(text)
    decomposed = unicodedata.normalize("NFKD", compatible(text))
    bare = _ACCENTS.sub("", decomposed).translate(_DIGITS)
    return unicodedata.normalize("NFKC", bare).translate(_STROKES)


@cache
def _transliteration() -> Callable[[str], str]:
    """From a text to the ASCII that it sounds like."""
    try:
        from anyascii import anyascii
    except ModuleNotFoundError as error:
        raise MissingExtra("text beyond ASCII (anyascii)", "text") from error
    return anyascii


@cache
def _looks() -> dict[str, str]:
    """ASCII letters and brackets by the characters that look like them."""
    try:
        from confusable_homoglyphs.confusables import confusables_data
    except ModuleNotFoundError as error:
        raise MissingExtra("text beyond ASCII (confusable-homoglyphs)", "text") from error

    return {
        # A capital that looks like a small l is read as an I.
        shown: "I" if letter == "l" and shown.isupper() else letter
        for letter in string.ascii_letters + "<>/"
        for alike in confusables_data.get(letter, ())
        for shown in [alike["c"].strip("\u200e")]
        if len(shown) == 1 and not shown.isascii()
    }


def skeleton(text: str) -> str:
    """The :func:`plain` text in the ASCII letters that its characters look or sound like.

    Scripts without spaces between words stay as they are."""
    text = plain(text)
    if text.isascii():
        return text
    looks, anyascii = _looks(), _transliteration()
    return "".join(
        c if c.isascii() or is_unspaced(c) else looks.get(c) or anyascii(c) for c in text
    )


@cache
def marks() -> str:
    """All marks that belong to the letter before them, for a character class of a pattern."""
    return "".join(chr(c) for c in range(0x300, 0x11FFF) if unicodedata.category(chr(c))[0] == "M")


def is_unspaced(character: str) -> bool:
    """Its script writes words without spaces between them.

    Korean counts as well, since particles are glued on to its words."""
    return _UNSPACED.match(character) is not None


def count_words(text: str) -> int:
    """Words of a text; in scripts without spaces between words, two characters are one.

    >>> count_words("Who was it?"), count_words("奥地利的首都是哪里？")
    (3, 5)
    """
    # In a text with characters of such a script, signs that stand alone are no words.
    unspaced = len(_UNSPACED.findall(text))
    return (unspaced + 1) // 2 + sum(
        any(map(str.isalnum, word)) or not unspaced for word in _UNSPACED.sub(" ", text).split()
    )


def count_letters(text: str) -> int:
    """Characters of a text without padding, where one of a script without spaces is two."""
    shown = " ".join(compatible(text).split())
    return len(shown) + len(_UNSPACED.findall(shown))


def normalise(text: str) -> str:
    """SQuAD's normal form: no case, punctuation or articles, single spaces.

    What would leave nothing is kept: articles where there is no other word (``"The The"``),
    punctuation where there is nothing else (``"!!!"``). Only blank text has the normal form ``""``.
    Idempotent."""
    folded = fold(text)
    if folded.isascii() and folded.isprintable():
        bare = folded.translate(_NO_PUNCTUATION).split()
        return " ".join([word for word in bare if word not in ARTICLES] or bare or folded.split())

    # Deleting what stood between a letter and an accent may let them compose.
    bare = fold(folded.translate(_BARE)).split()

    words = [word for word in bare if word not in ARTICLES]
    return " ".join(words or bare or folded.split())


def squad_form(text: str) -> str:
    """The normal form of SQuAD's published evaluation, version 1.1, to the letter.

    Lower case, without ASCII punctuation, then without articles, with single spaces.

    >>> squad_form("The U.S.A., 10⁶ times!")
    'usa 10⁶ times'
    """
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


_NO_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def exact_match(prediction: str, wordings: Iterable[str]) -> bool:
    """SQuAD's exact match with one of the wordings; a blank prediction matches nothing."""
    form = squad_form(prediction)
    return normalise(prediction) != "" and form in map(squad_form, wordings)


def f1(prediction: str, wordings: Iterable[str]) -> float:
    """SQuAD's token F1 of the prediction with the best of the wordings, from 0 to 1."""
    tokens = Counter(squad_form(prediction).split())
    return max(
        (_overlap(tokens, Counter(squad_form(each).split())) for each in wordings), default=0.0
    )


def _overlap(left: Counter[str], right: Counter[str]) -> float:
    # F1 = 2 |A & B| / (|A| + |B|), of multisets of tokens.
    common = (left & right).total()
    return 2.0 * common / (left.total() + right.total()) if common else 0.0


# -- one alphabet ----------------------------------------------------------------------------------

_RAISED = re.compile("(?<=[0-9A-Za-z)])[⁰¹²³⁴-⁹⁺⁻]+")
_VULGAR = re.compile("(?<=[0-9])[¼-¾⅐-⅞↉]")
_ANGSTROM = re.compile(r"(?<=[0-9])\s?[Å\u212b](?!\w)")
_FOREIGN = re.compile(r"[^\W\d_]*[^\W\d_\x00-\x7f][^\W\d_]*")


def in_latin(text: str) -> str:
    """The :func:`plain` text with Latin letters alone in each word that has one.

    A word of another script stays as it is: it is compared in itself. A Greek letter that stands
    for itself has its name. Powers keep a sign before them, fractions a space.

    >>> in_latin("Dvořák, П𝖺ris, β-carotene, 10⁶, 5½ µm, Москва")
    'Dvorak, Пaris, Beta-carotene, 10^6, 5 1/2 um, Москва'
    """
    if text.isascii():
        return compatible(text)
    text = _ANGSTROM.sub(" angstrom", text)
    text = _VULGAR.sub(r" \g<0>", _RAISED.sub(r"^\g<0>", text)).replace("″", '"').replace("ʺ", '"')
    text = plain(text).replace("\u2044", "/").replace("\u2212", "-")
    return text if text.isascii() else _FOREIGN.sub(_latin_word, text)


def _latin_word(match: re.Match[str]) -> str:
    word, before = match[0], match.string[: match.start()].rstrip()
    latin = [c for c in word if c.isascii()]
    if word[0] == "μ" and 1 < len(word) <= 4:
        return "u" + word[1:]  # micro
    if word[-1] == "Ω" and len(word) <= 2 and before[-1:].isdecimal():
        return word  # ohms
    named = len(word) == 1 or (latin != [] and all(map(str.isupper, latin)))
    return "".join(_latin_letter(c, named, latin != []) for c in word).strip()


def _latin_letter(letter: str, named: bool, mixed: bool) -> str:
    if letter.isascii():
        return letter
    script, *_, last = unicodedata.name(letter, "?").split()
    if script == "GREEK" and named:
        return f" {last.title().replace('Lamda', 'Lambda')} "
    if script == "LATIN":
        return _transliteration()(letter)
    return _looks().get(letter, letter) if mixed else letter

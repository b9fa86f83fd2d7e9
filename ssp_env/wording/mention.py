"""Texts that give an answer away: the paper's rule against spoilers.

A reader takes in at a glance what is covered: other capitals, accents and signs, letters that look
alike, words cut or glued in another way, names in another order. Whatever has to be worked out (a
rhyme, an anagram, a translation, every other letter) is not."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from ssp_env.wording.normal import ARTICLES, UNSPACED, is_unspaced, plain, skeleton, spaced

_FUNCTION_WORD_LIST = """
    a an the this that these those some any all no none one other such i me my we us our you
    your he him his she her hers it its they them their who whom whose what which when where why
    how be am is are was were been being do does did done have has had having will would shall
    should can could may might must and or nor but if then than so as at by for from in into of
    off on onto out over to under up upon with about after before between during not now here
    there yes too very just only also each every both
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORD_LIST.split())
"""Alone, one of these is an answer ("The Who", "It", "US") only where it is written like a name."""

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_OVERRIDE = re.compile("\u202e([^\u202c]*)\u202c?")
_UMLAUTS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}
)
_CAPITAL_I = re.compile(r"(?<=[a-z])I(?![A-Z])")
_SMALL_L = re.compile(r"\bl(?=[bcdfghjkmnpqrstvwxz])")
_SIGNED_WORD = re.compile(r"(?=\S*[A-Za-z]\S*[A-Za-z])[A-Za-z0134578@$!|]{4,}")
"""A word in which digits and signs may stand for letters."""
# Two tables, since 1, ! and | may stand for an i or for an l.
_AS_LETTERS = [str.maketrans("0134578@$!|", f"o{one}eastbas{one}{one}") for one in "il"]

_GROUPED = re.compile(r"(?<=\d)[, '](?=\d{3}(?!\d))")
"""Between the thousands of a number."""
_GLUED = re.compile(
    r"(?<!\bMc)(?<!\bMac)(?<!\bFitz)(?<!\bDe)(?<!\bLa)(?<!\bLe)(?<!\bVan)(?<=[a-z])(?=[A-Z])"
    r"|(?<=[a-z]{3})(?=\d)"
)
"""Places where a word is set apart inside another: ``ParisFrance``, ``Paris2024``."""
_WORD = re.compile(rf"{UNSPACED}+|\d+(?:\.\d+)+|(?:(?!{UNSPACED})[^\W_])+")
_SIGNS = re.compile(
    r"-\s*\n\s*|(?<=\S)[^\w\s=<>+]+(?=\S)|[()\[\]*_]|(?<=\b[^\W\d_])\.\s+(?=[^\W\d_]\b)"
)
_GAP = r"[^\w,;:?!、。]{0,3}"
"""Signs that may stand between the letters of an answer."""
_LETTERS = 5
"""Letters that an answer needs for being recognised although it is cut in another way."""
_LONG = 8
"""Letters that it needs for being recognised with other capitals as well, or inside a word."""
_FEWEST = 3
"""Letters or figures that it needs for being recognised although they stand apart."""
_PEOPLE = r"(?:n|an|ian|ese|ish|er|ite)?s?"
"""Endings of names for the people and the things of a place: ``Parisian``, ``Londoners``."""


def mentions(text: str, wordings: Iterable[str]) -> str | None:
    """The first wording that a reader of the text would see in it, or ``None``.

    Case, accents, articles and punctuation do not count, nor, within reason, how an answer is cut
    into words. In scripts without spaces between words a wording counts wherever it stands. A
    wording that is one function word has to be spelled with the same capitals. A blank wording
    never occurs."""
    texts = list(dict.fromkeys(_readings(text)))
    for wording in wordings:
        for read in dict.fromkeys(
            (plain(wording), plain(wording.translate(_UMLAUTS)), skeleton(wording))
        ):
            if any(_is_in(read, other) for other in texts):
                return wording
    return None


def _readings(text: str) -> Iterator[str]:
    shown = _TAG.sub("", html.unescape(text))
    for raw in (text, shown, spaced(text), text.translate(_UMLAUTS)):
        yield plain(raw)
    if "\u202e" in text:
        yield plain(_OVERRIDE.sub(lambda match: match[1][::-1], text))

    latin = skeleton(shown)
    yield latin
    yield _SMALL_L.sub("I", _CAPITAL_I.sub("l", latin))
    for letters in _AS_LETTERS:
        yield _SIGNED_WORD.sub(lambda word, letters=letters: word[0].translate(letters), latin)  # type: ignore[misc]


@lru_cache(maxsize=1024)
def _words(text: str) -> tuple[str, ...]:
    """Its words as written, without articles; a last one stays, since it may be a letter."""
    words = _WORD.findall(_GLUED.sub(" ", _GROUPED.sub("", text)))
    return (*(word for word in words[:-1] if word.lower() not in ARTICLES), *words[-1:])


@lru_cache(maxsize=1024)
def _tight(text: str) -> tuple[str, ...]:
    """The same with signs inside words taken out: ``U.S.S.R.``, ``Pari(s)``, ``Spider-Man``."""
    return _words(_SIGNS.sub("", text))


def _is_in(wording: str, text: str) -> bool:
    target = _words(wording)
    if not target:
        # An answer without a word, such as "+", has to stand alone.
        symbols = " ".join(wording.split())
        alone = rf"(?:^|(?<=[\s\"'(])){re.escape(symbols)}(?=$|[\s\"').,;:?])"
        return bool(symbols) and re.search(alone, " ".join(text.split())) is not None

    solid = "".join(_tight(wording))
    if any(map(is_unspaced, solid)):
        # Where words have no spaces between them, the answer may stand within a run of characters.
        # An end of it in Latin letters or figures must not go on in the text.
        before = r"(?<![A-Za-z\d])" if solid[0].isascii() else ""
        after = r"(?![A-Za-z\d])" if solid[-1].isascii() else ""
        figure = r"(?<!\d)" if solid[0].isdecimal() else ""
        body = _GAP.join(map(re.escape, solid))
        return re.search(figure + before + body + after, text, re.IGNORECASE) is not None

    if solid.lower() in FUNCTION_WORDS:
        return _is_named(solid, text)
    # Signs count in numbers: without them, 1-2 would be 12.
    numbers = solid.isdecimal() or not any(map(str.isalpha, solid))
    forms = {target} if numbers else {target, _tight(wording)}
    runs = {_words(text)} if numbers and len(target) == 1 else {_words(text), _tight(text)}
    return (
        any(_occurs(form, run) for form in forms for run in runs)
        or _is_spelled(solid, text)
        or (solid.isdecimal() and _is_cut_number(solid, text))
        or (
            not numbers
            and (_is_cut(wording, solid, len(target) > 1, text) or _is_short(wording, text))
        )
        or (len(target) > 1 and _is_reordered(target, _words(text)))
        or (not numbers and _is_misspelled(target, _words(text)))
    )


def _is_named(word: str, text: str) -> bool:
    """A function word stands there as a name does: with its capitals, not as a sentence begins."""
    starts = r"(?<![.!?:]\s)(?<!^)" if word == word.capitalize() else ""
    dotted = r"\.?".join(map(re.escape, word))
    quoted = rf"(?<=[\"'“«]){dotted}(?!\w)"
    return re.search(rf"{quoted}|{starts}(?<!\w){dotted}(?!\w)", text) is not None


def _occurs(target: Sequence[str], words: Sequence[str]) -> bool:
    """The words stand there, side by side; on one side, initials may be missing."""
    named, other = _without_initials(target), _without_initials(words)
    pairs = [(target, words)]
    if len(named) > 1:
        pairs += [(named, words), (target, other)]
    return any(f" {' '.join(a)} ".casefold() in f" {' '.join(b)} ".casefold() for a, b in pairs)


def _without_initials(words: Sequence[str]) -> list[str]:
    """All words but a capital alone between two words that are written like names."""
    return [
        word
        for at, word in enumerate(words)
        if not (
            len(word) == 1 and word.isupper() and 0 < at < len(words) - 1
            and words[at - 1][0].isupper() and words[at + 1][0].isupper()
        )
    ]  # fmt: skip


def _is_cut(wording: str, letters: str, several: bool, text: str) -> bool:
    """The answer's letters stand there, cut into words in another way, or inside another word."""
    if len(letters) < _LETTERS:
        return False
    body = _GAP.join(map(re.escape, letters))
    if re.search(rf"(?<!\w){body}(?!\w)", text, re.IGNORECASE if len(letters) >= _LONG else 0):
        return True
    if several and len(letters) >= _LONG and re.search(body, text, re.IGNORECASE):
        return True
    return letters[0].isupper() and re.search(rf"(?<!\w){letters}{_PEOPLE}(?!\w)", text) is not None


def _is_spelled(solid: str, text: str) -> bool:
    """Its letters or figures stand there one by one: ``K i e v``, ``1, 8, 4, 2``."""
    body = r"[\W_]{1,3}".join(map(re.escape, solid))
    alone = rf"(?<![^\W_]){body}(?![^\W_])"
    return len(solid) >= _FEWEST and re.search(alone, text, re.IGNORECASE) is not None


def _is_cut_number(figures: str, text: str) -> bool:
    """A number stands there with gaps or signs, or glued to letters: ``18-42``, ``1842s``.

    A decade is more than its first year: the 1990s do not give 1990 away."""
    decade = r"(?!s\b)" if figures.endswith("0") else ""
    body = r"(?:[^\w.,:]|_){0,3}".join(figures)
    match = re.search(rf"(?<!\d)(?<!\d[.,]){body}{decade}(?!\d|[.,]\d)", text)
    return len(figures) >= _FEWEST and match is not None


def _is_misspelled(target: Sequence[str], words: Sequence[str]) -> bool:
    """A name stands there with a letter missing inside, or with one twice."""
    if not target[0][0].isupper():
        return False
    for at in range(len(words) - len(target) + 1):
        pairs = zip(words[at : at + len(target)], target, strict=True)
        other = [(word, name) for word, name in pairs if word.casefold() != name.casefold()]
        if len(other) == 1 and _is_slip(*other[0]):
            return True
    return False


def _is_slip(word: str, name: str) -> bool:
    """The word is the name but for a letter that is missing inside, or there twice.

    Without its last letter, a name may be another, unless it is long: ``Cuba`` is not ``Cuban``. A
    short one has to be written with the same capital, and a letter less would make too many others
    of it."""
    if len(name) < _LETTERS - 1 or (word[0] != name[0] and len(name) < _LONG):
        return False
    word, name = word.casefold(), name.casefold()
    if len(word) > len(name):
        # The name with its i-th letter twice.
        return any(name[:i] + name[i - 1 :] == word for i in range(1, len(name) + 1))
    end = len(name) - (len(name) < _LONG or name[-1] in "ns")
    inside = range(1, end) if len(name) >= _LETTERS else ()
    # The name without the letter at place i.
    return any(name[:i] + name[i + 1 :] == word for i in inside)


def _is_short(wording: str, text: str) -> bool:
    """An answer without what tells it apart: ``Roger`` for ``Roger (alien)``, written the same."""
    match = re.fullmatch(r"(.*\w.*?)\s*\([^()]*\)", wording.strip())
    return match is not None and re.search(rf"(?<!\w){re.escape(match[1])}(?!\w)", text) is not None


def _is_reordered(target: Sequence[str], words: Sequence[str]) -> bool:
    """The words of a name side by side in another order: ``Smith, George``."""
    count, wanted = len(target), sorted(word.casefold() for word in target)
    if len("".join(wanted)) < 6 or not any(len(word) > 2 and word.isalpha() for word in wanted):
        return False
    for at in range(len(words) - count + 1):
        window, behind = words[at : at + count], words[at + count : at + count + 1]
        # In "York, New Jersey", the second word belongs to what follows.
        goes_on = count == 2 and behind and len(behind[0]) > 1 and behind[0][0].isupper()
        if sorted(word.casefold() for word in window) == wanted and not goes_on:
            return sum(w[0].isupper() for w in window) >= sum(w[0].isupper() for w in target)
    return False

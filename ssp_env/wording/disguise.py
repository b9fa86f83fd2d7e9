"""Answers that a text shows without writing them as words of their own.

What a reader takes in at a glance is covered: markup, signs inside a word, words glued together,
names in another order, and a country by its people. Whatever has to be worked out (a rhyme, an
anagram, a translation, every other letter) is not."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ssp_env.wording.places import COUNTRY
from ssp_env.wording.unicode import is_unspaced, is_word_character, plain
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import keys, words

_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_BRACKET_IN_WORD = re.compile(r"(?<=\w)[()\[\]{}]|[()\[\]{}](?=\w)")
_QUALIFIED = re.compile(r"(.*\w.*?)\s*\([^()]*\)")
_SIGNS_IN_WORD = re.compile(r"(?<=[^\W\d_])[^\w\s]{1,3}(?=[^\W\d_])")

SQUEEZED = 5
"""Letters that an answer needs for being recognised with signs in its midst."""
_GLUED = 4
"""Letters that an answer needs for being recognised where a capital or a digit sets it apart."""
_STANDS_OUT = 5
"""Letters that it needs where only its beginning is set apart."""
_LONG = 8
"""Letters that an answer of several words needs for being recognised inside any other word."""

_BEGINS_NAMES = vocabulary("mc mac fitz o d de del di da du la le los las van von al el san")
"""What stands before a capital inside one name: ``McDonald`` does not give ``Donald`` away."""
_PEOPLE = re.compile(r"(?:n|an|ian|ese|ish|er|ite)?s?")
"""How the people and the things of a place are called: ``Parisian``, ``Londoners``."""
_BEGINS_PLACES = vocabulary(
    "new north south east west san santa saint st los las el mount lake port fort"
)
"""In "York, New Jersey", the second word belongs to what follows."""
_OTHER_MEANINGS = vocabulary("us polish turkey china jordan chile georgia")
"""Names of countries and peoples that are words of another meaning without a capital."""
_SURNAMES = vocabulary("finn dane pole turk serb")
"""Names of peoples that are as often a person's name, or something else."""


def unmarked(text: str) -> str:
    """The text as a browser shows it: entities resolved, HTML tags gone."""
    if "&" not in text and "<" not in text:
        return text
    return _TAG.sub("", html.unescape(text))


def squeezed(text: str) -> str:
    """The text without brackets and other signs inside words: ``Pari(s)``, ``Par,is``."""
    return _SIGNS_IN_WORD.sub("", _BRACKET_IN_WORD.sub("", text))


def is_glued(letters: str, several: bool, text: str) -> bool:
    """Whether an answer stands out inside a longer word, as in ``ParisFrance`` or ``xParisx``.

    Args:
        letters: the answer's letters, folded, without anything in between.
        several: whether it is of several words.
        text: a plain reading of the text.
    """
    if len(letters) < _GLUED or not (letters[0].isalpha() and letters[-1].isalpha()):
        return False
    if any(map(is_unspaced, letters)):
        return False  # where words have no spaces between them, all are glued

    for found in re.finditer(re.escape(letters), text, re.IGNORECASE):
        start, end = found.span()
        before, after = text[start - 1 : start], text[end : end + 1]
        begins, ends = _word_around(text, start, end)
        if (begins, ends) == (start, end):
            continue  # a word of its own: whether that is the answer is decided elsewhere

        capital = text[start].isupper() and before.islower()
        set_apart = start == begins or before.isdecimal() or capital
        closed = end == ends or after.isdecimal() or (after.isupper() and text[end - 1].islower())
        part_of_name = text[begins:start].casefold() in _BEGINS_NAMES

        if set_apart and closed and not part_of_name:
            return True
        if capital and len(letters) >= _STANDS_OUT and not part_of_name:
            return True
        if several and len(letters) >= _LONG:
            return True
        if start == begins and text[start].isupper() and len(letters) >= _STANDS_OUT:
            return _PEOPLE.fullmatch(text[end:ends]) is not None
    return False


def is_glued_name(words: Sequence[str], text: str) -> bool:
    """Whether a name of several words stands there with letters glued to it: ``xGeorge Smithx``.

    A capital inside a word sets it apart, so ``Joanna Bellamy`` does not hold ``Anna Bell``.

    Args:
        words: the answer's words, as written.
        text: a plain reading of the text.
    """
    if len(words) < 2 or not words[0][0].isupper():
        return False

    # The first word is sought as it is written, which is quick and rarely found.
    if words[0] not in text:
        return False
    rest = "".join(rf"[\W_]{{1,2}}{re.escape(word)}" for word in words[1:])
    for found in re.finditer(rf"(?<=[a-z]){re.escape(words[0])}{rest}", text):
        begins, _ = _word_around(text, *found.span())
        if text[begins : found.start()].casefold() not in _BEGINS_NAMES:
            return True
    return False


def is_reordered(target: Sequence[tuple[str, str]], run: Sequence[tuple[str, str, str]]) -> bool:
    """Whether a text has the words of a name side by side in another order: ``Smith, George``.

    Args:
        target: the answer's words, as written and folded.
        run: the text's words, as written, folded, and what stands before each.
    """
    count = len(target)
    wanted = {folded: cased for cased, folded in target}
    long_enough = sum(map(len, wanted)) >= 6 and any(len(w) > 2 and w.isalpha() for w in wanted)
    if not 2 <= count == len(wanted) <= 5 or not long_enough:
        return False

    for at in range(len(run) - count + 1):
        window = run[at : at + count]
        if {folded for _, folded, _ in window} != wanted.keys():
            continue

        beside = all(re.fullmatch(r"[\s\0.]*,?[\s\0]*", gap) for _, _, gap in window[1:])
        alike = all(
            cased[0].isupper() or not wanted[folded][0].isupper() for cased, folded, _ in window
        )
        if beside and alike and window[-1][1] not in _BEGINS_PLACES:
            return True
    return False


def is_unqualified(wording: str, text: str) -> bool:
    """Whether a text has an answer without what tells it apart: ``Roger`` for ``Roger (alien)``.

    It has to be written in the same way, since many such answers are words as well.
    """
    found = _QUALIFIED.fullmatch(wording.strip())
    if found is None:
        return False
    return re.search(rf"(?<!\w){re.escape(plain(found[1]))}(?!\w)", text) is not None


def names_same_country(wording: str, text: str) -> bool:
    """Whether the answer is a country, its people or its language, and the text has another of
    these words: ``French`` for ``France``."""
    country = COUNTRY.get(" ".join(keys(words(wording))))
    return country is not None and country in _countries(text)


@lru_cache(maxsize=256)
def _countries(text: str) -> frozenset[str]:
    return frozenset(_found_countries(text))


def _found_countries(text: str) -> Iterator[str]:
    run = words(text)
    for start, word in enumerate(run):
        if word.key in _SURNAMES or (word.key in _OTHER_MEANINGS and not word.is_capital):
            continue
        for end in range(start + 1, min(start + 4, len(run)) + 1):
            country = COUNTRY.get(" ".join(keys(run[start:end])))
            if country is not None:
                yield country


def _word_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Where the letters and digits around a place in a text begin and end."""
    while start > 0 and is_word_character(text[start - 1]):
        start -= 1
    while end < len(text) and is_word_character(text[end]):
        end += 1
    return start, end

"""Words by which BM25 finds a passage, in every script.

ASCII text is split at what is no letter, figure or underscore. Elsewhere case and accents are
folded as the judge folds them (``İstanbul``, ``Dvořák``), and marks stay with their letters.
Scripts that put no spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, also Korean)
are cut into pairs of neighbouring characters, as by Lucene's CJK analyser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

from ssp_env.wording.normal import UNSPACED, marks, plain

VERSION: Final = 2
"""Changes when a text gets other words: an index on disk is tied to it."""

_WORD = re.compile(r"\w+")
_FOREIGN = re.compile(r"((?<!\S)(?:(?!\s)[\x00-\x7f])*+[^\s\x00-\x7f]\S*)")
"""What stands between two spaces and is not all ASCII."""
_OKINA = re.compile(
    "(?<![\\w\u0300-\u036f])[\\w\u0300-\u036f]*[\u02b9\u02bb\u02bc\u02bd][\\w\u0300-\u036f]*"
)
"""A word with a letter that people write as an apostrophe, or leave out."""
_LEFT_OUT = dict.fromkeys(map(ord, "\u02b9\u02bb\u02bc\u02bd"))
_SHORT = 64
"""Characters of a piece of text that is kept in mind with its words."""

Run = tuple[tuple[str, ...], tuple[str, ...]]
"""The characters of a run of letters, if its script has no spaces, and its words or pairs."""


def tokenize(text: str) -> list[str]:
    """The words of a passage; of a script without spaces, its characters and their pairs.

    No stop word is removed, as that gains nothing but speed, and nothing is stemmed.

    >>> tokenize("Dvořák's home"), tokenize("奥地利 1918")
    (['dvorak', 's', 'home'], ['奥', '地', '利', '奥地', '地利', '1918'])
    """
    if text.isascii():
        return _WORD.findall(text.lower())
    return [word for characters, words in _runs(text) for word in (*characters, *words)]


def query_words(text: str) -> list[str]:
    """The words that a query looks for, each once: of a script without spaces, the pairs alone, or
    a character that has no neighbour.

    >>> query_words("to be or not to be"), query_words("奥地利"), query_words("月")
    (['to', 'be', 'or', 'not'], ['奥地', '地利'], ['月'])
    """
    if text.isascii():
        return list(dict.fromkeys(_WORD.findall(text.lower())))
    return list(dict.fromkeys(w for characters, words in _runs(text) for w in words or characters))


def _runs(text: str) -> Iterator[Run]:
    # Between two pieces that are not, all is ASCII.
    for number, piece in enumerate(_FOREIGN.split(text)):
        if number % 2 == 0:
            yield (), tuple(_WORD.findall(piece.lower()))
        else:
            yield from _kept(piece) if len(piece) <= _SHORT else _folded(piece)


def _folded(piece: str) -> tuple[Run, ...]:
    run, character = _patterns()
    runs: list[Run] = []
    for match in run.finditer(plain(piece).casefold()):
        if match[1] is None:
            runs.append(((), (match[0],)))
        else:
            characters = tuple(character.findall(match[1]))
            runs.append((characters, tuple(one + other for one, other in pairwise(characters))))
    # Also without these letters, as most people type the word.
    joined = tuple(plain(word.translate(_LEFT_OUT)).casefold() for word in _OKINA.findall(piece))
    return (*runs, ((), joined))


_kept = lru_cache(2**14)(_folded)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A run of letters, with a group where its script has no spaces; and a character of one."""
    # Combining marks belong to the character before them, in Thai and Hindi as in Latin.
    character = rf"(?=\w){UNSPACED}[{marks()}]*"
    letter = rf"(?!{UNSPACED})[\w{marks()}]"
    return re.compile(rf"((?:{character})+)|(?=\w)(?:{letter})+"), re.compile(character)

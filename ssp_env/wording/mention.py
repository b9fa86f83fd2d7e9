"""Whether a text gives an answer away: the paper's rule against spoilers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from ssp_env.wording.disguise import (
    SQUEEZED,
    is_glued,
    is_glued_name,
    is_reordered,
    is_unqualified,
    names_same_country,
    squeezed,
    unmarked,
)
from ssp_env.wording.lookalikes import readings, spelled_out
from ssp_env.wording.unicode import fold, is_unspaced, is_word_character, plain

_ARTICLES = frozenset({"a", "an", "the"})

# A lone one of these is an answer ("The Who", "It", "US", "May") only where it is written like the
# answer.
_FUNCTION_WORD_LIST = """
    a an the this that these those some any all no none one other such i me my we us our you
    your he him his she her hers it its they them their who whom whose what which when where why
    how be am is are was were been being do does did done have has had having will would shall
    should can could may might must and or nor but if then than so as at by for from in into of
    off on onto out over to under up upon with about after before between during not now here
    there yes too very just only also each every both
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_WORD_LIST.split())

_DROPPED = "\0"
"""The gap where an article was taken out: words on its two sides never make up one word."""

_INSIDE_NUMBER = re.compile(r"(?<=\d)(?:\.(?=\d)|,(?=\d{3}(?!\d)))")
"""A decimal point or a thousands comma."""

_SPACED_OUT = 4
"""Letters that an answer needs for being recognised with all its letters apart."""

_COMPACT = re.compile(
    r"[*_]+|[-\u2010][^\S\n]*\n\s*|[^\w\s\0,;:?!=<>+()\[\]{}\"\u2026‘’“”«»\u2014、。]"
)
"""What people put inside a word: a single sign (hyphen, dot, apostrophe, ...), emphasis, a break at
a line's end."""


@dataclass(frozen=True, slots=True)
class _Word:
    cased: str
    folded: str
    gap: str
    """What stands between it and the word before."""


def mentions(text: str, wordings: Iterable[str]) -> str | None:
    """The first wording that a reader of the text would see in it, or ``None``.

    That is a run of whole words first of all.

    Case, accents, articles and punctuation do not count. Nor does how an answer is cut into words,
    within reason: hyphen, space or nothing (``"Jean-Paul"``, ``"JeanPaul"``, ``"Spider Man"`` for
    ``"Spiderman"``), dots (``"U.S.S.R."``), grouped digits (``"1,000"``) and, from four letters on,
    single letters (``"P a r i s"``). In scripts without spaces between words a wording counts
    wherever it stands. A wording that is one function word, such as ``"It"`` or ``"US"``, has to be
    spelled with the same capitals. Letters that look like others stand for them (see
    :mod:`ssp_env.wording.lookalikes`), and an answer may be glued to other letters, split by signs,
    written in HTML or in another order, have an initial more or less, lack what stands in brackets
    behind it, or be a country that the text names by its people (see
    :mod:`ssp_env.wording.disguise`). A blank wording never occurs."""
    wordings = list(wordings)
    texts = _texts(text, wordings)

    for wording in wordings:
        for spelling in {wording: None, spelled_out(wording): None}:
            if any(_is_in(spelling, read) for read in texts):
                return wording
        if names_same_country(wording, text):
            return wording
    return None


def _texts(text: str, wordings: Sequence[str]) -> list[_Text]:
    """All that the text can be read as; every wording is sought in each."""
    shown = unmarked(text)
    whole = {reading: 0 for raw in (text, shown) for reading in readings(raw, wordings)}
    joined = dict.fromkeys(readings(squeezed(shown), wordings), SQUEEZED)
    return [_Text(reading, least) for reading, least in (joined | whole).items()]


class _Text:
    """A reading of the text, cut into words once for all wordings."""

    def __init__(self, text: str, least: int) -> None:
        self.text, self.words = text, _words(text)
        self.folded = text.casefold()
        self.least = least
        """Letters that a wording needs for being sought in it."""
        self.fewer = _without_articles(self.words)
        self.names = _without_initials(self.fewer)


def _is_in(wording: str, read: _Text) -> bool:
    target, target_fewer, target_name = _target(wording)
    letters = "".join(word.folded for word in target)
    if len(letters) < read.least:
        return False
    if not target:
        return _occurs_as_symbols(wording, read.text)

    if any(is_unspaced(c) for word in target for c in word.folded) and _occurs_inside(
        target, read.text
    ):
        return True

    if _occurs(target, read.words) or _occurs(target_fewer, read.fewer):
        return True

    # An initial more or less: on one side only, or two people would be one.
    if len(target_name) > 1 and (
        _occurs(target_fewer, read.names) or _occurs(target_name, read.fewer)
    ):
        return True

    # Looked for first in all letters, which is quick.
    glued = letters in read.folded and is_glued(letters, len(target) > 1, read.text)
    return (
        glued
        or is_glued_name([word.cased for word in target], read.text)
        or is_unqualified(wording, read.text)
        or is_reordered(
            [(word.cased, word.folded) for word in target_fewer],
            [(word.cased, word.folded, word.gap) for word in read.fewer],
        )
    )


@lru_cache(maxsize=4096)
def _target(wording: str) -> tuple[tuple[_Word, ...], tuple[_Word, ...], tuple[_Word, ...]]:
    """Its words; those without articles; of these, those that are no initials."""
    words = _words(wording)
    fewer = _without_articles(words)
    return tuple(words), tuple(fewer), tuple(_without_initials(fewer))


def _words(text: str) -> list[_Word]:
    """Cuts at everything but letters, digits and marks.

    A number keeps its decimal point and loses its commas.
    """
    text = plain(text)

    words: list[_Word] = []
    at = end = 0  # ``end`` is where the word before ends
    while at < len(text):
        if not is_word_character(text[at]):
            at += 1
            continue

        gap, start, at = text[end:at], at, _word_end(text, at)

        cased = text[start:at].replace(",", "")
        words.append(_Word(cased, cased.casefold(), gap))
        end = at
    return words


def _word_end(text: str, start: int) -> int:
    """Where the word that starts here ends.

    A change to a script without spaces between words, or back, ends it as well.
    """
    unspaced = is_unspaced(text[start])
    for at in range(start + 1, len(text)):
        inside = is_word_character(text[at]) and is_unspaced(text[at]) == unspaced
        if not inside and not _INSIDE_NUMBER.match(text, at):
            return at
    return len(text)


def _without_articles(words: Sequence[_Word]) -> list[_Word]:
    """All words but articles; a last word stays, since it may be a letter (``"Serie A"``)."""
    kept: list[_Word] = []
    dropped = False
    for word in words[:-1]:
        if word.folded not in _ARTICLES:
            kept.append(_Word(word.cased, word.folded, _DROPPED) if dropped else word)
        dropped = word.folded in _ARTICLES

    for word in words[-1:]:
        kept.append(_Word(word.cased, word.folded, _DROPPED) if dropped else word)
    return kept


def _without_initials(words: Sequence[_Word]) -> list[_Word]:
    """All words but a capital alone between two words that are written like names."""
    kept: list[_Word] = []
    for at, word in enumerate(words):
        beside = [*words[max(0, at - 1) : at], *words[at + 1 : at + 2]]
        initial = len(word.folded) == 1 and word.cased.isupper() and len(beside) == 2
        if not (initial and all(other.cased[0].isupper() for other in beside)):
            kept.append(word)
    return kept


def _occurs(target: Sequence[_Word], words: Sequence[_Word]) -> bool:
    letters = "".join(word.folded for word in target)
    for start in range(len(words)):
        at, end = 0, start

        while at < len(letters) and end < len(words) and letters.startswith(words[end].folded, at):
            at += len(words[end].folded)
            end += 1

        if at == len(letters) and _reads_as(words[start:end], target, letters, first=start == 0):
            return True
    return False


def _reads_as(run: Sequence[_Word], target: Sequence[_Word], letters: str, first: bool) -> bool:
    """Whether a run with the target's letters is the target, although cut into other words."""
    if len(letters) >= _SPACED_OUT and all(len(word.folded) == 1 for word in run):
        return True

    # "It" is an answer only where it is written like a name.
    if len(run) == 1 and letters in _FUNCTION_WORDS:
        return _same_capitals(run[0], target, first)

    run_cuts = list(accumulate(len(word.folded) for word in run))
    target_cuts = set(accumulate(len(word.folded) for word in target))
    for cut, left, right in zip(run_cuts, run, run[1:], strict=False):
        if cut not in target_cuts and not _may_split(left, right):
            return False

    # "1 2" is not "12": a cut between two digits of the answer has to be there in the text too.
    closed = target_cuts.difference(run_cuts)
    return not any(letters[cut - 1].isdecimal() and letters[cut].isdecimal() for cut in closed)


def _same_capitals(word: _Word, target: Sequence[_Word], first: bool) -> bool:
    begins_sentence = (first or re.search(r"[.!?:]", word.gap) is not None) and not re.search(
        "[\"'“”«»]", word.gap
    )
    if begins_sentence and word.cased == word.cased.capitalize():
        return False
    return word.cased == "".join(part.cased for part in target)


def _may_split(left: _Word, right: _Word) -> bool:
    """Whether two words of a text can stand for one word of an answer."""
    gap, a, b = right.gap, left.folded, right.folded
    if a[-1].isdecimal() and b[0].isdecimal():
        return gap in (" ", "'") and a.isdecimal() and b.isdecimal() and len(a) <= 3 and len(b) == 3

    if _COMPACT.fullmatch(gap) or (gap == ". " and len(a) == len(b) == 1):
        return True

    if not gap.isspace() or a in _FUNCTION_WORDS or b in _FUNCTION_WORDS:
        return False

    if a.isdecimal() or b.isdecimal():
        return len(a if b.isdecimal() else b) >= 2
    if len(a) >= 3 and len(b) >= 3:
        return True

    # "Pa ris" goes on in small letters, which no two words of a text do by chance.
    name = left.cased[0].isupper() and right.cased.islower()
    return name and min(len(a), len(b)) >= 2 and len(a) + len(b) >= SQUEEZED


def _occurs_inside(target: Sequence[_Word], text: str) -> bool:
    """Substring search, for scripts without spaces between words.

    A word has to begin or end there only if the wording does so with a Latin letter or digit.
    """
    body = r"[\W_]*".join(re.escape(word.folded) for word in target)
    letters = "".join(word.folded for word in target)
    if len(letters) >= _SPACED_OUT:
        body = f"(?:{body}|" + r"[\W_]+".join(map(re.escape, letters)) + ")"

    before = r"(?<![a-z\d])" if target[0].folded[0].isascii() else ""
    after = r"(?![a-z\d])" if target[-1].folded[-1].isascii() else ""
    return re.search(before + body + after, plain(text).casefold()) is not None


def _occurs_as_symbols(wording: str, text: str) -> bool:
    """For a wording without letters or digits, such as ``"!!!"``: it has to stand alone."""
    symbols = " ".join(fold(wording).split())
    if not symbols:
        return False

    alone = r"(?:^|(?<=[\s\"'(]))" + re.escape(symbols) + r"(?=$|[\s\"').,;:?])"
    return re.search(alone, " ".join(fold(text).split())) is not None

"""A text as words that compare: case, accents, spelling and number words are folded away.

Signs that carry meaning stay with their word (``C++``, ``C#``, ``.NET``, ``O-``, ``-5``, ``3.5``);
signs that only decorate one go (``M*A*S*H``, ``AC/DC``, ``P!nk``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ssp_env.wording.lookalikes import spelled_out
from ssp_env.wording.numbers import fold_numbers
from ssp_env.wording.signs import settle_signs
from ssp_env.wording.unicode import plain


class Word(NamedTuple):
    """A word of a text."""

    key: str
    """What is compared."""
    cased: str
    """How it is written, without accents; empty where several words were folded into one."""
    gap: str
    """Punctuation between it and the word before, without spaces."""

    @property
    def is_capital(self) -> bool:
        """Whether it is written like a name."""
        return self.cased[:1].isupper()


_WORD = re.compile(
    r"(?:utc|gmt)[+-]\d+(?:z\d+)?"  # an offset from Greenwich
    r"|(?:(?<![\w)])[-+])?\d+(?:,\d{3})+(?:\.\d+)?(?![\d,])"  # 1,000,000.5
    r"|(?:(?<![\w)])[-+])?\d*[.:/]?\d+(?:[.:/]\d+)*(?:st|nd|rd|th|s)?(?![^\W_])"  # 3.5, 2:30, 1/3
    r"|(?:(?<!\S)\.(?=[^\W\d_]))?[^\W_]+(?:[+#]+|-(?=$|[\s,.)]))?",  # .NET, C++, A-, words
    re.IGNORECASE,
)

_SAME_WORDS = (
    "pere sr, fils jr, goalie goalkeeper, poliomyelitis polio, cook chef, autumn fall, "
    "saint st, mt mount, doctor dr, mister mr, missus mrs, greys grays, utd united, junior jr, "
    "senior sr, professor prof, general gen, captain capt, colonel col, lieutenant lt, sergeant "
    "sgt, senator sen, governor gov, reverend rev, admiral adm, limited ltd, corporation corp, "
    "incorporated inc, company co, brothers bros, versus vs, grey gray, pct percent, volume "
    "vol, kilo kilogram, kilos kilogram, bce bc, se7en 7, ww1 wwi, ww2 wwii, metre meter, "
    "metres meters, movie film, movies films, programme program, jewellery jewelry, aluminium "
    "aluminum, tyre tire"
)
_SAME: dict[str, str] = {
    word: read for word, _, read in (pair.partition(" ") for pair in _SAME_WORDS.split(", "))
}
"""Abbreviations and spellings, each with the word that it is read as."""

_SAME_PHRASES = (
    "united states of america: usa, united states: usa, united kingdom: uk, soviet union: ussr, "
    "nyc: new york city, city of new york: new york city, wwi: world war 1, wwii: world war 2, "
    "1 world war: world war 1, 2 world war: world war 2, s korea: south korea, n korea: north "
    "korea, per cent: percent, washington district of columbia: washington dc, washington d c: "
    "washington dc, jesus christ: jesus, jesus of nazareth: jesus, man united: manchester "
    "united, man city: manchester city, east of: eastern, west of: western, north of: northern, "
    "south of: southern, u s: usa, u k: uk, academy award: oscar, academy awards: oscars, "
    "degrees n: degrees north, degrees s: degrees south, degrees e: degrees east, degrees w: "
    "degrees west, dot net: .net, carbon dioxide: co2, sulfur dioxide: so2, hydrogen peroxide: "
    "h2o2, sodium chloride: nacl, years old: years, years of age: years, football club: fc, mao "
    "tse tung: mao zedong, zhou en lai: zhou enlai, chou en lai: zhou enlai, lao tzu: laozi, lao "
    "tse: laozi, sun tzu: sunzi, sun zi: sunzi, deng xiao ping: deng xiaoping, jiang jieshi: "
    "chiang kai shek, lawn tennis: tennis, ides of march: 15 march, chf: swiss franc, cny: "
    "chinese yuan, cad: canadian dollar, aud: australian dollar, rub: russian ruble, krw: south "
    "korean won"
)
_PHRASES: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {}
"""Runs of words that are written in several ways, by their first word."""
for _found, _, _read in (entry.partition(": ") for entry in _SAME_PHRASES.split(", ")):
    _words = tuple(_found.split())
    _PHRASES.setdefault(_words[0], {})[_words] = tuple(_read.split())

_IRREGULAR = {
    "wolves": "wolf", "leaves": "leaf", "knives": "knife", "wives": "wife", "calves": "calf",
    "lives": "life", "loaves": "loaf", "thieves": "thief", "men": "man", "women": "woman",
    "children": "child", "feet": "foot", "teeth": "tooth", "mice": "mouse", "geese": "goose",
    "oxen": "ox", "series": "series", "species": "species",
}  # fmt: skip
_ARTICLES = frozenset({"the", "a", "an"})
_ROMAN_NUMBERS = {
    ten + one: str(10 * tens + ones)
    for tens, ten in enumerate(("", "x", "xx", "xxx", "xl"))
    for ones, one in enumerate(("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"))
    if ten + one
}


@lru_cache(maxsize=16384)
def words(text: str) -> tuple[Word, ...]:
    """The words of a text, without articles; an article that is the last or only word stays."""
    return _compared(_cut(plain(text)))


@lru_cache(maxsize=16384)
def spelled_words(text: str) -> tuple[Word, ...]:
    """:func:`words` of a text with umlauts spelled out: ``Mueller`` for ``Müller``."""
    return words(text) if text.isascii() else words(spelled_out(text))


def keys(run: Sequence[Word]) -> tuple[str, ...]:
    """What is compared of each word."""
    return tuple([word[0] for word in run])


def compact(run: Sequence[str]) -> str:
    """The words of a run as one, since people cut words differently; digits never run together."""
    joined = "".join(run)
    if joined.isalpha():
        return joined
    joined = ""
    for key in run:
        joined += " " + key if joined[-1:].isdigit() and key[:1].isdigit() else key
    return joined


def stem(key: str) -> str:
    """A word without the ending of its plural."""
    if key in _IRREGULAR:
        return _IRREGULAR[key]
    if len(key) < 4 or not key.endswith("s") or key.endswith(("ss", "us", "is")):
        return key
    if key.endswith("ies") and len(key) > 4:
        return key[:-3] + "y"
    if key.endswith(("ches", "shes", "xes", "sses")):
        return key[:-2]
    return key[:-1]


def _cut(text: str) -> list[Word]:
    text = settle_signs(text)
    cut: list[Word] = []
    end = 0
    for match in _WORD.finditer(text):
        cased = match[0]
        gap = text[end : match.start()].replace(" ", "")
        cut.append(Word(_key(cased.casefold()), cased, gap))
        end = match.end()
    return cut


def _key(word: str) -> str:
    if word[0] in "+-0123456789":
        return word
    word = _SAME.get(word, word)
    if word.endswith(_SLAVIC) and len(word) > 5:
        return _SLAVIC_END.sub("ky", word).replace("ye", "e")
    if word in _ROMAN_NUMBERS:
        return _ROMAN_NUMBERS[word]
    return _BRITISH.sub(_american, word) if len(word) > 5 else word


# Slavic surnames as they are transcribed: Zelenskyy, Zelenskiy, Zelenski; Dostoyevsky.
_SLAVIC = ("skyy", "skiy", "skii", "skij", "sky", "ski", "ckyj", "tskyi", "skyi")
_SLAVIC_END = re.compile(r"k(?:yy|iy|ii|ij|y|i|yj|yi)$")

# British and American spelling; the few other words that change, change on both sides.
_BRITISH = re.compile(
    r"(?:(our)|(tre)|(is)(?=e|ing|ation)|(ell)(?=ed|ing|er|or)|(ett)(?=or|er))"
    r"(?P<end>s|ed|es|ing|ite|ites|ation|ations|er|ers|or|ors|e)?$"
)


def _american(found: re.Match[str]) -> str:
    ours, tres, _, ells, _ = found.groups()[:5]
    read = "or" if ours else "ter" if tres else "el" if ells else "iz" if found[3] else "et"
    return read + (found["end"] or "")


def _compared(cut: list[Word]) -> tuple[Word, ...]:
    kept: list[Word] = []
    gap = ""
    cut = _with_signs(cut)
    if all(word.key in _ARTICLES for word in cut):
        return tuple(cut)
    for at, word in enumerate(cut):
        # "Serie A" and "Vitamin A" end with a letter, not an article; "a third" is a number.
        before_number = at + 1 < len(cut) and cut[at + 1].key in _COUNTED
        if word.key in _ARTICLES and at + 1 < len(cut) and not before_number:
            gap += word.gap
            continue
        kept.append(Word(word.key, word.cased, gap + word.gap) if gap else word)
        gap = ""
    return tuple(_fold_phrases(_fold_number_words(kept)))


_SIGN_WORDS = {"plus": "+", "minus": "-", "positive": "+", "negative": "-"}
_BLOOD = frozenset({"a", "b", "ab", "o"})


def _with_signs(cut: list[Word]) -> list[Word]:
    """``A plus``, ``O positive``, ``C plus plus``: signs in words at the end."""
    at = len(cut)
    while at > 1 and cut[at - 1].key in _SIGN_WORDS:
        at -= 1
    if at in (0, len(cut)):
        return cut

    word, signs = cut[at - 1], keys(cut[at:])
    if not {"positive", "negative"}.isdisjoint(signs) and word.key not in _BLOOD:
        return cut
    signed = word.key + "".join(_SIGN_WORDS[sign] for sign in signs)
    return [*cut[: at - 1], Word(signed, word.cased, word.gap)]


_COUNTED = frozenset(
    {"third", "quarter", "half", "dozen", "hundred", "thousand", "million", "billion"}
)


def _fold_number_words(run: list[Word]) -> list[Word]:
    folded = fold_numbers([word.key for word in run])
    if folded is None:
        return run
    return [
        Word(key, run[start].cased if stop == start + 1 else "", run[start].gap)
        for key, start, stop in folded
    ]


def _fold_phrases(run: list[Word]) -> list[Word]:
    if not any(word.key in _PHRASES or word.cased == "US" for word in run):
        return run
    folded: list[Word] = []
    at = 0
    while at < len(run):
        word = run[at]
        if word.cased == "US":  # in capitals, or it is the pronoun
            folded.append(Word("usa", "US", word.gap))
            at += 1
            continue
        for found, read in _PHRASES.get(word.key, {}).items():
            if tuple(w.key for w in run[at : at + len(found)]) == found:
                folded += [Word(key, key.upper(), word.gap if not i else "")
                           for i, key in enumerate(read)]  # fmt: skip
                at += len(found)
                break
        else:
            folded.append(word)
            at += 1
    return folded

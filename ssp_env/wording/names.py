"""People's names: initials, middle names, nicknames, titles, numbers and suffixes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ssp_env.wording.nicknames import FIRST_NAMES, FULL, RULERS
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, compact, words

_MALE = vocabulary("mr sir king prince duke lord emperor baron count viscount earl")
_FEMALE = vocabulary("mrs ms miss dame queen princess duchess lady empress baroness countess")
_OFFICES = vocabulary(
    "mr mrs ms miss dr prof gen capt col lt sgt sen gov rev adm admiral president vice former "
    "prime minister pope "
    "st chief justice judge general major marshal field cardinal archbishop bishop father sister "
    "brother mother sultan tsar czar kaiser shah caliph emir imam rabbi sheikh saint master madame "
    "monsieur don commander commodore secretary ambassador mayor coach detective inspector officer "
    "agent chairman private corporal pharaoh first lady ex late crown hon honorable"
)
TITLES = _MALE | _FEMALE | _OFFICES
"""Words before a name that are no part of it."""
REGNAL = vocabulary("king queen pope emperor empress tsar czar kaiser sultan pharaoh")
NOBILITY = vocabulary(
    "duke duchess earl countess count viscount viscountess baron baroness marquess marquis "
    "marchioness lord lady prince princess"
)
PARTICLES = vocabulary("da de del della di do dos du la le van von der den ter bin ibn al el y")
_DEGREES = vocabulary(
    "phd md obe mbe cbe kbe esq qc mp dds jd ac ao oam om ch kcb kcmg gbe kg gcb dbe cb cmg frs "
    "frse usn vc dso dfc bt msp cvo kcvo gcmg sj osb msc bsc"
)
_SUFFIX = re.compile(r"jr|sr|\d{1,2}")
_QUOTED = re.compile(r"[\"“”]([^\"“”]+)[\"“”]|(?<=\s)'([^']+)'(?=\s)|\(([^()]+)\)")

_INITIALS = re.compile(r"\b(?:[A-Z]\.){2,4}(?=\s?[A-Z])|^[A-Z]{2,3}(?= [A-Z][a-z])")

_APART = frozenset(";|/+")
"""Signs between names, never in one."""
_NOT_PEOPLE = vocabulary(
    "university college school institute academy group band co inc ltd corp bay river lake mount "
    "island city county town street avenue road bridge park station airport stadium hall church "
    "museum company party league club team united empire republic kingdom north south east west "
    "new war battle treaty act award prize cup series film song album show and in for with to on "
    "not no or nor but is was are were by from as he she it they either neither near born who "
    "after before except hardly almost unlike opposite some others possibly never wrong until "
    "world national international association union society bank department ocean sea press"
)
_COMMON_SURNAMES = vocabulary("smith johnson williams jones brown davis miller wilson")
"""So common that the surname alone names nobody."""

_STAGE_NAMES = vocabulary("pink prince queen king cream heart lady duke moby sting")
"""Words that are a name alone, and begin other names."""
_MONONYMS = _STAGE_NAMES | vocabulary(
    "bono cher madonna seal usher drake adele shakira beyonce lorde enya bjork slash flea banksy "
    "plato homer voltaire raphael michelangelo rembrandt pele pliny virgil ovid"
)
"""Names that are whole as they stand: no surname of somebody else."""
_SURNAME_FIRST = vocabulary(
    "mao deng xi hu jiang zhou chiang ho sun zhang liu chen yang nguyen tran pham vo zhao wu ban"
)
"""Surnames of people whose surname comes first."""

_NOBODY: frozenset[str] = frozenset()

_NAMESAKES = frozenset(
    frozenset(pair)
    for pair in (
        ("john adams", "john quincy adams"), ("michael jordan", "michael b jordan"),
        ("martin luther", "martin luther king"), ("john kennedy", "john f kennedy jr"),
        ("david george", "david lloyd george"), ("vanessa williams", "vanessa l williams"),
    )
)  # fmt: skip
"""People whom only a middle name tells apart."""


@dataclass(frozen=True, slots=True)
class Person:
    """A name, taken apart."""

    given: tuple[str, ...]
    """First and middle names or initials, in order."""
    surname: str
    """The last word of the name proper; of a ruler, the only one."""
    titles: frozenset[str]
    nicknames: frozenset[str]
    suffix: str
    """``jr``, ``sr``, a number, or nothing."""
    of: str
    """Where they are from ("of Aragon"), or nothing."""
    style: tuple[str, ...]
    """What stands behind a comma ("1st Viscount Peel")."""
    by_town: bool = False
    """Whether the surname says where they come from ("da Vinci")."""
    inverted: bool = False
    """Whether the surname came first, before a comma."""


@lru_cache(maxsize=16384)
def person(text: str) -> Person | None:
    """Reads a text as one person's name; ``None`` where it cannot be one."""
    quoted = (found[1] or found[2] or found[3] for found in _QUOTED.finditer(text))
    nicknames = {words(name)[0].key for name in quoted if len(words(name)) == 1}
    bare = _QUOTED.sub(" ", text) if nicknames or "(" in text else text
    cut = list(words(_INITIALS.sub(_apart, bare)))
    if not 1 <= len(cut) <= 9 or any(_APART & set(word.gap) for word in cut) or _are_two(cut):
        return None
    run, style = _without_style(cut)
    # "Jack Ruby killed Lee Oswald" is no name.
    if all(word.is_capital for word in run[:2]) and any(map(_is_plain, run[2:])):
        return None
    # "P. I. Tchaikovsky": an initial, not a number.
    last = len(run) - 1
    keys = [
        word.cased.lower()
        if at < last and word.cased in ("I", "V", "X") and "." in run[at + 1].gap
        else word.key
        for at, word in enumerate(run)
    ]
    if any(key in _NOT_PEOPLE or not key.isalnum() for key in keys):
        return None

    titles: set[str] = set()
    while len(keys) > 1 and keys[0] in TITLES and not _SUFFIX.fullmatch(keys[1]):
        titles.add(keys.pop(0))
    of = ""
    if "of" in keys[1:]:
        at = keys.index("of", 1)
        keys, of = keys[:at], " ".join(keys[at + 1 :])
    while len(keys) > 1 and keys[-1] in _DEGREES:
        keys.pop()
    suffix = keys.pop() if len(keys) > 1 and _SUFFIX.fullmatch(keys[-1]) else ""
    proper = [key for key in keys if key not in PARTICLES] or keys
    if (
        not proper
        or any(key[0].isdigit() for key in proper)
        or all(key in TITLES for key in proper)
    ):
        return None
    return Person(
        tuple(proper[:-1]),
        proper[-1],
        frozenset(titles),
        frozenset(nicknames),
        suffix,
        of,
        style,
        by_town=len(keys) == 3 and keys[1] == "da",
        inverted=run[0] is not cut[0],
    )


def _is_plain(word: Word) -> bool:
    """Whether a word is written small, as none of a name is."""
    small = word.cased.islower() and len(word.key) > 2
    return small and word.key not in PARTICLES | TITLES | _DEGREES and word.key != "the"


def _apart(found: re.Match[str]) -> str:
    """Initials with a space between them: ``J.R.R.``, ``JRR``."""
    return ". ".join(found[0].replace(".", "")) + "."


def _are_two(run: Sequence[Word]) -> bool:
    """``Bob Dylan, Joan Baez``."""
    behind = next((at for at, word in enumerate(run) if at and "," in word.gap), 0)
    if behind < 2 or run[0].key not in FIRST_NAMES:
        return False
    tail = run[behind:]
    full = len(tail) > 1 and all(word.is_capital for word in tail)
    full = full and tail[0].key not in PARTICLES | TITLES | NOBILITY
    return full or tail[0].key in FIRST_NAMES


def _without_style(run: list[Word]) -> tuple[list[Word], tuple[str, ...]]:
    """Splits at a comma: ``Smith, George`` is turned round, what else follows one is a style."""
    commas = [at for at, word in enumerate(run) if at and "," in word.gap]
    if not commas:
        return run, ()
    at = commas[0]
    tail = [word.key for word in run[at:]]
    if all(_SUFFIX.fullmatch(key) or key in _DEGREES for key in tail):
        return run, ()
    inverted = len(commas) == 1 and at <= 2 and not any(
        key in TITLES or key[0].isdigit() or key == "of" for key in tail
    )  # fmt: skip
    if inverted and all(word.is_capital for word in run[at:]):
        return run[at:] + run[:at], ()
    return run[:at], tuple(tail)


def same_person(gold: Person, given: Person, *, surname_will_do: bool) -> bool:
    """Whether two names are one person's.

    Args:
        gold: the right name.
        given: the one to judge.
        surname_will_do: whether the question makes clear that a bare surname is meant for a person.
    """
    # "Leonardo" for "Leonardo da Vinci", who comes from there.
    if gold.given and not given.given and gold.by_town and gold.given == (given.surname,):
        return surname_will_do and not given.suffix
    # "Chairman Mao" for "Mao Zedong".
    if gold.given and not given.given and gold.given[0] == given.surname:
        first = gold.given[0] in _SURNAME_FIRST and not given.suffix
        return first and (surname_will_do or bool(given.titles))
    mononym = not gold.given and given.given[:1] == (gold.surname,)
    if not gold.given and given.given and _may_be_two(given):
        return False
    if _has_second_surname(gold, given):
        return True
    if not (mononym or _same_surname(gold, given)) or not _same_standing(gold, given):
        return False
    spelled = frozenset((_spelled(gold), _spelled(given)))
    if spelled in _NAMESAKES:
        return False
    if not gold.given and not given.given:
        if gold.of and not given.of and not given.suffix:
            return False
        known = gold.suffix or gold.titles & given.titles or gold.of
        return bool(known) or not given.of
    if not gold.given and not gold.suffix and not gold.of and given.given[0] == gold.surname:
        return (
            surname_will_do and gold.surname not in _STAGE_NAMES
        )  # "Beyoncé Knowles" for "Beyoncé"

    # A surname alone, with a title or where the question asks for a person.
    if not gold.given or not given.given:
        bare, full = (gold, given) if not gold.given else (given, gold)
        if bare.suffix or (bare.of and not full.of):
            return False
        if bare is gold:
            return bool(bare.titles & _OFFICES - REGNAL) and surname_will_do
        return bool(bare.titles) or (surname_will_do and bare.surname not in _COMMON_SURNAMES)
    return _same_given(gold, given)


def names_in_full(gold: str, given: str, *, suffix: bool = False) -> bool:
    """Whether the right name is a bare surname, and the given one a full name with it.

    Args:
        gold: the right name.
        given: the one to judge.
        suffix: whether it may be numbered, or ``Jr.``.
    """
    bare, full = person(gold), person(given)
    if bare is None or full is None or bare.given or bare.titles or bare.suffix or bare.of:
        return False
    named = bare.surname == full.surname and bare.surname not in _MONONYMS
    return named and bool(full.given) and (suffix or not full.suffix) and not _may_be_two(full)


def _has_second_surname(gold: Person, given: Person) -> bool:
    """``Fidel Alejandro Castro Ruz`` for ``Fidel Castro``."""
    named = len(gold.given) == 1 and len(given.given) == 3 and gold.suffix == given.suffix
    return named and (gold.given[0], gold.surname) == (given.given[0], given.given[2])


def _may_be_two(name: Person) -> bool:
    """``Omar, Nadia`` may be a list: only a known first name is surely one behind a comma."""
    first = name.given[:1]
    known = bool(first) and (len(first[0]) == 1 or first[0] in FIRST_NAMES)
    return name.inverted and not (known and name.surname not in FIRST_NAMES)


def _spelled(one: Person) -> str:
    return " ".join((*one.given, one.surname, *([one.suffix] if one.suffix == "jr" else [])))


_HEARD = (
    ("tsch", "ch"), ("shch", "sch"), ("tch", "ch"), ("kh", "h"), ("ph", "f"), ("ck", "k"),
    ("tz", "ts"), ("owsk", "ovsk"), ("ei", "ie"), ("aj", "ai"), ("ay", "ai"), ("ey", "ei"),
    ("yi", "i"), ("iy", "i"), ("ij", "i"), ("ye", "e"), ("oy", "oi"), ("ou", "u"), ("oo", "u"),
)  # fmt: skip


_SLAVIC_END = re.compile(r"(?:e|o|yo)(?:v|w|f|ff)$")


def _heard(name: str) -> str:
    """A long name as it sounds, in whatever way it is transcribed; a short one as it is."""
    if len(name) < 6:
        return name
    for written, read in _HEARD:
        name = name.replace(written, read)
    name = _SLAVIC_END.sub("ov", name)
    return re.sub(r"(.)\1", r"\1", name)


def _same_surname(gold: Person, given: Person) -> bool:
    if gold.surname == given.surname:
        return True
    if gold.given and given.given and _heard(gold.surname) == _heard(given.surname):
        return True
    if not gold.given and not given.given:
        crowned = [RULERS.get(one.surname, _NOBODY) for one in (gold, given)]
        if _same_name(gold.surname, given.surname) or crowned[0] & crowned[1]:
            return True
    return compact((*gold.given, gold.surname)) == compact((*given.given, given.surname))


def _same_standing(gold: Person, given: Person) -> bool:
    """Whether titles, numbers, suffixes and places do not contradict each other."""
    for mine, other in ((gold, given), (given, gold)):
        if mine.titles & _MALE and other.titles & _FEMALE:
            return False
    if gold.of and given.of and gold.of != given.of:
        return False
    digits = [{key for key in one.style if key[0].isdigit()} for one in (gold, given)]
    if all(digits) and digits[0] != digits[1]:
        return False
    if gold.suffix == given.suffix:
        return True
    if gold.suffix and given.suffix:
        return False

    # The father goes without "Sr." more often than with it. A son without "Jr." is still named; a
    # "Jr." or a number that the right name lacks makes it somebody else. A ruler is their number.
    if (gold.suffix or given.suffix) == "sr":
        return True
    if given.suffix:
        return given.suffix == "jr" and (gold.given, gold.surname) == (("martin", "luther"), "king")
    return bool(gold.given) and not (gold.titles | given.titles) & REGNAL


def _same_given(gold: Person, given: Person) -> bool:
    """Whether first and middle names agree: the shorter list is found in the longer, in order.

    An initial stands for the name in its place and skips none; a nickname for the name it comes
    from, or for all of them where the name quotes it.
    """
    mine, other = gold.given, given.given
    for one, names in ((gold, other), (given, mine)):
        if len(names) == 1 and names[0] in one.nicknames:
            return True
    if compact(mine) == compact(other):
        return True
    short, long = (mine, other) if len(mine) <= len(other) else (other, mine)
    quoted = gold.nicknames | given.nicknames
    short = tuple(name for at, name in enumerate(short) if at == 0 or name not in quoted)

    at = 0
    for place, name in enumerate(short):
        while at < len(long) and not _same_name(name, long[at]):
            # Only a full name may skip another: "Hector" in "Louis Hector", not "W" in "H W".
            if len(name) == 1 or (place == 0 and len(long[at]) == 1):
                return False
            at += 1
        if at == len(long):
            return short[place] in quoted and place == 0
        at += 1
    return True


_CALLED = re.compile(r"(?:ie|ey|y)$")
_FEMININE = vocabulary("a e ne le la na ia elle ette ine ina lyn anne ann i o y")


def _is_cut(short: str, long: str) -> bool:
    """``Rafa`` for ``Rafael``, ``Franki`` for ``Frankie``; ``Paul`` is not ``Paula``."""
    if len(short) >= 5 and len(long) >= 5 and _CALLED.sub("i", short) == _CALLED.sub("i", long):
        return True
    cut = 4 <= len(short) < len(long) <= len(short) + 3 and long.startswith(short)
    return cut and long[len(short) :] not in _FEMININE


def _same_name(left: str, right: str) -> bool:
    if left == right:
        return True
    if len(left) == 1 or len(right) == 1:
        return left[0] == right[0]
    if _heard(left) == _heard(right) or _is_cut(left, right) or _is_cut(right, left):
        return True
    return not FULL.get(left, _NOBODY).isdisjoint(FULL.get(right, _NOBODY))

"""Whether two texts that are neither numbers nor dates name the same thing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ssp_env.judge.brackets import brackets_differ, turns_elsewhere, without_brackets
from ssp_env.judge.kinds import same_in_kind
from ssp_env.judge.left_out import may_miss_lead, may_miss_trail
from ssp_env.judge.leftover import (
    at_commas,
    is_organisation,
    is_region,
    may_lead,
    may_trail,
)
from ssp_env.judge.reading import Asked
from ssp_env.judge.titles import alternative_title, styled, titled_in_full
from ssp_env.judge.vocabularies import CORPORATE, FUNCTION, KINDS, LINKING, LITTLE, PEOPLES_KEYS
from ssp_env.wording.dates import WEEKDAYS
from ssp_env.wording.names import TITLES, Person, person, same_person
from ssp_env.wording.nicknames import FIRST_NAMES
from ssp_env.wording.places import CITY, CITY_COUNTRY, COUNTRY, STATE, STATE_COUNTRY
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, compact, keys, stem, words

_TWO_UNIVERSITIES = vocabulary("washington miami york lincoln boston georgia pennsylvania")
_COUNTRY = {
    compact(keys(words(name))): compact(keys(words(same))) for name, same in COUNTRY.items()
}
_COUNTRY_NAMES = frozenset(_COUNTRY.values())
_STATE = {keys(words(name)): keys(words(same)) for name, same in STATE.items()}
_STATE_COUNTRY = {compact(keys(words(name))): country for name, country in STATE_COUNTRY.items()}
_COUNTRIES = _COUNTRY_NAMES - _STATE_COUNTRY.keys()
_CITY = {compact(keys(words(name))): city for name, city in CITY.items()}
_KNOWN_CITY = {
    compact(keys(words(name))): compact(keys(words(country)))
    for name, country in CITY_COUNTRY.items()
}
_NUMBERED = re.compile(r"([A-Z]{2,})(\d+)")
_EVENTS = vocabulary("treaty battle siege peace congress council massacre edict pact revolt")
_PLURAL_NAMES = PEOPLES_KEYS | WEEKDAYS


def same_text(about: Asked, gold: str, given: str) -> bool:
    """Whether a given text names what the right one does; neither is a number or a date."""
    mine, other = words(gold), words(given)
    if _elsewhere_than_known(mine, other) or _is_capital_not_state(about, mine, other):
        return False
    if "(" in gold and "(" in given and brackets_differ(about, gold, given):
        return False
    if _same_words(about, gold, given, mine, other):
        return True
    if _same_place(about, gold, given, mine, other):
        return True
    # "Parkinson disease" for "Parkinson's disease".
    if ("'s " in gold or "'s " in given) and _same_keys(
        words(gold.replace("'s ", " ")), words(given.replace("'s ", " "))
    ):
        return True
    # "Don't Stop Believin'" for "Don't Stop Believing".
    if ("in'" in gold or "in'" in given) and _same_keys(
        words(gold.replace("in'", "ing")), words(given.replace("in'", "ing"))
    ):
        return True
    # "Roger (alien)" is Roger, unless the other one's brackets say something else.
    for outside, inside in without_brackets(gold):
        if "(" not in given or not brackets_differ(about, gold, given):
            if _same_words(about, outside, given, words(outside), other):
                return True
            if _is_short_for(words(inside), words(outside), True) and _same_keys(
                words(inside), other
            ):
                return True
    for outside, inside in without_brackets(given):
        harmless = not turns_elsewhere(words(inside))
        bare = words(outside)
        if harmless and _same_words(about, gold, outside, mine, bare):
            return True
        if harmless and bare and _same_place(about, gold, outside, mine, bare):
            return True
        # "Die Zauberflöte (The Magic Flute)": the brackets say the same in other words.
        if len(mine) > 1 and _same_keys(words(inside), mine):
            return True
        if same_in_kind(about, mine, words(inside)):
            return True
        if _is_short_for(words(inside), words(outside)) and _same_keys(words(inside), mine):
            return True
        if _is_short_for(words(outside), words(inside)) and _same_keys(words(inside), mine):
            return True
    return False


def _same_words(
    about: Asked, gold: str, given: str, mine: tuple[Word, ...], other: tuple[Word, ...]
) -> bool:
    if not mine or not other:
        return False
    if all(word.key in FUNCTION and not _is_acronym(word) for word in other):
        return _same_keys(mine, other)
    if _same_keys(mine, other) or _same_but_plural(mine, other):
        return True
    if _same_country(about, mine, other) or _same_city(mine, other):
        return True
    if same_in_kind(about, mine, other):
        return True
    if _is_short_for(mine, other) or _is_short_for(other, mine):
        return True
    # What follows needs a word that both have.
    if {key[:3] for key in keys(mine)}.isdisjoint([key[:3] for key in keys(other)]):
        return False
    if _turned_round(mine, other) or _person_turned_round(about, mine, other):
        return True
    if styled(gold, other):
        return True
    if alternative_title(gold, other) or titled_in_full(mine, given):
        return True
    if _same_held(about, mine, other):
        return True
    if len(mine) > 1 and mine[-1].key in CORPORATE and _same_held(about, mine[:-1], other):
        return True
    if any(word.is_capital for word in mine) or about.person:
        left, right = person(gold), person(_owner(about, given))
        if left is not None and right is not None and _are_names(about, left, right, mine, other):
            return same_person(left, right, surname_will_do=about.person)
    return False


def _is_acronym(word: Word) -> bool:
    return len(word.cased) > 1 and word.cased.isupper()


def _same_keys(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    return bool(mine) and compact(keys(mine)) == compact(keys(other))


def _same_but_plural(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``cocktails`` is ``cocktail``; in names ("Alien", "Aliens") the ending counts."""
    if len(mine) != len(other):
        return False
    return all(
        a.key == b.key
        or (stem(a.key) == stem(b.key) and (_may_be_plural(a, b) or stem(a.key) in _PLURAL_NAMES))
        for a, b in zip(mine, other, strict=True)
    )


def _may_be_plural(a: Word, b: Word) -> bool:
    return not (a.is_capital and b.is_capital) or a.cased.isupper() or b.cased.isupper()


def _same_country(about: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    if len(mine) > 6 or len(other) > 6:
        return False
    left, right = compact(keys(mine)), compact(keys(other))
    if _COUNTRY.get(left) is None or _COUNTRY.get(left) != _COUNTRY.get(right):
        return False
    # A people stands for its country only where it is asked for; else it may be a language.
    return about.is_origin or (left in PEOPLES_KEYS) == (right in PEOPLES_KEYS)


def _same_city(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``Köln`` is ``Cologne``: what a city is called at home and abroad."""
    left, right = compact(keys(mine)), compact(keys(other))
    return left in _CITY and _CITY[left] == _CITY.get(right)


def _is_short_for(short: Sequence[Word], long: Sequence[Word], told: bool = False) -> bool:
    """``WHO`` for ``World Health Organization``, ``UC Berkeley`` for the long form.

    Args:
        short: what may be an abbreviation.
        long: what it may stand for.
        told: whether one stands in brackets behind the other, so that no capitals are needed.
    """
    # "P&G" is cut into three words.
    if len(short) == 3 and short[1].key == "and" and all(len(w.key) == 1 for w in short[::2]):
        short = [Word("", short[0].cased + short[2].cased, "")]
    # "PS2" is short for "PlayStation 2".
    if len(short) == 1 and (numbered := _NUMBERED.fullmatch(short[0].cased)):
        capitals = "".join(re.findall("[A-Z]", " ".join(word.cased for word in long[:-1])))
        return long[-1].key == numbered[2] and capitals == numbered[1]
    if not short or len(short) >= len(long) or not 2 <= len(short[0].cased) <= 7:
        return False
    letters = short[0].cased
    if not letters.isalpha() or len(letters) < 2:
        return False
    # "MoMA" has its capitals where the name does.
    if sum(map(str.isupper, letters)) < max(2, len(letters) - 1):
        return False
    letters = letters.upper()
    rest = [word.key for word in short[1:]]
    end = len(long) - len(rest)
    full = [word for word in long[:end] if word.key not in ("jr", "sr", "inc", "co", "ltd")]
    if [word.key for word in long[end:]] != rest:
        return False
    if not told and not all(word.is_capital or word.key in LINKING for word in full):
        return False
    all_of_it = "".join(word.cased[:1] for word in long[:end]).upper()
    every = "".join(word.cased[:1] for word in full).upper()
    most = "".join(w.cased[:1] for w in full if w.key not in LINKING).upper()
    return letters in (every, most, all_of_it)


def _person_turned_round(about: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``Kurosawa Akira`` for ``Akira Kurosawa``, ``Ignatius Loyola`` for ``Ignatius of Loyola``."""
    if not about.person or len(mine) + len(other) > 6:
        return False
    left, right = (
        [w.key for w in run if w.key not in ("of", "st") and w.is_capital] for run in (mine, other)
    )
    # Signs between two names make them two.
    if len(left) != 2 or any(w.gap.strip(".-") for run in (mine, other) for w in run[1:]):
        return False
    has_of = ("of" in keys(mine)) != ("of" in keys(other))
    return left == right if has_of else left == right[::-1]


def _turned_round(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``2016 United States election`` is ``United States election of 2016``."""
    left, right = (
        [k for k in keys(run) if k not in LINKING and k != "number"] for run in (mine, other)
    )
    # "a Stephen King novel" for "a novel by Stephen King".
    for one, turned in ((left, right), (right, left)):
        if "by" in one[1:] and one[(at := one.index("by", 1)) + 1 :] + one[:at] == turned:
            return True
    # Prepositions come and go ("University of California at Berkeley").
    if left == right and len(left) >= 3:
        return True
    # "leaves of the eucalyptus", but "House of Cards" is its own name.
    reversed_ = (
        len(left) == 2 and left[::-1] == right and ("of" in keys(mine)) != ("of" in keys(other))
    )
    if reversed_ and not all(word.is_capital for run in (mine, other) for word in run[::2]):
        return True
    # "the Versailles Treaty", "the war in Korea".
    if reversed_ and not _EVENTS.isdisjoint(left):
        return True
    # "AD 79", "79 AD".
    if len(left) == 2 and left[::-1] == right and sum(key.isdigit() for key in left) == 1:
        return True
    # "US Supreme Court" for "Supreme Court of the United States".
    if len(left) == 3 and ("of" in keys(mine)) != ("of" in keys(other)):
        return left in (right[1:] + right[:1], right[2:] + right[:2])
    figures = any(key.isdigit() for key in left)
    return len(left) >= (3 if figures else 4) and sorted(left) == sorted(right)


def _owner(about: Asked, given: str) -> str:
    """``Einstein's`` where the question asks whose."""
    if about.possessive and given.rstrip(".").endswith(("'s", "’s")):
        return given.rstrip(".")[:-2]
    return given


def _are_names(
    about: Asked, left: Person, right: Person, mine: Sequence[Word], other: Sequence[Word]
) -> bool:
    """Whether both are taken for people: the question asks for one, or they are written so."""
    if about.person:
        return True
    if not all(word.is_capital or word.key in LINKING for word in (*mine, *other)):
        return False
    return any(
        len(word.key) == 1 or word.key in TITLES or '"' in word.gap
        for run in (mine, other)
        for word in run
    ) or (mine[0].key in FIRST_NAMES and other[0].key in FIRST_NAMES)


def _same_held(about: Asked, mine: tuple[Word, ...], other: tuple[Word, ...]) -> bool:
    """Whether one holds the other, and what is left over changes nothing."""
    if len(mine) < len(other):
        for at in _found(mine, other):
            before, after = other[:at], other[at + len(mine) :]
            answer = (mine[0]._replace(gap=other[at].gap), *mine[1:])
            if may_lead(about, before, answer) and may_trail(about, after, answer):
                return True
    for at in _found(other, mine):
        if len(mine) == len(other) or (other[0].key in LITTLE and len(other) == 1):
            break
        if may_miss_lead(about, mine[:at], other) and may_miss_trail(
            about, mine[at + len(other) :], other
        ):
            return True
    return _same_kind(about, mine, other)


def _found(short: Sequence[Word], long: Sequence[Word]) -> list[int]:
    size = len(short)
    return [
        at
        for at in range(len(long) - size + 1)
        if long[at].key[:3] == short[0].key[:3] and _same_but_plural(short, long[at : at + size])
    ]


def _same_kind(about: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``the river Hudson`` is ``Hudson River``, ``Oxford University`` is ``University of Oxford``.

    A few pairs of universities differ in nothing else."""
    shared = set(keys(mine)) & set(keys(other)) & KINDS.keys()
    if not shared:
        return False
    left, right = (
        [k for k in keys(run) if k not in shared and k not in ("of", "in")] for run in (mine, other)
    )
    # "Gulf of Persia" for "Persian Gulf".
    countries = _COUNTRY.get(compact(left)), _COUNTRY.get(compact(right))
    linked = [bool({"of", "in"} & set(keys(run))) for run in (mine, other)]
    if countries[0] is not None and linked[0] != linked[1]:
        return countries[0] == countries[1]
    return (
        left == right
        and bool(left)
        and not (shared == {"university"} and left[0] in _TWO_UNIVERSITIES and len(left) == 1)
    )


def _same_place(
    about: Asked, gold: str, given: str, mine: tuple[Word, ...], other: tuple[Word, ...]
) -> bool:
    """A town with or without its region, unless both have one and they differ."""
    town, region = _town(mine)
    place, other_region = _town(other)
    if region and other_region and not _agree(region, other_region):
        return False
    if keys(town) == ("new", "york", "city") and "state" not in about.stems:
        town = town[:2]
    # "Bruxelles, Belgium" for "Brussels".
    country = _KNOWN_CITY.get(compact(keys(town)))
    if _same_city(town, place) and (not other_region or country is None or country in other_region):
        return True
    if len(town) == len(mine) or not town or not place or not town[0].is_capital:
        return False
    named = gold.partition(",")[0]
    return _same_words(about, named, given.partition(",")[0], town, place) and not is_organisation(
        town
    )


def elsewhere(wordings: Sequence[str], given: str) -> bool:
    """Whether a prediction puts the place into another region than every wording that has one."""
    _, region = _town(words(given))
    if not region:
        return False
    regions = [known for known in (_town(words(wording))[1] for wording in wordings) if known]
    return bool(regions) and not any(_agree(known, region) for known in regions)


def _elsewhere_than_known(gold: tuple[Word, ...], given: tuple[Word, ...]) -> bool:
    """``Paris, Texas`` for ``Paris``: of a city that all know, another one of its name."""
    country = _KNOWN_CITY.get(compact(keys(gold)))
    _, region = _town(given) if country is not None else (given, frozenset[str]())
    return bool(region) and country not in region


def _is_capital_not_state(about: Asked, gold: Sequence[Word], given: Sequence[Word]) -> bool:
    """``Washington, D.C.`` where the state is asked for."""
    return "state" in about.stems and keys(gold) == ("washington",) and "dc" in keys(given)


def _town(run: tuple[Word, ...]) -> tuple[tuple[Word, ...], frozenset[str]]:
    """A run without the region behind its comma, and that region with what it lies in."""
    for at in range(1, len(run)):
        if "," in run[at].gap:
            parts = at_commas(run[at:])
            if all(is_region(part) for part in parts):
                return run[:at], frozenset().union(*(_within(keys(part)) for part in parts))
            break
    return run, frozenset()


def _within(region: tuple[str, ...]) -> frozenset[str]:
    name = compact(_STATE.get(region, region))
    name = _COUNTRY.get(name, name)
    return frozenset({name, _STATE_COUNTRY[name]} if name in _STATE_COUNTRY else {name})


def _agree(left: frozenset[str], right: frozenset[str]) -> bool:
    countries = left & _COUNTRIES, right & _COUNTRIES
    if all(countries) and not (countries[0] & countries[1]):
        return False
    inner = left - _COUNTRIES, right - _COUNTRIES
    return not (all(inner) and not (inner[0] & inner[1]))

"""One answer against one right wording, and what a question asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from ssp_env.judge.names import same_person
from ssp_env.judge.words import Amount, Word, keys, read, read_table, vocabulary
from ssp_env.wording.answers import compatible


@dataclass(frozen=True, slots=True)
class Asked:
    """Kind of answer that a question asks for, as far as its words show."""

    words: frozenset[str]
    """The question's own words, without those of an alternative that it offers."""
    person: bool
    place: bool
    origin: bool
    """A country or nationality, which answer each other."""
    names: frozenset[str]


_PERSONAL = frozenset({"who", "whom", "whose"})
_ASKING = _PERSONAL | {"which", "what", "name"}


@lru_cache(maxsize=1024)
def read_question(question: str) -> Asked:
    people = vocabulary("people")
    run = keys(read(question))
    asking = next((at for at, word in enumerate(run) if word in _ASKING), len(run))
    kinds = (w for w in run[asking + 1 : asking + 7] if w in people | vocabulary("thing"))
    person = not _PERSONAL.isdisjoint(run[asking : asking + 1]) or next(kinds, "") in people

    words = frozenset(run)
    names = frozenset(word.key for word in read(question)[1:] if word.is_name)
    origin = bool(words & {"nationality", "country", "nation", "citizenship", "ethnicity"})
    place = bool(words & vocabulary("place")) and not person
    return Asked(words - {"or"}, person, place, origin, names)


def choosing(asked: Asked, golds: Iterable[str]) -> Asked:
    """A question that offers its answer: its names, or words, do not count as what it asks."""
    if not any(read(gold) and asked.words.issuperset(keys(read(gold))) for gold in golds):
        return asked
    return replace(asked, words=asked.words - (asked.names or asked.words - vocabulary("function")))


def same_answer(asked: Asked, gold: str, given: str) -> bool:
    mine, other = read(gold), read(given)
    if not mine or not other:
        return not mine and gold.split() == given.split()
    if keys(mine) in (("yes",), ("no",)):
        said = keys(other)
        return keys(mine) == said[:1] and not {"yes", "no", "or", "maybe"} & {*said[1:]}
    if _alike_run(asked, mine, other) or _letters(mine) == _letters(other):
        return True
    if asked.origin or asked.place:
        country = countries().get(" ".join(keys(mine)))
        named = (countries().get(" ".join(keys(run))) for run in (other, _without_form(other)))
        if country and country in named:
            return True
    placed = read_region(read(gold.partition(",")[2]))  # Portland, Oregon is nobody's name
    return (
        _is_acronym(gold, given)
        or _is_acronym(given, gold)
        or (not placed and same_person(gold, given, asked.person))
        or _is_within(asked, mine, other)
        or _is_enough(asked, mine, other)
        or _is_reordered(mine, other)
        or _same_list(asked, gold, given)
    )


def _letters(words: Sequence[Word]) -> str:
    """All letters, where a text is cut into words in another way; figures stay apart."""
    return "".join(
        f" {word.key} " if word.is_name and word.key[0].isdigit() else word.key for word in words
    )


def _alike_run(asked: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    return len(mine) == len(other) and all(
        _alike(asked, a, b) for a, b in zip(mine, other, strict=True)
    )


def _alike(asked: Asked, gold: Word, given: Word) -> bool:
    if gold.key == given.key and gold.amount == given.amount:
        return True
    if not gold.date and not given.date:
        return bool(gold.amount and given.amount and _same_amount(gold.amount, given.amount))

    mine, other = (
        (int(word.key), 0, 0) if re.fullmatch(r"\d{3,4}", word.key) else word.date
        for word in (gold, given)
    )
    if mine is None or other is None:
        return False
    # A whole date answers a question for the year, if its year is right.
    if "year" in asked.words and mine[0] == other[0] != 0:
        return True
    # More detail is right, less is not: 8 December 1985 for 1985.
    return all(a in (0, b) for a, b in zip(mine, other, strict=True))


def _same_amount(gold: Amount, given: Amount) -> bool:
    if gold.dimension != given.dimension:  # a unit may be missing
        return not (gold.dimension and given.dimension) and _rounded(gold.value, given)
    if gold.factor == given.factor and gold.offset == given.offset:
        return _rounded(gold.value, given)
    return abs(gold.in_base_units - given.in_base_units) <= 0.01 * abs(gold.in_base_units)


def _rounded(value: float, given: Amount) -> bool:
    """Large numbers may be rounded to two digits or more."""
    if abs(value) < 10_000 or given.digits < 2:
        return value == given.value
    # Rounded to as many digits as were given: 1,234,567 is 1.2 million, but not 1.3.
    return float(f"{value:.{given.digits - 1}e}") == given.value


def _is_acronym(short: str, long: str) -> bool:
    letters = short.replace(".", "").strip()
    names = re.findall(r"\b[^\W\d_]", re.sub(r"'s\b", "", compatible(long)))
    capitals = "".join(initial for initial in names if initial.isupper())
    return re.fullmatch(r"[A-Z]{2,6}", letters) is not None and capitals == letters


def _without_form(words: Sequence[Word]) -> list[Word]:
    """A place without what it is called officially: Kingdom of, Republic of."""
    at = next((i for i, word in enumerate(words) if word.key == "of"), 0)
    official = at > 0 and all(word.key in vocabulary("form") for word in words[:at])
    return list(words[at + 1 :] if official else words)


def _is_within(asked: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """The given words hold the right ones, and those left over change nothing."""
    for at in range(len(other) - len(mine) + 1):
        ended = any(re.search(r"[.?!]\s", word.gap) for word in other[1 : at + 1])
        if not ended and _alike_run(asked, mine, other[at : at + len(mine)]):
            before, after = other[:at], other[at + len(mine) :]
            if _may_lead(asked, before, mine) and _may_follow(asked, after, mine):
                return True
    return False


_STOPS = re.compile(r"[;|/()\[\]\n+]|\s[-–—]+\s?|[–—]")


def _may_lead(asked: Asked, before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Words before the answer only lead up to it."""
    if not before:
        return True
    turns = vocabulary("turn") | vocabulary("change")
    if "and" in keys(before) or any(w.key in turns or _STOPS.search(w.gap) for w in before):
        return False
    if _without_form([*before, *answer])[: len(before)] != list(before):
        return True
    links = before[-1].key in vocabulary("link")
    free = vocabulary("lead") | describing(answer)
    for word in before:
        # Names of the question belong to a sentence: "Puerto Rico was acquired in 1898".
        asked_for = word.key in asked.words and (links or not word.is_name)
        people = word.key in countries() and not answer[0].is_name
        if people or not (word.key in free or asked_for or word.key in vocabulary("title")):
            return False
    return True


def describing(answer: Sequence[Word]) -> frozenset[str]:
    """Words that only say what kind of thing an answer is; none where it is such a word itself."""
    words = vocabulary("kind") | vocabulary("people") | countries().keys()
    itself = read_region(answer) is not None or all(word.key in words for word in answer)
    return frozenset() if itself else frozenset(words)


def _may_follow(asked: Asked, after: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Words after the answer only tell more about it."""
    if not after:
        return True
    first = after[0]
    turns = vocabulary("turn") - asked.words
    if any(word.key in turns or _STOPS.search(word.gap) for word in after):
        return False
    # More about the answer begins with what it says, and names nothing of the answer's own kind.
    says = vocabulary("verb") | describing(answer) | asked.words - vocabulary("function")
    free = vocabulary("function") | vocabulary("tell") | vocabulary("change") | asked.words
    free |= describing(answer) & (vocabulary("kind") | vocabulary("title"))
    for at, word in enumerate(after):
        if not word.is_name and word.key in says - countries().keys():
            break
        same_kind = (word.amount is None) == (answer[-1].amount is None)
        if same_kind and word.key not in free:
            if any(_lies_in(answer, after[at:end]) for end in range(at + 1, at + 4)):
                break
            return False

    if "," in first.gap and read_region(after):
        return _lies_in(answer, after)
    if all(w.key in describing(answer) & vocabulary("kind") | asked.words for w in after):
        return "," not in first.gap
    if len(after) == 1 and answer[-1].amount:
        return not first.is_name
    if not first.is_name and first.key in asked.words | vocabulary("tell"):
        return True
    # An apposition: "Paris, the capital of France", "Louis I, Grand Duke of Hesse".
    if "," in first.gap and (
        first.key in vocabulary("title") | set(countries())
        if first.is_name
        else not read_region(after[:1])
    ):
        return len(after) > 1 and not any("," in word.gap and word.is_name for word in after[1:])
    return False


def _lies_in(answer: Sequence[Word], region: Sequence[Word]) -> bool:
    """A place may be in a region as far as its name tells: a state only in its country."""
    here, there = read_region(answer), read_region(region)
    return there is not None and (here is None or country_of().get(here) == there)


def _is_enough(asked: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """The right words hold the given ones, and those left out only say what is known anyway."""
    for at in range(len(mine) - len(other) + 1):
        if _alike_run(asked, mine[at : at + len(other)], other):
            before, after = mine[:at], mine[at + len(other) :]
            if "and" in (*keys(before), *keys(after[:1])):
                return False
            if _may_lack(asked, before, after, other):
                return True
    return False


def _may_lack(
    asked: Asked, before: Sequence[Word], after: Sequence[Word], given: Sequence[Word]
) -> bool:
    """Words before and behind the given ones may be missing."""
    if given[0].is_name:
        titles = vocabulary("form") | (vocabulary("title") if len(given) > 1 else frozenset())
        if any(word.is_name and word.key not in titles for word in before):
            return False
    elif any(word.key not in vocabulary("lead") for word in before):
        return False

    if not after:
        return True
    if "," in after[0].gap:
        return after[0].key == "by" or asked.person
    if asked.person and after[0].key == "of":
        return True
    kinds = vocabulary("kind") | (vocabulary("asked kind") & asked.words)
    known = kinds if len(after) == 1 else kinds | asked.words | {"of"}
    return all(word.key in known for word in after)


def _is_reordered(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """The same words around an "of": leaves of the eucalyptus."""
    left, right = (sorted(k for k in keys(run) if k != "of") for run in (mine, other))
    return left == right and "of" in {*keys(mine)} ^ {*keys(other)}


def _same_list(asked: Asked, gold: str, given: str) -> bool:
    mine, other = list_items(gold), list_items(given)
    if len(mine) < 2 or len(mine) != len(other):
        return False
    for item in mine:
        found = next((o for o in other if _same_item(asked, item, o)), None)
        if found is None:
            return False
        other.remove(found)
    return True


def list_items(said: str) -> list[str]:
    parts = re.split(r"\s*[,;]\s*(?:and\s+)?|\s+(?:and|&|vs\.?|versus)\s+", said.strip(" ."))
    return [part for part in parts if read(part)]


def _same_item(asked: Asked, gold: str, given: str) -> bool:
    alike = _alike_run(asked, read(gold), read(given)) or _is_acronym(given, gold)
    return alike or same_person(gold, given, asked_for=True)


def _by_name(table: str, *columns: str) -> dict[str, str]:
    return {
        " ".join(keys(read(name))): row["name"]
        for row in read_table(table)
        for column in columns
        for name in row[column].split("|")
        if name
    }


@cache
def countries() -> dict[str, str]:
    """A country by each of its names and its people's."""
    return _by_name("countries", "name", "people", "other")


@cache
def _regions() -> dict[str, str]:
    return _by_name("regions", "name", "short") | countries()


@cache
def country_of() -> dict[str, str]:
    return {row["name"]: row["country"] for row in read_table("regions") if row["country"]}


def read_region(words: Sequence[Word]) -> str | None:
    """The country, state or region that words name, possibly with its country behind a comma."""
    for end in range(len(words), 0, -1):
        region = _regions().get(" ".join(keys(words[:end])))
        if region is not None:
            return region if end == len(words) or read_region(words[end:]) else None
    return None

"""One answer against one right wording, and what a question asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from ssp_env.judge.names import parse, same_person
from ssp_env.judge.reading import Word, keys, read, unread_script
from ssp_env.judge.tables import read_table, vocabulary

_Words = Sequence[Word]


class Asked(NamedTuple):
    """Kind of answer that a question asks for, as far as its words show."""

    words: frozenset[str]
    """The question's own words, without those of an alternative that it offers."""
    person: bool
    place: bool
    """A place or nationality; a country and its people answer each other."""
    names: frozenset[str]


_PERSONAL = frozenset({"who", "whom", "whose"})


@lru_cache(maxsize=1024)
def read_question(question: str) -> Asked:
    words = read(question)
    run, people = keys(words), vocabulary("people")
    asking = next((i for i, w in enumerate(run) if w in _PERSONAL | {"which", "what", "name"}), 99)
    kinds = (w for w in run[asking + 1 : asking + 7] if w in vocabulary("people", "thing"))
    person = not _PERSONAL.isdisjoint(run[asking : asking + 1]) or next(kinds, "") in people
    names = frozenset(word.key for word in words[1:] if word.is_name)
    place = not person and not vocabulary("place").isdisjoint(run)
    return Asked(frozenset(run) - {"or"}, person, place, names)


def choosing(asked: Asked, golds: Iterable[str]) -> Asked:
    """A question that offers its answer: its names, or words, do not count as what it asks."""
    if not any(read(gold) and asked.words.issuperset(keys(read(gold))) for gold in golds):
        return asked
    offered = asked.names or asked.words - vocabulary("function")
    return asked._replace(words=asked.words - offered)


def same_answer(asked: Asked, gold: str, given: str) -> str:
    """Why a given answer says the same as a right one; nothing where it does not.

    >>> same_answer(read_question("How high is it?"), "8,849 m", "8.849 kilometres")
    'equal numbers'
    >>> same_answer(read_question("Who was it?"), "Bill Gates", "Bob Gates")
    ''
    """
    mine, other = read(gold), read(given)
    if not mine or not other:
        return "equal words" if not mine and gold.split() == given.split() else ""
    run, said = keys(mine), keys(other)
    if run in (("yes",), ("no",)):
        return (
            "yes or no"
            if run == said[:1] and not {"yes", "no", "or", "maybe"} & {*said[1:]}
            else ""
        )
    if _alike_run(asked, mine, other):
        dates, amounts = any(word.date for word in mine), any(word.amount for word in mine)
        return f"equal {'dates' if dates else 'numbers' if amounts else 'words'}"
    if _letters(run) == _letters(said):
        return "words cut in another way"
    if _is_acronym(gold, given) or _is_acronym(given, gold):
        return "acronym"
    country = countries().get(" ".join(run)) if asked.place else None
    if country and country in (
        countries().get(" ".join(keys(w))) for w in (other, _without_form(other))
    ):
        return "same country"
    measured = any(word.amount or word.date for word in mine)
    if not measured and gold.isascii() and set(run).isdisjoint(said):
        return ""
    # Portland, Oregon is nobody's name.
    placed = read_region(read(gold.partition(",")[2]))
    if not placed and (verdict := same_person(gold, given, asked.person)):
        return verdict
    for before, found_words, after in _left_over(asked, mine, other, other, mine):
        if _may_lead(asked, before, found_words) and _may_follow(asked, after, mine):
            return "more words that name nothing else"
    for before, _, after in _left_over(asked, mine, other, mine, other):
        if "and" not in (*keys(before), *keys(after[:1])) and _may_lack(
            asked, before, after, other
        ):
            return "fewer words that say enough"
    if "of" in {*run} ^ {*said} and sorted({*run} - {"of"}) == sorted({*said} - {"of"}):
        return "words in another order"
    return "same list" if _same_list(asked, gold, given) else ""


def difference(gold: str, given: str) -> str:
    """What is another in a given answer than in a right one."""
    mine, other = read(gold), read(given)
    if any(word.date for word in mine):
        return "another date" if any(word.date for word in other) else "no such date"
    amounts = [[word.amount for word in words if word.amount] for words in (mine, other)]
    if reason := next(filter(None, (a.difference(b) for a, b in zip(*amounts, strict=False))), ""):
        return reason
    words, said = set(keys(mine)), set(keys(other))
    one, two = parse(gold), parse(given)
    if one and two and one.last and one.last[-1:] == two.last[-1:]:
        return "another first name"
    if said < words or words < said:
        return f"{'less' if said < words else 'more'} than the answer"
    script = unread_script(given) or unread_script(gold)
    return "other words" + (f" in {script} letters: the judge openai reads them" if script else "")


def _letters(run: Sequence[str]) -> str:
    """All letters, where a text is cut into words in another way; figures stay apart."""
    return "".join(_FIGURES.sub(r" \g<0> ", word) for word in run)


_FIGURES = re.compile(r"[\d.]+")


def _alike_run(asked: Asked, mine: _Words, other: _Words) -> bool:
    pairs = zip(mine, other, strict=False)
    return len(mine) == len(other) and all(_alike(asked, a, b) for a, b in pairs)


def _alike(asked: Asked, gold: Word, given: Word) -> bool:
    if gold.key == given.key and gold.amount == given.amount:
        return True
    if not gold.date and not given.date:
        return bool(gold.amount and given.amount and not gold.amount.difference(given.amount))
    mine, other = (
        (int(word.key), 0, 0) if re.fullmatch(r"\d{3,4}", word.key) else word.date
        for word in (gold, given)
    )
    if mine is None or other is None:
        return False
    # A whole date answers a question for the year. More detail is right, less is not.
    year = "year" in asked.words and mine[0] == other[0] != 0
    return year or all(a in (0, b) for a, b in zip(mine, other, strict=True))


def _is_acronym(short: str, long: str) -> bool:
    letters = short.replace(".", "").strip()
    if not (
        2 <= len(letters) <= 6 and letters.isascii() and letters.isupper() and letters.isalpha()
    ):
        return False
    initials = re.findall(r"\b[^\W\d_]", re.sub(r"['’]s\b", "", long))
    return letters == "".join(filter(str.isupper, initials))


def _without_form(words: _Words) -> _Words:
    """A place without what it is called officially: Kingdom of, Republic of."""
    at = next((i for i, word in enumerate(words) if word.key == "of"), 0)
    official = at > 0 and vocabulary("form").issuperset(keys(words[:at]))
    return words[at + 1 :] if official else words


def _left_over(
    asked: Asked, mine: _Words, other: _Words, long: _Words, short: _Words
) -> Iterator[tuple[_Words, _Words, _Words]]:
    """Words before, at and behind each place where the longer answer holds the shorter one."""
    for at in range(len(long) - len(short) + 1):
        window = long[at : at + len(short)]
        if _alike_run(asked, *((window, other) if long is mine else (mine, window))):
            yield long[:at], window, long[at + len(short) :]


_STOPS = re.compile(r"[;|/()\[\]\n+]|\s[-–—]+\s?|[–—]")


def _turns(words: _Words, turning: frozenset[str]) -> bool:
    return any(word.key in turning or _STOPS.search(word.gap) for word in words)


@cache
def _describing() -> frozenset[str]:
    return vocabulary("kind", "people") | countries().keys()


def describing(answer: _Words) -> frozenset[str]:
    """Words that only say what kind of thing an answer is; none where it is such a word itself."""
    itself = read_region(answer) is not None or _describing().issuperset(keys(answer))
    return frozenset() if itself else _describing()


def _may_lead(asked: Asked, before: _Words, answer: _Words) -> bool:
    """Words before the answer only lead up to it."""
    if not before:
        return True
    ended = any(re.search(r"[.?!]\s", word.gap) for word in (*before[1:], answer[0]))
    if ended or "and" in keys(before) or _turns(before, vocabulary("turn", "change")):
        return False
    if asked.place and "," in answer[0].gap and read_region(answer) and not read_region(before):
        return not any("," in word.gap for word in before)  # Paris, France
    # Words of the question belong to a sentence: "Puerto Rico was acquired in 1898".
    free = vocabulary("function", "lead", "tell", "verb", "title", "form")
    for key in keys(before):
        people = key in countries() and not answer[0].is_name  # American football
        if people or not (key in free or key in describing(answer) or key in asked.words):
            return False
    return True


def _may_follow(asked: Asked, after: _Words, answer: _Words) -> bool:
    """Words after the answer only tell more about it."""
    if not after:
        return True
    first, kinds, measured = after[0], describing(answer), answer[-1].amount
    if _turns(after, vocabulary("turn") - asked.words):
        return False
    # More about the answer begins with what it says, and names nothing of the answer's own kind.
    free, kind_of_answer = (
        vocabulary("function", "tell", "change"),
        vocabulary("kind", "title") if kinds else (),
    )
    for at, word in enumerate(after):
        key, asks = word.key, word.key in asked.words
        says = (
            key in vocabulary("verb")
            or key in kinds
            or (asks and key not in vocabulary("function"))
        )
        if says and not word.is_name and key not in countries():
            break
        if (word.amount is None) == (measured is None) and not (
            asks or key in free or key in kind_of_answer
        ):
            if not any(_lies_in(answer, after[at:end]) for end in range(at + 1, at + 4)):
                return False
            break

    begins_anew = "," in first.gap
    if begins_anew and read_region(after):
        return _lies_in(answer, after)
    plain = vocabulary("kind") if kinds else frozenset()
    if all(word.key in plain or word.key in asked.words for word in after):
        return not begins_anew
    if len(after) == 1 and measured:
        return not first.is_name and measured.unit.dimension in ("", "place")
    if not first.is_name and (first.key in asked.words or first.key in vocabulary("tell")):
        return True
    # An apposition: "Paris, the capital of France", "Louis I, Grand Duke of Hesse".
    named = first.key in vocabulary("title") or first.key in countries()
    if (
        not begins_anew
        or len(after) < 2
        or (not named if first.is_name else read_region(after[:1]))
    ):
        return False
    return not any("," in word.gap and word.is_name for word in after[1:])


def _may_lack(asked: Asked, before: _Words, after: _Words, given: _Words) -> bool:
    """Words before and behind the given ones only say what is known anyway."""
    free = vocabulary("form", *(["title"] if len(given) > 1 else []))
    if given[0].is_name and any(word.is_name and word.key not in free for word in before):
        return False
    if not given[0].is_name and not vocabulary("lead").issuperset(keys(before)):
        return False
    if not after:
        return True
    if "," in after[0].gap:
        return after[0].key == "by" or asked.person
    known = vocabulary("kind") | (vocabulary("asked kind") & asked.words)
    known |= asked.words | {"of"} if len(after) > 1 else set()
    return (asked.person and after[0].key == "of") or known.issuperset(keys(after))


_BETWEEN = re.compile(
    r"\s*[,;、]\s*(?:and\s+)?|\s+(?:and|&|vs\.?|versus)\s+|(?<=[一-鿿])[和与及](?=[一-鿿])"
)


def list_items(said: str) -> list[str]:
    return [part for part in _BETWEEN.split(said.strip(" .")) if read(part)]


def _same_list(asked: Asked, gold: str, given: str) -> bool:
    mine, other = list_items(gold), list_items(given)
    if len(mine) < 2 or len(mine) != len(other):
        return False
    for item in mine:
        equal = next((o for o in other if _same_item(asked, item, o)), None)
        if equal is None:
            return False
        other.remove(equal)
    return True


def _same_item(asked: Asked, gold: str, given: str) -> bool:
    alike = _alike_run(asked, read(gold), read(given)) or _is_acronym(given, gold)
    return alike or same_person(gold, given, asked_for=True) != ""


# -- regions ---------------------------------------------------------------------------------------


def _by_name(table: str, *columns: str) -> dict[str, str]:
    return {
        " ".join(keys(read(name))): row["name"]
        for row in read_table(table)
        for column in columns
        for name in filter(None, row[column].split("|"))
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


@lru_cache(maxsize=8192)
def _region(run: tuple[str, ...]) -> str | None:
    for end in range(len(run), 0, -1):
        region = _regions().get(" ".join(run[:end]))
        if region is not None:
            return region if end == len(run) or _region(run[end:]) else None
    return None


def read_region(words: _Words) -> str | None:
    """The country, state or region that words name, possibly with its country behind a comma."""
    return _region(keys(words)) if len(words) <= 8 else None


def _lies_in(answer: _Words, region: _Words) -> bool:
    """A place may be in a region as far as its name tells: a state only in its country."""
    here, there = read_region(answer), read_region(region)
    return there is not None and (here is None or country_of().get(here) == there)

"""One answer against one right wording, and what a question asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ssp_env.judge.names import countries, is_in_full, lies_in, parse, read_region, same_person
from ssp_env.judge.reading import Word, keys, read, unread_script
from ssp_env.judge.tables import rewrite, vocabulary

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
    # Place of the word that asks; 99, which is behind any question, where there is none.
    asking = next((i for i, w in enumerate(run) if w in _PERSONAL | {"which", "what", "name"}), 99)
    # The first of the next six words that is a kind decides: "which famous English author".
    kinds = (w for w in run[asking + 1 : asking + 7] if w in vocabulary("people", "thing"))
    person = not _PERSONAL.isdisjoint(run[asking : asking + 1]) or next(kinds, "") in people
    # The first word of a question has a capital whatever it is.
    names = frozenset(word.key for word in words[1:] if word.is_name)
    place = not person and not vocabulary("place").isdisjoint(run)
    return Asked(frozenset(run) - {"or"}, person, place, names)


def choosing(asked: Asked, golds: Iterable[str]) -> Asked:
    """A question that offers its answer: its names, or words, do not count as what it asks."""
    if not any(asked.words.issuperset(keys(read(gold))) for gold in golds):
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
    run, said = keys(mine), keys(other)
    if not run or not said:
        return ""
    if run in (("yes",), ("no",)):
        clear = run == said[:1] and {"yes", "no", "or", "maybe"}.isdisjoint(said[1:])
        return "yes or no" if clear else ""
    if _alike_run(asked, mine, other):
        dates, amounts = any(word.date for word in mine), any(word.amount for word in mine)
        return f"equal {'dates' if dates else 'numbers' if amounts else 'words'}"
    if _letters(run) == _letters(said):
        return "words cut in another way"
    if _is_acronym(gold, given) or _is_acronym(given, gold):
        return "acronym"
    if len(run) == len(said) == 1 and is_in_full(*sorted((run[0], said[0]), key=len)):
        return "same place"
    country = countries().get(" ".join(run)) if asked.place else None
    if country and country == countries().get(" ".join(said)):
        return "same country"
    # Portland, Oregon is nobody's name.
    placed = read_region(read(gold.partition(",")[2]))
    if not placed and (reason := same_person(gold, given, asked.person)):
        return reason
    # If the right answer is the longer one, the words left over are lacking; else they were added.
    for before, held, after in _left_over(asked, mine, other):
        if len(mine) > len(other):
            if _may_lack(asked, before, after, other):
                return "fewer words that say enough"
        elif _may_lead(asked, before, held) and _may_follow(asked, after, mine):
            return "more words that name nothing else"
    # Such as "University of Oslo" and "Oslo University".
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
    if one and two and one.first and two.first and one.last[-1] == two.last[-1]:
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
    if gold.date is None and given.date is None:
        if gold.amount and given.amount:
            return not gold.amount.difference(given.amount)
        return gold.key == given.key
    mine, other = (
        # A number of three or four figures may be a year, without month and day.
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
    if not 2 <= len(letters) <= 6:
        return False
    initials = re.findall(r"\b[^\W\d_]", re.sub(r"['’]s\b", "", long))
    # Small words give no letter: United States of America, USA.
    return letters == "".join(filter(str.isupper, initials))


def _left_over(
    asked: Asked, mine: _Words, other: _Words
) -> Iterator[tuple[_Words, _Words, _Words]]:
    """Words before, at and behind each place where the longer answer holds the shorter one."""
    size = min(len(mine), len(other))
    for at in range(abs(len(mine) - len(other)) + 1):
        held = [words[at : at + size] if len(words) > size else words for words in (mine, other)]
        if _alike_run(asked, *held):
            long = mine if len(mine) > size else other
            yield long[:at], long[at : at + size], long[at + size :]


_STOPS = re.compile(r"[;|/()\[\]\n+]|\s[-–—]+\s?|[–—]")


def _turns(words: _Words, turning: frozenset[str]) -> bool:
    return any(word.key in turning or _STOPS.search(word.gap) for word in words)


def describing(answer: _Words) -> frozenset[str]:
    """Words that only say what kind of thing an answer is; none where it is such a word itself."""
    kinds = vocabulary("kind", "people") | countries().keys()
    return frozenset() if read_region(answer) or kinds.issuperset(keys(answer)) else kinds


def _may_lead(asked: Asked, before: _Words, answer: _Words) -> bool:
    """Words before the answer only lead up to it."""
    if _turns(before, vocabulary("turn", "change")):
        return False
    if asked.place and "," in answer[0].gap and read_region(answer) and not read_region(before):
        return not any("," in word.gap for word in before)  # Paris, France
    # Words of the question belong to a sentence: "Puerto Rico was acquired in 1898".
    free = vocabulary("function", "lead", "tell", "verb", "title", "form")
    return all(
        (key in free or key in asked.words or key in describing(answer))
        and (answer[0].is_name or key not in countries())  # American football
        for key in keys(before)
    )


def _may_follow(asked: Asked, after: _Words, answer: _Words) -> bool:
    """Words after the answer only tell more about it."""
    if not after:
        return True
    if _turns(after, vocabulary("turn") - asked.words):
        return False
    # More about the answer begins with what it says, and names nothing of the answer's own kind.
    first, kinds, measured = after[0], describing(answer), answer[-1].amount
    free = vocabulary("function", "tell", "change", "kind", "title")
    for at, word in enumerate(after):
        key, asks = word.key, word.key in asked.words
        if (
            key in vocabulary("verb")
            or key in kinds
            or (asks and key not in vocabulary("function"))
        ):
            break
        if (word.amount is None) == (measured is None) and not (asks or key in free):
            # Names of regions are looked for in up to three words.
            if not any(lies_in(answer, after[at:end]) for end in range(at + 1, at + 4)):
                return False
            break

    begins_anew, told = (
        "," in first.gap,
        first.key in asked.words or first.key in vocabulary("tell"),
    )
    if begins_anew and read_region(after):
        return lies_in(answer, after)
    if all(word.key in vocabulary("kind") or word.key in asked.words for word in after):
        return not begins_anew
    if len(after) == 1 and measured:
        return not first.is_name and measured.unit.dimension in ("", "place")
    if told and not first.is_name:
        return True
    # An apposition: "Paris, the capital of France", "Louis I, Grand Duke of Hesse".
    named = first.key in vocabulary("title") if first.is_name else not read_region(after[:1])
    return begins_anew and named and not any("," in word.gap for word in after[1:])


def _may_lack(asked: Asked, before: _Words, after: _Words, given: _Words) -> bool:
    """Words before and behind the given ones only say what is known anyway."""
    if any(word.is_name and word.key not in vocabulary("form", "title") for word in before):
        return False
    if not given[0].is_name and not vocabulary("lead").issuperset(keys(before)):
        return False
    if after and "," in after[0].gap:
        return after[0].key == "by" or asked.person
    known = vocabulary("kind") | (vocabulary("asked kind") & asked.words)
    return (asked.person and keys(after[:1]) == ("of",)) or known.issuperset(keys(after))


def said_in(text: str, stage: str) -> list[str]:
    """Answers that a text joins, as alternatives or as a list: the stages joins and lists."""
    parts = rewrite(text, stage).split("|")
    return [part.strip(" .,") for part in parts if read(part)]


def _same_list(asked: Asked, gold: str, given: str) -> bool:
    mine, other = said_in(gold, "lists"), said_in(given, "lists")
    if len(mine) < 2 or len(mine) != len(other):
        return False
    for item in mine:
        equal = (o for o in other if _same_item(asked, item, o))
        if (found := next(equal, None)) is None:
            return False
        # An item stands for one of the other list, and no more.
        other.remove(found)
    return True


def _same_item(asked: Asked, gold: str, given: str) -> bool:
    alike = _alike_run(asked, read(gold), read(given)) or _is_acronym(given, gold)
    return alike or same_person(gold, given, asked_for=True) != ""

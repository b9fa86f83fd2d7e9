"""Words of the right answer that a prediction may leave out."""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.judge.leftover import (
    all_capital,
    all_kinds,
    at_commas,
    is_figure,
    is_form,
    is_named_word,
    is_organisation,
    is_ship,
    kinds_fit,
    region_run,
)
from ssp_env.judge.reading import Asked
from ssp_env.judge.vocabularies import (
    ADJECTIVES,
    CHANGES,
    FUNCTION,
    JOINS,
    KINDS,
    LITTLE,
    MUSEUMS,
    PEOPLES_KEYS,
    PLACE,
    TEAMS,
    TURNS,
)
from ssp_env.wording.names import PARTICLES, TITLES
from ssp_env.wording.words import Word, keys, stem


def may_miss_lead(about: Asked, before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether a prediction may leave out these words before what it says of the answer."""
    if not before:
        return True
    if is_ship(before, answer):
        return True
    if keys(before) == ("usa",) and answer[0].key in ("route", "highway"):
        return True
    if before[0].key in MUSEUMS and all(word.key in PARTICLES for word in before[1:]):
        return True
    last = before[-1]
    # A team goes by its nickname.
    nickname = len(answer) == 1 and answer[0].key.endswith("s") and answer[0].is_capital
    if nickname and all(word.is_capital for word in before) and TEAMS & about.stems:
        return True
    if "currency" in about.stems and all(word.key in PEOPLES_KEYS for word in before):
        return True
    if before[0].key == "isle":
        return False
    if is_form(before, answer) or all_kinds(before):
        return is_form(before, answer) or kinds_fit(about, before, answer)
    if keys(before) == ("university", "of"):
        return bool(KINDS["university"] & about.stems)
    if any(word.key in TURNS or is_figure(word) for word in before):
        return False
    if last.key == "of" and not before[0].is_capital and before[0].key in ("summit", "top", "city"):
        return True
    # "The Prisoner of Azkaban", where a Harry Potter book is asked for.
    series = last.key == "and" and len(before) > 2 and len(answer) > 1
    if series and all(stem(word.key) in about.stems for word in before[:-1]):
        return True
    if last.key in JOINS or any(word.key in CHANGES for word in before):
        return False
    if all(word.key in LITTLE and not word.is_capital for word in before):
        return True
    # Words that only say what the name is.
    if answer[0].is_capital and all(
        not word.is_capital or word.key in PEOPLES_KEYS or word.key in TITLES for word in before
    ):
        return about.person or not all(word.key in TITLES for word in before)
    return False


def may_miss_trail(about: Asked, after: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether a prediction may leave out these words behind what it says of the answer."""
    if not after:
        return True
    first = after[0]
    if "," in first.gap and not is_organisation(answer):
        if region_run(after) is not None:
            return True
        listed = len(at_commas(after)) > 1 or any(word.key in ("and", "or") for word in after)
        placed = about.person or first.key == "by" or bool(PLACE & about.stems)
        return not listed and placed and answer[0].is_capital
    if keys(after) == ("dc",) and keys(answer) == ("washington",):
        return "state" not in about.stems
    # "Burj Khalifa in Dubai", but "The Catcher in the Rye".
    if first.key in ("in", "at") and len(answer) > 1 and all_capital((*answer, after[-1])):
        return True
    if keys(answer) == ("new", "york") and keys(after) == ("city",):
        return "state" not in about.stems
    if all_kinds(after) and answer[-1].key not in ADJECTIVES:
        return kinds_fit(about, after, answer) and (len(answer) > 1 or _is_named(about, after))
    # "Hogwarts School of Witchcraft and Wizardry".
    if keys(after[:2]) in (("school", "of"), ("college", "of"), ("academy", "of")):
        return answer[0].is_capital and first.key in about.stems
    # "B-17 Flying Fortress bomber".
    if len(answer) > 1 and all_capital(answer) and not any(map(is_named_word, after)):
        return len(after) == 1 and after[0].key not in FUNCTION
    return keys(after) == ("motor", "co")


def _is_named(about: Asked, after: Sequence[Word]) -> bool:
    """Whether the question or custom makes clear what a single word stands for."""
    return any(
        KINDS[stem(w.key)] & about.stems
        or stem(w.key) in about.stems
        or (stem(w.key) in ("fc", "afc", "cf") and not TEAMS.isdisjoint(about.stems))
        or stem(w.key) in ("inc", "ltd", "corp", "ocean", "desert", "co", "language")
        or not w.is_capital
        for w in after
    )

"""The judge by rules: right under another wording, wrong for a near miss, without a model.

An answer is taken for what it is, in this order: yes or no, a date, a number with its unit, then a
name or other text. Text is right where one wording holds the other and the words left over are of
a kind that changes nothing: the rules below say which. What they decide in open cases:

- More detail is right, less is not: ``8 December 1985`` for ``1985``, not the other way round,
  unless the question asks for a year.
- A surname is enough where the question asks for a person; a first name is not.
- ``Portland`` and ``Portland, Oregon`` are one, unless both name a region and they differ.
- Several answers are wrong where one is asked for ("Paris or London"), whatever they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ssp_env.errors import ServiceError
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.judge.leftover import TURNS, may_lead
from ssp_env.judge.reading import Asked, asked, readings, told
from ssp_env.judge.same_text import elsewhere, same_text, without_brackets
from ssp_env.wording.answers import normalise
from ssp_env.wording.dates import DATE_WORDS, Date, agrees, dates, year
from ssp_env.wording.names import names_in_full
from ssp_env.wording.numbers import MONEY, NUMBER_WORDS, UNITS, Quantity, quantity, same_amount
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, compact, keys, spelled_words, stem, words

LONGEST = 1_000
"""Characters of a text that is read as people would; a longer one has to be the same words."""

_ALTERNATIVES = re.compile(r"\s*[;|]\s*|\s+[/+]\s+|(?<=[^\W\d_]{3})/(?=[A-Z][^\W\d_]{2})")
"""Between answers of which several are offered."""
_SHORT_YEAR = re.compile(r"['’]\d\d")
_NOUGHT = {("none",), ("0",), ("nil",)}
_RANKS = vocabulary("first second third last")
_SHARE = vocabulary("percent percentage share proportion rate fraction much")
_PRICE = vocabulary("much cost price pay paid worth dollar money salary revenue sold budget")


class LenientJudge:
    """Right when the prediction says the same as the answer or an alias, by rules."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """One verdict per task, in order, with the alias that matched; never a ``ServiceError``."""
        return [_verdict(task) for task in tasks]


def _verdict(task: JudgeTask) -> Verdict:
    matched = matching(task.question, task.prediction, task.truth.wordings)
    if matched is None or matched == task.truth.answer:
        return Verdict(matched is not None)
    return Verdict(True, f"as {matched!r}")


def matching(question: str, prediction: str, wordings: Sequence[str]) -> str | None:
    """The wording that the prediction says the same as, or ``None``.

    What is longer than :data:`LONGEST` is compared by its normal form alone: it has to be the same
    words. That costs time in proportion to its length, and an answer is never as long.

    Args:
        question: what was asked; it decides whether a surname or a year is enough. May be empty.
        prediction: what was answered.
        wordings: right answers, each enough.
    """
    if len(prediction) > LONGEST or len(question) > LONGEST:
        return _same_normal_form(prediction, wordings)
    if any(len(wording) > LONGEST for wording in wordings):
        long = [wording for wording in wordings if len(wording) > LONGEST]
        wordings = [wording for wording in wordings if len(wording) <= LONGEST]
        if not wordings:
            return _same_normal_form(prediction, long)

    about = asked(question)
    read = [*readings(prediction)]
    if read and len(offered := _alternatives(about, wordings, read[0])) > 1:
        found = [next((w for w in wordings if _same(about, w, one)), None) for one in offered]
        return None if None in found else found[0]
    read += [part for text in read[:1] for part in told(about, text)]
    if len(wordings) > 1 and "," in prediction and elsewhere(wordings, prediction):
        return None
    for wording in wordings:
        if any(_same(about, wording, reading) for reading in read):
            return wording
    # "George Orwell" for "Orwell", unless an alias has the first name.
    if len(wordings) == 1 and about.person and any(names_in_full(wordings[0], r) for r in read):
        return wordings[0]
    if len(wordings) > 1 and read:
        return _all_right(about, wordings, read[0])
    return None


def _same_normal_form(prediction: str, wordings: Sequence[str]) -> str | None:
    normal = normalise(prediction)
    return next((w for w in wordings if normal and normalise(w) == normal), None)


def _alternatives(about: Asked, wordings: Sequence[str], prediction: str) -> list[str]:
    """The answers between which a prediction leaves the choice (``Bob / Carl``); none if one."""
    parts = [part for part in _ALTERNATIVES.split(prediction) if words(part)]
    if len(parts) < 2 or any(_ALTERNATIVES.search(w) or len(_parts(w)) > 1 for w in wordings):
        return []

    # Several wordings may list what is right, and a sentence may go on behind a semicolon.
    if len(wordings) > 1 and _all_right(about, wordings, prediction):
        return []
    return parts if all(part[0].isupper() or part[0].isdigit() for part in parts) else []


def _all_right(about: Asked, wordings: Sequence[str], prediction: str) -> str | None:
    """A list of nothing but right answers is right: which of them were found, or ``None``."""
    parts = _parts(prediction)
    if not 2 <= len(parts) <= len(wordings):
        return None
    found = [next((w for w in wordings if _same(about, w, part)), None) for part in parts]
    return "; ".join(filter(None, found)) if None not in found else None


def _same(about: Asked, gold: str, given: str) -> bool:
    mine, other = words(gold), words(given)
    if not mine or not other:
        return not mine and bool(gold.split()) and gold.split() == given.split()
    mine_keys, other_keys = keys(mine), keys(other)
    if mine_keys == other_keys:
        return True
    if about.is_count and {mine_keys, other_keys} <= _NOUGHT:
        return True
    if mine_keys in (("yes",), ("no",)):
        # "Yes, both are" is yes; "yes and no" is neither.
        return other_keys[0] == mine_keys[0] and (
            len(other) == 1 or other_keys[1] not in ("and", "or", "but")
        )

    # "1,642 meters (5,387 ft)": the brackets say it in another unit.
    if "(" in given and (converted := _without_conversion(given)) is not None:
        return _same(about, gold, converted)
    month = len(mine) == 1 and mine_keys[0] in DATE_WORDS and not about.person
    if month or any(map(_has_digit, mine_keys)):
        decided = _same_figures(about, mine, other)
        if decided is not None:
            return decided
    if compact(mine_keys) == compact(other_keys):
        return True
    if same_text(about, gold, given):
        return True
    if not (gold.isascii() and given.isascii()):
        spelled, also = spelled_words(gold), spelled_words(given)
        if compact(keys(spelled)) == compact(other_keys) or compact(keys(also)) == compact(
            mine_keys
        ):
            return True
    return _same_list(about, gold, given)


def _without_conversion(given: str) -> str | None:
    for outside, inside in without_brackets(given):
        left, right = (_quantity(keys(words(text))) for text in (outside, inside))
        if left and right and left.unit and right.unit and same_amount(left, right):
            return outside
    return None


def _same_figures(about: Asked, right: Sequence[Word], other: Sequence[Word]) -> bool | None:
    """Compares dates and quantities; ``None`` where the right answer is neither."""
    gold = keys(right)
    run = _figures(about, other)
    # "'77", where a year is asked for.
    if about.is_year and len(other) == 1 and _SHORT_YEAR.fullmatch(other[0].gap + other[0].cased):
        return len(gold) == 1 and len(gold[0]) == 4 and gold[0].endswith(other[0].key)
    if run is None:
        return None
    given = keys(run)
    if gold == given:
        return True
    mine = _dates(gold)
    if mine:
        given = given if _dates(given) else keys(_date_alone(run))
        return _same_date(about, mine, given)
    if (wanted := year(gold)) is not None and not about.is_count:
        theirs = _dates(given)
        if theirs:
            return any(date.year == wanted for date in theirs)
        if (said := year(given)) is not None:
            return said == wanted
        if given == (str(wanted),):
            return True
    right_amount = _quantity(gold)
    if right_amount is None:
        return None
    said_amount = _quantity(given)
    if said_amount is not None and not right_amount.noun and _is_title(about, run):
        return None
    # "737" is less than "737 MAX".
    if said_amount is not None and not said_amount.noun and _is_title(about, right):
        return None
    return None if said_amount is None else _same_quantity(about, right_amount, said_amount)


def _figures(about: Asked, run: Sequence[Word]) -> Sequence[Word] | None:
    """The date or quantity in a sentence that says nothing else; ``None`` if there is none."""
    marks = [at for at, word in enumerate(run) if _has_digit(word.key) or word.key in DATE_WORDS]
    # "It first aired on ...": a rank that is told on the way.
    later = [at for at in marks if run[at].cased not in _RANKS]
    marks = later or marks
    if not marks:
        return None
    start, end = marks[0], marks[-1] + 1
    while start and (run[start - 1].key in NUMBER_WORDS or stem(run[start - 1].key) in UNITS):
        start -= 1
    return run[start:] if may_lead(about, run[:start], run[start:end]) else None


def _date_alone(run: Sequence[Word]) -> Sequence[Word]:
    """A run without what is told behind its date ("22 September 1994 on NBC")."""
    end = max(
        at + 1 for at, word in enumerate(run) if _has_digit(word.key) or word.key in DATE_WORDS
    )
    return run if any(word.key in TURNS or word.key == "and" for word in run[end:]) else run[:end]


def _is_title(about: Asked, run: Sequence[Word]) -> bool:
    """Whether a number stands in a name ("Seven Samurai")."""
    return any(
        word.is_capital
        and stem(word.key) not in about.stems
        and stem(word.key) not in UNITS
        and word.key not in ("usa",)
        for word in run[1:]
    )


@lru_cache(maxsize=16384)
def _dates(run: tuple[str, ...]) -> tuple[Date, ...]:
    return dates(run) if len(run) <= 8 else ()


def _quantity(run: tuple[str, ...]) -> Quantity | None:
    return quantity(tuple(map(stem, run))) if len(run) <= 12 else None


def _same_date(about: Asked, gold: Sequence[Date], given: tuple[str, ...]) -> bool | None:
    theirs = _dates(given)
    if not theirs:
        said = year(given)
        if said is None:
            return None
        theirs = (Date(said),)
    # Where only the year is asked for, it is all that has to be right.
    wanted = [Date(date.year) for date in gold] if about.is_year else gold
    return any(agrees(mine, other) for mine in wanted for other in theirs)


def _same_quantity(about: Asked, gold: Quantity, given: Quantity) -> bool | None:
    """Whether two quantities are one; ``None`` where only the words behind the number differ."""
    degrees = given.unit == UNITS["degree"] and gold.unit is not None
    if degrees and gold.unit is not None and gold.unit.dimension == "temperature":
        return gold.value == given.value and (not about.units or gold.unit in about.units)
    if gold.unit == UNITS["gbp"] and given.noun == ("pound",):
        return gold.value == given.value
    if not same_amount(gold, given):
        return False
    if given.bound and given.bound != gold.bound:
        return False
    if gold.unit and given.unit:
        return gold.unit.dimension == given.unit.dimension

    # Whoever leaves a unit out means the one asked for; a percent sign or a currency changes what
    # a number says unless the question is about one.
    if gold.unit or given.unit:
        unit = gold.unit or given.unit
        noun = given.noun if gold.unit else gold.noun
        assert unit is not None
        if noun and not set(noun) <= about.stems:
            return False
        if given.unit and about.units and unit not in about.units:
            return False
        # "How many players" is not answered by months, nor an age by anything but years.
        if given.unit and "many" in about.stems and unit not in about.units:
            return False
        if unit.dimension == "time" and "age" in about.stems and unit != UNITS["year"]:
            return False
        if unit.dimension == "share":
            return bool(_SHARE & about.stems)
        return unit.dimension not in MONEY or bool(_PRICE & about.stems)
    if not given.noun:
        return True
    known = set(gold.noun) | about.stems | _FILLERS
    if set(given.noun) <= known or set(gold.noun) <= set(given.noun):
        return True if gold.noun or len(given.noun) <= 3 else None
    return None


_FILLERS = vocabulary("in total of people time altogether overall there")


def _same_list(about: Asked, gold: str, given: str) -> bool:
    """Whether both are lists of the same things, in any order."""
    mine, other = _parts(gold), _parts(given)
    if len(mine) < 2 or len(mine) != len(other):
        return False
    left = list(other)
    for part in mine:
        found = next((o for o in left if _same_part(about, part, o)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _same_part(about: Asked, gold: str, given: str) -> bool:
    mine, other = words(gold), words(given)
    if not mine or not other:
        return False
    if compact(keys(mine)) == compact(keys(other)) or same_text(about, gold, given):
        return True
    # "Rodgers and Hammerstein" are known by their surnames.
    return len(mine) == 1 and mine[0].is_capital and names_in_full(gold, given, suffix=True)


@lru_cache(maxsize=16384)
def _parts(text: str) -> tuple[str, ...]:
    """What a text lists."""
    for mark in (" and ", " & ", ";", " / "):
        text = text.replace(mark, ",")
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


def _has_digit(key: str) -> bool:
    return key[-1].isdigit() or key[0].isdigit()

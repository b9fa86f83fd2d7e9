"""Answers that are dates or numbers: what they say, and whether two say the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ssp_env.judge.leftover import may_lead
from ssp_env.judge.reading import Asked
from ssp_env.judge.vocabularies import TURNS
from ssp_env.wording.dates import DATE_WORDS, Date, agrees, dates, year
from ssp_env.wording.numbers import NUMBER_WORDS, Quantity, quantity, same_amount
from ssp_env.wording.units import MONEY, UNITS
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, keys, stem

_SHORT_YEAR = re.compile(r"['’]\d\d")
_RANKS = vocabulary("first second third last")
_SHARE = vocabulary(
    "percent percentage share proportion rate fraction much inflation unemployment turnout tax"
)
_PRICE = vocabulary("much cost price pay paid worth dollar money salary revenue sold budget")
_TOLD = vocabulary("at in on for as by during to with which when since")
_UNSAID = TURNS | vocabulary("no and half some every each another more less other")
_DECADE = re.compile(r"\d{3}0s")
_WHEN = vocabulary("when year date")
_BEGINNINGS = vocabulary(
    "began begin started start from since released founded established opened born died in on"
)
_SPANS = vocabulary("from to until till through and between of")
_SCORES = vocabulary(
    "record score final result of and to with win won loss lost draw tie game match season regular"
)


def same_figures(about: Asked, right: Sequence[Word], other: Sequence[Word]) -> bool | None:
    """Compares dates and quantities; ``None`` where the right answer is neither."""
    gold = keys(right)
    run = _figures(about, other)
    # "'77", "in '77", where a year is asked for.
    short = [word for word in other if word.key != "in"]
    when = len(short) == 1 and (_is_when(about) or about.is_year)
    if when and _SHORT_YEAR.fullmatch(short[0].gap + short[0].cased):
        return len(gold) == 1 and len(gold[0]) == 4 and gold[0].endswith(short[0].key)
    if run is None:
        return None
    given = keys(run)
    if gold == given:
        return True
    mine = _dates(gold) or _dates(_told_date(right))
    if mine:
        given = given if _dates(given) else keys(_date_alone(run))
        return _same_date(about, mine, given)
    if (wanted := year(gold)) is not None and not about.is_count:
        if _is_when(about) and _only_year(other) == wanted:
            return True
        theirs = _dates(given)
        if theirs:
            return any(date.year == wanted for date in theirs)
        if (said := year(given)) is not None:
            return said == wanted
        if given == (str(wanted),):
            return True
    named = about.stems & {"decade", "century"}
    if not named and (within := _span_of(gold)) and (said := _only_year(other)) is not None:
        return within[0] <= said <= within[1]
    right_amount = read_quantity(gold)
    if right_amount is None:
        return None
    said_amount = read_quantity(given)
    if said_amount is None or said_amount.unit is None:
        said_amount = _amount_alone(run) or said_amount
    if said_amount is not None and not right_amount.noun and _is_title(about, run):
        return None
    # "737" is less than "737 MAX".
    if said_amount is not None and not said_amount.noun and _is_title(about, right):
        return None
    return None if said_amount is None else _same_quantity(about, right_amount, said_amount)


def _figures(about: Asked, run: Sequence[Word]) -> Sequence[Word] | None:
    """The date or quantity in a sentence that says nothing else; ``None`` if there is none."""
    marks = [at for at, word in enumerate(run) if has_digit(word.key) or word.key in DATE_WORDS]
    # "It first aired on ...": a rank that is told on the way.
    later = [at for at in marks if run[at].cased not in _RANKS]
    marks = later or marks
    if not marks:
        return None
    start, end = marks[0], marks[-1] + 1
    while start and (run[start - 1].key in NUMBER_WORDS or stem(run[start - 1].key) in UNITS):
        start -= 1
    # "Abraham Lincoln died on April 15, 1865": it tells of no other figure.
    lead = run[:start]
    plain = bool(lead) and not lead[-1].is_capital and len(lead) > 2
    if plain and not any(has_digit(w.key) or w.key in _UNSAID for w in lead):
        return run[start:]
    return run[start:] if may_lead(about, lead, run[start:end]) else None


def _date_alone(run: Sequence[Word]) -> Sequence[Word]:
    """A run without what is told behind its date ("22 September 1994 on NBC")."""
    end = max(
        at + 1 for at, word in enumerate(run) if has_digit(word.key) or word.key in DATE_WORDS
    )
    return run if any(word.key in TURNS or word.key == "and" for word in run[end:]) else run[:end]


def _amount_alone(run: Sequence[Word]) -> Quantity | None:
    """An amount with its unit, without what is told behind it ("£3.2m at auction")."""
    for end in range(2, min(len(run), 8)):
        told = run[end:]
        if told[0].key not in _TOLD or any(has_digit(w.key) or w.key in TURNS for w in told):
            continue
        amount = read_quantity(keys(run[:end]))
        return amount if amount is not None and amount.unit is not None else None
    return None


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


def read_quantity(run: tuple[str, ...]) -> Quantity | None:
    """Reads keys of words as a quantity; nothing where they are many."""
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
    # "One eighth" of the vote is 12.5 %; three centuries are 300 years.
    if gold.unit == UNITS["percent"] and given.unit is None and 0 < given.value < 1:
        return not given.noun and abs(100 * given.value - gold.value) < 0.5
    if about.is_count and gold.noun == ("century",) and given.unit == UNITS["year"]:
        return gold.value * 100 == given.value
    if not same_amount(gold, given) or ("bc" in gold.noun) is not ("bc" in given.noun):
        return False
    if given.bound and given.bound != gold.bound and not _is_round(given):
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


def same_run_of_figures(gold: tuple[str, ...], given: tuple[str, ...]) -> bool:
    """Whether two spans of years or two scores are one, whatever words stand between.

    ``November 1986 until May 2013`` says what ``from 1986 to 2013`` does, ``13 wins and 3 losses``
    what ``a record of 13–3`` does.
    """
    for between in (_SPANS, _SCORES):
        spans = between is _SPANS
        left, right = (_numbers(run, between, spans) for run in (gold, given))
        if left is not None and len(left) > 1 and left == right:
            # "1986 to 2013" tells less than "May 1986 to June 2013".
            months = [{key for key in run if key in DATE_WORDS} for run in (gold, given)]
            return months[0] <= months[1]
    return False


def _numbers(run: tuple[str, ...], between: frozenset[str], spans: bool) -> tuple[str, ...] | None:
    """The figures of a run, of a span of time its years; ``None`` where it says anything else."""
    figures: list[str] = []
    for key in run:
        if key.isdigit() and (not spans or len(key) == 4):
            figures.append(key)
        elif spans and (key in DATE_WORDS or key.isdigit()):
            continue
        elif stem(key) not in between and key not in between:
            return None
    return tuple(figures)


def _told_date(run: Sequence[Word]) -> tuple[str, ...]:
    """A date without the verb in front of it (``began 10 July 1951``)."""
    at = next((i for i, word in enumerate(run) if word.key not in _BEGINNINGS), 0)
    return keys(run[at:]) if at else ()


def _span_of(run: tuple[str, ...]) -> tuple[int, int] | None:
    """The first and last year of a decade (``in the 1960s``) or a century."""
    bare = [key for key in run if key not in ("in", "early", "late", "mid", "during")]
    if len(bare) == 1 and len(bare) == len(run) - ("in" in run) and _DECADE.fullmatch(bare[0]):
        return int(bare[0][:4]), int(bare[0][:4]) + 9
    if len(bare) == len(run) == 2 and bare[1] == "century" and bare[0].isdigit():
        return int(bare[0]) * 100 - 99, int(bare[0]) * 100
    return None


def _is_when(about: Asked) -> bool:
    return bool(about.stems & _WHEN)


def _only_year(run: Sequence[Word]) -> int | None:
    """The year in a text that has no other figure (``the 2017 Grand Final``)."""
    figures = [word.key for word in run if has_digit(word.key)]
    if len(figures) != 1 or any(w.key in TURNS or w.key in ("bc", "and", "by") for w in run):
        return None
    return year(figures)


def _is_round(amount: Quantity) -> bool:
    """Whether "more than" it says no more than it does: a large number with few digits."""
    digits = f"{amount.value:.0f}".rstrip("0")
    return amount.bound == ">" and amount.value >= 1000 and len(digits) <= 3


def has_digit(key: str) -> bool:
    """Whether a word is a figure."""
    return key[-1].isdigit() or key[0].isdigit()

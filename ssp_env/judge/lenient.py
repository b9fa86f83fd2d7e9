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
from ssp_env.judge.brackets import without_brackets
from ssp_env.judge.choices import prefers
from ssp_env.judge.figures import has_digit, read_quantity, same_figures, same_run_of_figures
from ssp_env.judge.reading import Asked, asked, readings, told
from ssp_env.judge.restated import list_said, same_bag, same_beside_question, same_besides_asked
from ssp_env.judge.same_text import elsewhere, same_text
from ssp_env.judge.spelling import spelled_alike
from ssp_env.judge.yes_no import says_yes
from ssp_env.wording.answers import normalise
from ssp_env.wording.dates import DATE_WORDS
from ssp_env.wording.names import names_in_full
from ssp_env.wording.numbers import same_amount
from ssp_env.wording.words import compact, keys, spelled_words, stem, words

LONGEST = 1_000
"""Characters of a text that is read as people would; a longer one has to be the same words."""

_ALTERNATIVES = re.compile(r"\s*[;|]\s*|\s+[/+]\s+|(?<=[^\W\d_]{3})/(?=[A-Z][^\W\d_]{2})")
"""Between answers of which several are offered."""
_VERSUS = re.compile(r"/| (?:vs\.?|versus|against) ")
_DASH = re.compile(r"(?<=[^\W\d_])[–—](?=[^\W\d_])")
_NOUGHT = {("none",), ("0",), ("nil",)}


class LenientJudge:
    """Right when the prediction says the same as the answer or an alias, by rules."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """One verdict per task, in order, with the alias that matched; never a ``ServiceError``."""
        # Attempts at one question often say the same.
        said = [(task.question, task.prediction, task.truth.wordings) for task in tasks]
        verdicts = {
            key: _verdict(task) for key, task in dict(zip(said, tasks, strict=True)).items()
        }
        return [verdicts[key] for key in said]


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
    for wording in wordings:
        if wording.lower().strip(". ") in ("yes", "no") and _same(about, wording, prediction):
            return wording
    read = [*readings(prediction)]
    # "Almost Famous" denies nothing where that is the answer.
    if not read:
        said = keys(words(prediction))
        return next((w for w in wordings if said and keys(words(w)) == said), None)
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
    parts = _parts(_VERSUS.sub(",", prediction))
    if not 2 <= len(parts) <= len(wordings):
        return None
    found = [next((w for w in wordings if _is_named(about, w, part)), None) for part in parts]
    return "; ".join(filter(None, found)) if None not in found else None


def _is_named(about: Asked, gold: str, given: str) -> bool:
    return _same(about, gold, given) or (about.person and names_in_full(gold, given))


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
        return says_yes(about, given) is (mine_keys == ("yes",))

    # "1,642 meters (5,387 ft)": the brackets say it in another unit.
    if "(" in given and (converted := _without_conversion(given)) is not None:
        return _same(about, gold, converted)
    month = len(mine) == 1 and mine_keys[0] in DATE_WORDS and not about.person
    if month or any(map(has_digit, mine_keys)):
        decided = same_figures(about, mine, other)
        if decided is not None:
            return decided
        if same_run_of_figures(mine_keys, other_keys):
            return True
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
    if prefers(about, mine, other) or same_beside_question(about, mine, other):
        return True
    if same_besides_asked(about, mine, other):
        return True
    if same_bag(about, mine, other) or spelled_alike(mine, other):
        return True
    if "/" in gold and any(_same(about, part, given) for part in _either(gold)):
        return True
    if (listed := list_said(about, gold, other)) and _same_list(about, gold, listed):
        return True
    return _same_list(about, gold, given)


def _either(gold: str) -> list[str]:
    """Two names of one thing with a slash between (``Bajo Cinca/Baix Cinca``)."""
    parts = [part.strip() for part in gold.split("/")]
    names = len(parts) == 2 and all(part[:1].isupper() for part in parts)
    return parts if names and any(" " in part for part in parts) else []


def _without_conversion(given: str) -> str | None:
    for outside, inside in without_brackets(given):
        left, right = (read_quantity(keys(words(text))) for text in (outside, inside))
        if left and right and left.unit and right.unit and same_amount(left, right):
            return outside
    return None


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
    # "Wilbur", where the Wright brothers are asked for.
    bare = [[w.key for w in run if stem(w.key) not in about.stems] for run in (mine, other)]
    if bare[0] and bare[0] == bare[1]:
        return True
    # "Rodgers and Hammerstein" are known by their surnames.
    if len(other) == 1 and other[0].is_capital and names_in_full(given, gold, suffix=True):
        return True
    return len(mine) == 1 and mine[0].is_capital and names_in_full(gold, given, suffix=True)


@lru_cache(maxsize=16384)
def _parts(text: str) -> tuple[str, ...]:
    """What a text lists."""
    text = _DASH.sub(",", text)
    for mark in (" and ", " & ", ";", " / "):
        text = text.replace(mark, ",")
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)

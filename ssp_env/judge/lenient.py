"""The judge by rules: right under another wording, wrong for a near miss, without a model.

A prediction is stripped of what is said around an answer, and has to be one answer: names that are
joined by "or", "also known as", brackets, dashes and the like are several guesses, and right only
if each is a wording of the truth. ``docs/judges.md`` says when one answer says the same as another.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from ssp_env.errors import ServiceError
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.judge.equivalence import (
    Asked,
    choosing,
    describing,
    difference,
    read_question,
    said_in,
    same_answer,
)
from ssp_env.judge.names import read_region
from ssp_env.judge.quantities import plain_figures
from ssp_env.judge.reading import keys, read, unread_script
from ssp_env.judge.tables import rewrite, rules, vocabulary
from ssp_env.wording.normal import in_latin, normalise

_log = logging.getLogger(__name__)
LONGEST = 300
"""Characters of a text that is read as people would; a longer one has to be the same words."""


class LenientJudge:
    """Right when the prediction says the same as the answer or an alias, by rules."""

    def __init__(self) -> None:
        self._warned = False

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """A verdict's detail is its reason, and the alias that matched."""
        if not self._warned:
            scripts = [script for task in tasks if (script := unread_script(task.truth.answer))]
            if scripts:
                self._warned = True
                _log.warning(
                    "%d of %d answers are in letters that the judge lenient only compares (%s): "
                    "it reads English and Chinese; judge=openai reads more",
                    *(len(scripts), len(tasks), ", ".join(sorted({*scripts}))),
                )
        return [verdict(task.question, task.prediction, task.truth.wordings) for task in tasks]


# Attempts at one question often say the same.
@lru_cache(maxsize=16384)
def verdict(question: str, prediction: str, wordings: tuple[str, ...]) -> Verdict:
    """The verdict on a prediction, with its reason.

    >>> verdict("Who was it?", "Bill Clinton", ("William Jefferson Clinton", "Clinton"))
    Verdict(correct=True, detail='first name in use')
    >>> verdict("How far is it?", "7 mm", ("7 µm",))
    Verdict(correct=False, detail='other numbers')
    """
    wording, reason = _matched(question, prediction, wordings)
    alias = wording not in (None, wordings[0])
    return Verdict(wording is not None, f"{reason}, as {wording!r}" if alias else reason)


def _matched(question: str, prediction: str, wordings: Sequence[str]) -> tuple[str | None, str]:
    """The wording that the prediction says, if any, and why."""
    # Equal words first, then the rules of a single answer, at last those of several.
    normal = _normal(prediction)
    if not normal:
        return None, "no answer"
    for wording in wordings:
        if _normal(wording) == normal and _same_signs(wording, prediction):
            return wording, "equal words"
    if len(prediction) > LONGEST:
        return None, f"longer than {LONGEST} characters"

    said = _stripped(prediction, question)
    if not said:
        return None, "an evasion"
    # What is compared leads back to the wording that it stands for, which the verdict names.
    wanted = {_meant(question, wording): wording for wording in wordings if len(wording) <= LONGEST}
    if _is_elsewhere(wanted, said):
        return None, "another region"
    golds = {other: w for gold, w in wanted.items() for other in _variants(gold, said)}
    asked = choosing(read_question(question), golds)
    for gold, wording in golds.items():
        if reason := same_answer(asked, gold, said):
            return wording, reason

    # Several answers, or one with something added: each has to be right, or to say nothing new.
    bare = [gold for gold in golds if "(" not in gold]
    reason = ""
    for stage in ("joins", "lists"):
        parts = said_in(said, stage)
        if len(parts) < 2:
            continue
        found = [next((g for g in bare if same_answer(asked, g, part)), "") for part in parts]
        new = (part for part, gold in zip(parts, found, strict=True) if not gold)
        if found[0] and all(_says_nothing_new(asked, part, found[0]) for part in new):
            return golds[found[0]], "nothing new is added"
        reason = "several answers" if any(found) else reason
    return None, reason or difference(next(iter(golds), ""), said)


_normal = lru_cache(maxsize=8192)(normalise)
_KEPT = re.compile(
    r"(?:(?<![\w)\]])-|(?<=\^)-)?\d[\d.,:/^]*(?:e-?\d+)?|(?<=\w)(?:\+\+|[+#♯♭])|"
    r"(?<=\b[A-Z])(?:-(?!\w)|\*(?![*\w]))|[<>=≤≥±~]|(?<=\s)[aA]\.?$"
)
"""Figures and signs with a meaning, which normal forms lack."""


def _same_signs(one: str, other: str) -> bool:
    """Two texts in one normal form have the same numbers, units and signs with a meaning."""
    units = [[w.amount.unit for w in read(text) if w.amount] for text in (one, other)]
    if all(unit.dimension for unit in (*units[0], *units[1])) and units[0] != units[1]:
        return False
    return one == other or _signs(one) == _signs(other)


def _signs(text: str) -> list[str]:
    return [plain_figures(sign.lower()).rstrip(".,:/") for sign in _KEPT.findall(in_latin(text))]


_ORDER = re.compile(r"(?i)\b(?:place|position|rank|number|order|edition|season|amendment|century)")


def _meant(question: str, text: str) -> str:
    """The text, where "the second" is a time unless the question speaks of an order."""
    return "seconds" if text.lower() == "the second" and not _ORDER.search(question) else text


def _stripped(prediction: str, question: str) -> str:
    """The prediction without what is said around an answer; nothing where it evades."""
    text, before = rewrite(in_latin(prediction), "marks").strip(), ""
    if re.match(r"(?:yes|no)\b", text, re.IGNORECASE):
        return text  # "No, they were not" does not evade
    subject, verb, answer = text.partition("是")  # what the question says, and the answer
    text = answer if verb and subject and subject in question else text
    # What one rule takes away may bring up what another one looks for.
    while text != before:
        before, text = text, rewrite(text, "before") or text
    evades = any(pattern.search(text) for _, pattern, _ in rules("evasive"))
    return "" if evades else text.strip()


_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")


def _variants(wording: str, said: str) -> Iterator[str]:
    """A right wording; also a town without its region, each of two with a slash between, and, if
    nothing that is said has brackets, the wording without its own."""
    yield wording
    town, _, behind = wording.partition(",")
    if read_region(read(behind)):
        yield town
    outside = " ".join(_BRACKETS.sub(" ", wording).split())
    if outside and "(" not in said:
        yield outside
    if re.fullmatch(r"[A-Z][^/]* [^/]*/ ?[A-Z][^/]*", wording):
        yield from filter(str.strip, wording.split("/"))


def _is_elsewhere(wordings: Iterable[str], said: str) -> bool:
    """A town in another region than wordings say: Portland, Maine for Portland, Oregon."""
    town, _, behind = said.partition(",")
    given = read_region(read(behind))
    places = [read_region(read(w.partition(",")[2])) for w in wordings if w.startswith(f"{town},")]
    known = [place for place in places if place]
    near = (place.name in given or given.name == place.country for place in known) if given else ()
    return bool(given and known) and not any(near)


def _says_nothing_new(asked: Asked, part: str, gold: str) -> bool:
    """A part that only says what kind of thing the answer is, where it lies, or what was asked."""
    words, free = read(part), describing(read(gold))
    if not vocabulary("turn").isdisjoint(keys(words)):
        return False
    known = vocabulary("function", "asked kind")
    says = all(w.key in known or w.key in asked.words or w.key in free for w in words)
    return bool(free and read_region(words)) or says

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
    country_of,
    describing,
    difference,
    list_items,
    read_question,
    read_region,
    same_answer,
)
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
    asked_in = question + "£" * ("£" in prediction)
    wanted = {_meant(asked_in, wording): wording for wording in wordings if len(wording) <= LONGEST}
    said = _meant(f"{question} {' '.join(wordings)}", said) if "second" not in said else said
    if _is_elsewhere(wanted, said):
        return None, "another region"
    golds = {other: w for gold, w in wanted.items() for other in _variants(gold, said)}
    asked = choosing(read_question(question), golds)
    for gold, wording in golds.items():
        if reason := same_answer(asked, gold, said):
            return wording, reason

    # Several answers, or one with something added: each has to be right, or to say nothing new.
    bare = [gold for gold in golds if "(" not in gold or "(" not in said]
    reason = ""
    for parts in (_guesses(said), list_items(said)) if _MARKED.search(said) else ():
        matches = [next((g for g in bare if same_answer(asked, g, part)), None) for part in parts]
        if len(parts) < 2 or not any(matches):
            continue
        pairs = zip(matches, parts, strict=True)
        if matches[0] and all(
            gold or _says_nothing_new(asked, part, matches[0]) for gold, part in pairs
        ):
            return golds[matches[0]], "nothing new is added"
        reason = "several answers"
    return None, reason or difference(next(iter(golds), ""), said)


_normal = lru_cache(maxsize=8192)(normalise)
_FIGURE = re.compile(r"(?:(?<![\w)\]])-|(?<=\^)-)?\d[\d.,:/^]*(?:e-?\d+)?")
_MEANT = re.compile(
    r"(?<=\w)(?:\+\+|[+#♯♭])|(?<=\b[A-Z])(?:-(?!\w)|\*(?![*\w]))|[<>=≤≥±~]|(?<=\s)[aA]\.?$"
)


def _same_signs(one: str, other: str) -> bool:
    """Two texts with the same letters have the same numbers, units and signs with a meaning."""
    if one == other:
        return True
    texts = in_latin(one), in_latin(other)
    units = [[word.amount.unit for word in read(text) if word.amount] for text in texts]
    if all(unit.dimension for unit in (*units[0], *units[1])) and units[0] != units[1]:
        return False
    figures = [[plain_figures(f).rstrip(".,:/") for f in _FIGURE.findall(text)] for text in texts]
    signs = [[sign.lower() for sign in _MEANT.findall(text)] for text in texts]
    return figures[0] == figures[1] and signs[0] == signs[1]


_ARC = re.compile(r"\barc|°|\bdegree|\bangle|parallax")
_ORDER = re.compile(r"(?i)\b(?:place|position|rank|number|order|edition|season|amendment|century)")
_POUNDS = re.compile(r"(?i)\bpounds?\b(?! sterling)")
_PERIOD = re.compile(r"(?i)\bunits?\b|\bhow long\b|\bmeasure|\bduration\b")


def _meant(question: str, text: str) -> str:
    """The text with primes as parts of an angle, pounds as money, or "the second" as a time, if
    that is what the question, or another answer beside it, speaks of."""
    if "£" in question:
        text = _POUNDS.sub("gbp", text)
    if _ARC.search(question + text):
        text = rewrite(text, "arcs")
    second = re.fullmatch(r"(?i)(the )?second", text)
    if second and (_PERIOD.search(question) or (second[1] and not _ORDER.search(question))):
        return "seconds"
    return text


def _stripped(prediction: str, question: str) -> str:
    """The prediction without what is said around an answer; nothing where it evades."""
    text, before = rewrite(in_latin(prediction), "marks").strip(), ""
    if re.match(r"(?:yes|no)\b", text, re.IGNORECASE):
        return text  # "No, they were not" does not evade
    subject, verb, answer = text.partition("是")  # what the question says, and the answer
    text = answer if verb and subject and subject in question else text
    while text != before:
        before, text = text, rewrite(text, "before") or text
    unsure = " " in text or not text.isascii()
    evades = unsure and any(pattern.search(text) for _, pattern, _ in rules("evasive"))
    return "" if evades else text.strip()


_MARKED = re.compile(
    r"(?i)[^\w\s'’]|\b(?:or|and|alias|aka|that is|namely|(?:known|called) as|called|named|"
    r"alternative|alternatively|maybe|perhaps|possibly|vs|versus)\b|[和与及]|\n"
)
_BRACKETS = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]")


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
    if " / " in wording or re.fullmatch(r"[A-Z][^/]* [^/]*/[A-Z][^/]*", wording):
        yield from filter(str.strip, wording.split("/"))


def _is_elsewhere(wordings: Iterable[str], said: str) -> bool:
    """A town in another region than wordings say: Portland, Maine for Portland, Oregon."""
    town, _, behind = said.partition(",")
    given = read_region(read(behind))
    if given is None:
        return False
    known = {read_region(read(w.partition(",")[2])) for w in wordings if w.startswith(f"{town},")}
    near = known | {country_of().get(place) for place in known if place}
    return bool(known - {None}) and given not in near and country_of().get(given) not in known


_JOINS = re.compile(
    r"\s*[;|\n]\s*|\s+[-–—/+]+\s+|\s*[–—]\s*|(?<=[^\W\d_]{3})/(?=[A-Z])|[.!?:]\s+(?=[A-Z])|"
    r",?\s*\b(?:(?-i:or)|a\.?k\.?a\.?|alias|that is|i\.e\.|namely|(?:(?:better|also|commonly|"
    r"formerly|otherwise|sometimes) )?(?:known|called) as|(?:also|sometimes) (?:called|named)|"
    r"alternatively|alternative|maybe|perhaps|possibly)\b[,:]?\s*",
    re.IGNORECASE,
)


def _guesses(said: str) -> list[str]:
    """Parts of a text: answers that it offers, brackets and further sentences."""
    inside = [a or b for a, b in _BRACKETS.findall(said)]
    outside = _JOINS.split(_BRACKETS.sub(" ", said))
    return [part.strip(" .,") for part in (*outside, *inside) if part and read(part)]


def _says_nothing_new(asked: Asked, part: str, gold: str) -> bool:
    """A part that only says what kind of thing the answer is, where it lies, or what was asked."""
    words, free = read(part), describing(read(gold))
    if not vocabulary("turn").isdisjoint(keys(words)):
        return False
    known = vocabulary("function", "asked kind")
    says = all(w.key in known or w.key in asked.words or w.key in free for w in words)
    return bool(free and read_region(words)) or says

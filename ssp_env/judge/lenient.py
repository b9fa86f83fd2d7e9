"""The judge by rules: right under another wording, wrong for a near miss, without a model.

A prediction is stripped of what is said around an answer, and has to be one answer: names that are
joined by "or", "also known as", brackets, dashes and the like are several guesses, and right only
if each is a wording of the truth. ``docs/judges.md`` says when one answer says the same as another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ssp_env.errors import ServiceError
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.judge.same import (
    Asked,
    choosing,
    country_of,
    describing,
    list_items,
    read_question,
    read_region,
    same_answer,
)
from ssp_env.judge.words import read, vocabulary
from ssp_env.wording.answers import compatible, normalise

LONGEST = 300
"""Characters of a text that is read as people would; a longer one has to be the same words."""


class LenientJudge:
    """Right when the prediction says the same as the answer or an alias, by rules."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """An alias that matched is a verdict's detail."""
        found = [matching(task.question, task.prediction, task.truth.wordings) for task in tasks]
        return [
            Verdict(
                match is not None, "" if match in (None, task.truth.answer) else f"as {match!r}"
            )
            for task, match in zip(tasks, found, strict=True)
        ]


# Attempts at one question often say the same.
@lru_cache(maxsize=8192)
def matching(question: str, prediction: str, wordings: tuple[str, ...]) -> str | None:
    """The wording that the prediction says, or ``None``."""
    normal = normalise(prediction)
    alike = [wording for wording in wordings if normal and normalise(wording) == normal]
    if not normal or len(prediction) > LONGEST:
        return next(iter(alike), None)
    for wording in alike:
        if read(prediction) == read(wording):
            return wording

    said = _stripped(prediction)
    if not said:
        return None
    short = [wording for wording in wordings if len(wording) <= LONGEST]
    golds = {variant: w for w in short for variant in _variants(w, bare="(" not in said)}
    if _contradicts(golds, said):
        return None
    asked = choosing(read_question(question), golds)
    for gold, wording in golds.items():
        if same_answer(asked, gold, said):
            return wording

    # Several answers, or one with something added: each has to be right, or to say nothing new.
    bare = [gold for gold in golds if "(" not in gold or "(" not in said]
    for parts in (_guesses(said), list_items(said)):
        found = [next((g for g in bare if same_answer(asked, g, part)), None) for part in parts]
        if len(parts) < 2 or found[0] is None:
            continue
        if all(
            gold or _says_nothing_new(asked, part, found[0])
            for gold, part in zip(found, parts, strict=True)
        ):
            return golds[found[0]]
    return None


_MARKUP = re.compile(
    r"</?[A-Za-z]{1,12}>|\*\*|__|`|\\(?:boxed|text|textbf|mathrm)\{|\}|"
    r"(?<=[^\W\d])[.,]?\s?\[\d+\]|^\s*(?:[-*•]|\d\.) |^#+ "
)
_BEFORE = re.compile(
    r"(?:so|well|thus|therefore|sure|of course)[,:!.]? +(?=\S)|"
    r"(?:according to|based on|from|in) (?:the )?(?:passages?|documents?|search results?)[^,]*, +|"
    r"i (?:think|believe|guess)(?: that)?,? +(?:it(?:'s| is| was) )?|"
    r"(?:the |my |final |correct )*(?:answer|response|result)"
    r"(?: to (?:the|this) question)?(?: is| was|:)[: ]*(?:that )?",
    re.IGNORECASE,
)
_EVASIVE = re.compile(
    r"\bi (?:do not|don't|cannot|can't|could not|am not|have no)\b|"
    r"\b(?:is|was|are|were|do|does|did)(?: not|n't)\b|"
    r"\bnot (?:sure|known|certain|mentioned|enough|clear)\b|"
    r"\b(?:unclear|unknown|cannot|can't|no (?:information|idea)|neither|insufficient)\b",
    re.IGNORECASE,
)


def _stripped(prediction: str) -> str:
    """The prediction without what is said around an answer; nothing where it evades."""
    text = _MARKUP.sub("", compatible(prediction).replace("’", "'")).strip()
    if re.match(r"(?:yes|no)\b", text, re.IGNORECASE):
        return text  # "No, they were not" does not evade
    while (begins := _BEFORE.match(text)) and begins.end() < len(text):
        text = text[begins.end() :]
    return "" if " " in text and _EVASIVE.search(text) else text.strip()


_BRACKETS = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]")


def _variants(wording: str, bare: bool) -> Iterator[str]:
    """A right wording; also a town without its region, each of two with a slash between, and, if
    ``bare``, the wording without its brackets."""
    yield wording
    town, comma, behind = wording.partition(",")
    if comma and read_region(read(behind)):
        yield town
    outside = " ".join(_BRACKETS.sub(" ", wording).split())
    if bare and outside and outside != wording:
        yield outside
    if " / " in wording or re.fullmatch(r"[A-Z][^/]* [^/]*/[A-Z][^/]*", wording):
        yield from filter(str.strip, wording.split("/"))


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
    words = read(part)
    if any(word.key in vocabulary("turn") for word in words):
        return False
    free = describing(read(gold))
    known = vocabulary("function") | vocabulary("asked kind") | asked.words | free
    return bool(free and read_region(words)) or all(word.key in known for word in words)


def _contradicts(golds: dict[str, str], said: str) -> bool:
    """A town in another region than a wording says: Portland, Maine for Portland, Oregon."""
    town, comma, behind = said.partition(",")
    given = read_region(read(behind)) if comma else None
    if given is None:
        return False
    places = [
        read_region(read(gold.partition(",")[2])) for gold in golds if gold.startswith(town + ",")
    ]
    known = {place for place in places if place}
    larger = {country_of().get(place, place) for place in known}
    return bool(known) and given not in known | larger and country_of().get(given) not in known

"""What a model behind an API replied: a verdict, an answer or a turn, where it is clear.

Thoughts do not count, nor a verdict that the reply only quotes, as from an answer that gives itself
a mark. Markdown around a verdict is no part of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ssp_env.errors import ServiceError
from ssp_env.judge.base import Verdict

_NAMES = r"(?:\w+:)?(?:think|thinking|thoughts?|reasoning)"
# How models open and close their thoughts.
_THINKS = re.compile(rf"<{_NAMES}>|\[THINK\]|◁think▷")
_THOUGHT = re.compile(rf"</{_NAMES}>|\[/THINK\]|◁/think▷|<\|channel\|>final<\|message\|>")
_VERDICT_LINE = re.compile(
    r"\"?(?:(?:so|my|the|final|overall) )*(?:verdict|judge?ment)\"?"
    r"(?:\s*[:：=]|\s+[-–—]|—| is:?)\s*[✓✅❌✗]*\s*"
    r"(.*?)(?:\s+\((?!.*(?:correct|wrong|verdict)).*\))?\s*[.,!✓✅❌✗]*",
    re.IGNORECASE,
)
_ONE_WORD = re.compile(r"[\"']?(correct|incorrect|wrong)[\"']?[.!]?", re.IGNORECASE)
_MARKS = re.compile(r"[*_`#]|^\s*(?:[-•]|\d+\.)\s|\\(?:boxed|text|mathbf)\{|[{}$]")
_FENCE = re.compile(r"^ *(?:```|~~~)[^\n]*\n(.*?)^ *(?:```|~~~)", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(
    r"<(candidate_answer|reference_answers|question)>.*?(?:</\1>|\Z)|"
    r"(?<![\w\"])\"[^\"\n]*\n[^\"]*\"(?!\w)|“[^”]*”|«[^»]*»|^\s*>[^\n]*",
    re.DOTALL | re.MULTILINE,
)
# A line whose end announces what another one says.
_SAYS = re.compile(
    r"\b(?:says?|said|writes?|wrote|states?|claims?|reads?|contains?|includes?|ends?|quot\w+|"
    r"instruct\w*|tells?|asks?|demands?|orders?|adds?|appends?|inserts?)\b[^.!?]*"
    r"(?:[:,]|\b(?:line|text|following|itself|words?|instructions?))$",
    re.IGNORECASE,
)
# A line that speaks of the one before as of what another one said.
_WAS_SAID = re.compile(
    r"[a-z(].*\b(?:candidate|prediction|wrote|written|says|said|quot\w+|ignored?)\b"
)
_SHOWS = re.compile(
    r"(?!.*\b(?:verdict|judge?ment)\b).*\b(?:candidate|prediction|submission)\b.*:", re.IGNORECASE
)
"""A line that leads to a text of the candidate's, of as many lines as that has."""
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_TURN = re.compile(r"<(search|answer)>((?:(?!<\1>).)*?)</\1>", re.DOTALL)


def parse_verdict(reply: str) -> Verdict:
    """The verdict of a reply: its one line ``verdict: correct`` or ``verdict: incorrect``.

    Without one, a single line that is nothing but ``Correct``, ``Incorrect`` or ``Wrong`` will do:
    the paper's prompt asks for that word. Anything else is a ``ServiceError`` that blames the text.

    >>> parse_verdict("<think>verdict: correct?</think>**Verdict:** Incorrect.").correct
    False
    """
    lines = list(_own_lines(_THINKS.split(_after_thinking(reply))[0]))  # a thought may be cut off
    verdicts = [m[1].lower() for m in map(_VERDICT_LINE.fullmatch, lines) if m and m[1]]
    if not verdicts:
        verdicts = [m[1].lower() for m in map(_ONE_WORD.fullmatch, lines) if m]
    verdicts = [
        "incorrect" if word.strip("\"'") == "wrong" else word.strip("\"'") for word in verdicts
    ]

    # Several verdicts, even equal ones, mean that the model did not follow the format.
    if verdicts not in (["correct"], ["incorrect"]):
        raise _without("judge", "one clear verdict", reply)
    return Verdict(verdicts == ["correct"], reply.strip()[-200:])


def _own_lines(text: str) -> Iterator[str]:
    """Lines without Markdown's signs, and without what is quoted."""
    # A fence around a single line may hold the verdict; what is longer is quoted.
    text = _FENCE.sub(lambda m: m[1] if len(m[1].split("\n")) == 2 else "", text)
    text = _QUOTED.sub("", text)
    lines = [line for raw in text.splitlines() if (line := _MARKS.sub("", raw).strip())]
    shown = False
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        shown = shown or _SHOWS.fullmatch(before) is not None
        if not (_SAYS.search(before) or _WAS_SAID.match(after) or (shown and after)):
            yield line


def parse_answer(reply: str) -> str:
    """The content of the last answer tags of a reply, which may be empty."""
    answers = _ANSWER.findall(_after_thinking(reply))
    if not answers:
        raise _without("verifier", "answer tags", reply)
    return _unescape(answers[-1].strip())


def parse_turn(reply: str) -> tuple[str, str]:
    """The first complete action of a reply, ``search`` or ``answer``, and its content."""
    match = _TURN.search(_after_thinking(reply))
    if match is None:
        raise _without("verifier", "search or answer tags", reply)
    return match[1], _unescape(match[2].strip())


def _after_thinking(reply: str) -> str:
    return _THOUGHT.split(reply)[-1]


def _without(service: str, wanted: str, reply: str) -> ServiceError:
    what = f"a reply without {wanted}: {reply.strip()[-200:]!r}"
    return ServiceError(service, what, fault="text")


def _unescape(text: str) -> str:
    """Undoes the escapes of tags in a reply that quotes its prompt."""
    return text.replace("&lt;", "<").replace("&gt;", ">")

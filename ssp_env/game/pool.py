"""Questions that may be played again, and the putting together of two of them.

A small proposer that has written questions of up to three hops does not write one of four, however
often it searches. Two verified questions can be put together without it: where one names the
other's answer, it may ask for it instead. What the proposer has learnt to write in pieces, the
solver then has to answer as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ssp_env.errors import ConfigError
from ssp_env.types import GroundTruth
from ssp_env.wording.mention import mentions

_ASKS_FOR = re.compile(r"(?:what|who) (?:is|was|are|were) (the .+?)[\s?.!]*", re.IGNORECASE)
"""A question that is no more than a description of its answer."""


@dataclass(frozen=True, slots=True)
class PooledQuestion:
    """A verified question that may be played again, or two of them that were put together."""

    question: str
    truth: GroundTruth
    searches: int = 1
    """How often its proposer searched, at least 1: how long a question it is, in any language."""
    parts: int = 1
    """How many proposals it is made of."""
    solution: tuple[str, ...] = ()
    """The turns of a right attempt, as :func:`ssp_env.game.examples.solution_of` gives them; empty
    if none is known."""

    def __post_init__(self) -> None:
        # Questions are put together until they are long enough.
        if self.searches < 1:
            raise ConfigError("question.searches", self.searches, "must be at least 1")


def compose(outer: PooledQuestion, inner: PooledQuestion) -> PooledQuestion | None:
    """One question that asks ``outer``, with ``inner`` in place of the name of its answer.

    "Who led the country of Paris?" and "What is the capital of France?" become "Who led the country
    of the capital of France?". An inner question that is no mere description is quoted: "Who led
    the country of (the answer to: Which city hosted the games of 1924?)?".

    The answer is the outer one's. Where both are right and have one answer each, so is the whole,
    and has; nobody has verified it as a whole.

    Its solution looks up the inner answer, thinks what that attempt thought last, and goes on as
    the outer one began.

    Returns:
        ``None`` where the outer question does not name the inner one's answer, or the whole would
        give away either answer.
    """
    name = re.search(rf"(?<!\w)(?:the )?{re.escape(inner.truth.answer)}(?!\w)", outer.question)
    if name is None:
        return None

    text = (
        outer.question[: name.start()] + _described(inner.question) + outer.question[name.end() :]
    )
    if mentions(text, outer.truth.wordings) or mentions(text, inner.truth.wordings):
        return None

    searches, parts = outer.searches + inner.searches, outer.parts + inner.parts
    solution = _joined(inner.solution, outer.solution)
    return PooledQuestion(text, outer.truth, searches, parts, solution)


def _joined(inner: tuple[str, ...], outer: tuple[str, ...]) -> tuple[str, ...]:
    """Two solutions as one; none if one of them is not known."""
    if not inner or not outer:
        return ()
    *first, thought, _ = inner
    begins, *rest = outer
    return (*first, f"{thought} {begins}".strip(), *rest)


def _described(question: str) -> str:
    """What a question asks for, as part of a sentence."""
    asks = _ASKS_FOR.fullmatch(question.strip())
    return asks[1] if asks is not None else f"(the answer to: {question.strip()})"


def as_data(pool: Iterable[PooledQuestion]) -> list[dict[str, Any]]:
    """Questions as plain data (JSON)."""
    # Written out, because dataclasses.asdict takes ten times as long, and pools are long.
    return [
        {
            "question": item.question,
            "searches": item.searches,
            "parts": item.parts,
            "solution": list(item.solution),
            "truth": {
                "id": item.truth.id,
                "answer": item.truth.answer,
                "aliases": list(item.truth.aliases),
            },
        }
        for item in pool
    ]


def from_data(pool: Iterable[Mapping[str, Any]]) -> list[PooledQuestion]:
    """Questions from what :func:`as_data` returned."""
    return [
        PooledQuestion(
            item["question"],
            _truth(item["truth"]),
            item["searches"],
            item["parts"],
            tuple(item["solution"]),
        )
        for item in pool
    ]


def _truth(data: Mapping[str, Any]) -> GroundTruth:
    return GroundTruth(data["id"], data["answer"], tuple(data["aliases"]))

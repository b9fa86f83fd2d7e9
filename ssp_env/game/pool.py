"""Verified questions that may be played again, and two of them put together.

A small proposer that has written questions of up to three hops does not write one of four, however
often it searches. Two verified questions can be put together without it: where one names the
other's answer, it may ask for it instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import TypeAdapter

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
    """Searches of its proposer, at least 1: the length of the question, in any language."""
    parts: int = 1
    """Number of proposals that it is made of."""
    solution: tuple[str, ...] = ()
    """The turns of a right attempt: (searching turns ..., last thought, answer); empty if none is
    known."""
    proposal: tuple[str, ...] = ()
    """The turns of its proposer: (searching turns ..., last thought)."""


def compose(outer: PooledQuestion, inner: PooledQuestion) -> PooledQuestion | None:
    """One question that asks ``outer``, with ``inner`` in place of the name of its answer.

    >>> outer = PooledQuestion("Who led the country of Paris?", GroundTruth("1", "de Gaulle"))
    >>> inner = PooledQuestion("What is the capital of France?", GroundTruth("2", "Paris"))
    >>> hosts = PooledQuestion("Which city hosted the games?", GroundTruth("2", "Paris"))
    >>> for each in (inner, hosts):
    ...     print(compose(outer, each).question)
    Who led the country of the capital of France?
    Who led the country of (the answer to: Which city hosted the games?)?

    An inner question that is no mere description is quoted. The answer is the outer one's; nobody
    has verified the whole. Its solution looks up the inner answer, thinks what that attempt thought
    last, and goes on as the outer one began. Its proposal goes the other way, from the outer answer
    to the inner one. ``None`` where the outer question does not name the inner one's answer, or the
    whole would give away either answer."""
    # An article before the name goes with it, because a description brings its own.
    name = re.search(rf"(?<!\w)(?:the )?{re.escape(inner.truth.answer)}(?!\w)", outer.question)
    if name is None:
        return None

    asked = inner.question.strip()
    asks = _ASKS_FOR.fullmatch(asked)
    described = f"(the answer to: {asked})" if asks is None else asks[1]
    text = outer.question[: name.start()] + described + outer.question[name.end() :]
    if mentions(text, outer.truth.wordings) or mentions(text, inner.truth.wordings):
        return None

    # Of the inner solution, the last turn gives the answer, which goes on as a query instead.
    solution = _joined(inner.solution[:-1], outer.solution)
    proposal = _joined(outer.proposal, inner.proposal)
    searches, parts = outer.searches + inner.searches, outer.parts + inner.parts
    return PooledQuestion(text, outer.truth, searches, parts, solution, proposal)


def _joined(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """Turns, then further ones: the last thought of the former runs into the latter's first turn.
    Nothing where either is not known."""
    if not before or not after:
        return ()
    return (*before[:-1], f"{before[-1]} {after[0]}".strip(), *after[1:])


POOL = TypeAdapter(list[PooledQuestion])

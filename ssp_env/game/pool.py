"""Earlier questions: two of them put together, and right attempts that are shown again.

A small proposer that has written questions of up to three hops does not write one of four, however
often it searches. Two verified questions can be put together without it: where one names the
other's answer, it may ask for it instead. What the proposer has learnt to write in pieces, the
solver then has to answer as a whole.

What a policy hardly ever does, it cannot be rewarded for. A question of four hops is made of two
that were solved, so an attempt at it can be made of theirs: look up the inner answer as its solver
did, and from there go on as the outer one's did. The turns are played in the environment like any
others, so what searches find is what they find for this question, and the judge has the last word.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from ssp_env.errors import ServiceError
from ssp_env.game.game import Attempt, Game
from ssp_env.game.outcome import Ending
from ssp_env.game.protocol import Tags
from ssp_env.game.referee import Referee
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.judge.base import Verdict
from ssp_env.search.base import search_each
from ssp_env.types import GroundTruth, Role
from ssp_env.wording.mention import mentions

_log = logging.getLogger(__name__)
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
    """The turns of a right attempt, as :func:`solution_of` gives them; empty if none is known."""


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
    # A solution is (searching turns ..., last thought, answer). The inner one's answer is dropped:
    # its last thought runs into the outer one's first turn.
    *first, thought, _ = inner
    begins, *rest = outer
    return (*first, f"{thought} {begins}".strip(), *rest)


def _described(question: str) -> str:
    """The thing that a question asks for, as part of a sentence."""
    asks = _ASKS_FOR.fullmatch(question.strip())
    return asks[1] if asks is not None else f"(the answer to: {question.strip()})"


POOL = TypeAdapter(list[PooledQuestion])


# -- examples ---------------------------------------------------------------------------------


def solution_of(game: Game, tags: Tags) -> tuple[str, ...]:
    """The turns of the first right attempt at a game's question.

    Returns:
        The text of each turn that searched; then what the last turn thought (maybe nothing), and
        the answer with its tags. Empty if no attempt was right.
    """
    right = [attempt.trajectory for attempt in game.counted if attempt.right]
    if not right:
        return ()

    *searches, last = _turns(right[0])
    thought, tag, answer = last.rpartition(tags.opening("answer"))
    return (*searches, thought.strip(), tag + answer)


def play_examples(rules: Rules, games: Sequence[Game]) -> None:
    """Gives games whose question has a known solution an attempt that follows it.

    Only one that comes out right stays. Others are dropped, as are those that an outage hits: an
    example is an extra.

    Args:
        rules: what the games are played by.
        games: those with a ``solution``; others are left alone.
    """
    asked = [game for game in games if game.start.solution and game.question is not None]
    plays = []
    for game in asked:
        question = game.question or ""
        prompt = rules.prompts.solver(question, rules.config.max_searches)
        *searches, thought, answer = game.start.solution
        turns = [*searches, f"{thought} {answer}".strip()]
        plays.append((game, Trajectory(rules.limits[Role.SOLVER], prompt, question), turns))

    # All of them side by side, so that their searches are a few batches.
    while live := [play for play in plays if play[1].waiting is Waiting.POLICY and play[2]]:
        for _, trajectory, turns in live:
            trajectory.feed_text(turns.pop(0))
        _search(rules, [trajectory for _, trajectory, _ in live])

    ended = [(game, trajectory) for game, trajectory, _ in plays if trajectory.result is not None]
    for (game, trajectory), word in zip(ended, Referee(rules).judge(ended), strict=True):
        if isinstance(word, Verdict):
            example = Attempt(trajectory)
            example.verdict = game.verdict_on(example, word)
            game.example = example if example.right else None


def _search(rules: Rules, trajectories: Sequence[Trajectory]) -> None:
    due = [t for t in trajectories if t.waiting is Waiting.SEARCH]
    if not due:
        return

    limit = rules.config.max_document_tokens
    queries = [trajectory.query or "" for trajectory in due]
    found_by_each = search_each(rules.retriever, queries, rules.config.top_k)
    for trajectory, found in zip(due, found_by_each, strict=True):
        if isinstance(found, ServiceError):
            _log.warning("an example is left out: %s", found)
            trajectory.end(Ending.OUTAGE)
        else:
            trajectory.observe(found, rules.prompts.information(found, limit))


def _turns(trajectory: Trajectory) -> list[str]:
    decode = trajectory.limits.tokenizer.decode
    return [decode(trajectory.ids[i:j]).strip() for i, j, own in trajectory.runs() if own]

"""Earlier questions: two of them put together, and right attempts that are shown again.

A small proposer that has written questions of up to three hops does not write one of four, however
often it searches. Two verified questions can be put together without it: where one names the
other's answer, it may ask for it instead.

What a policy hardly ever does, it cannot be rewarded for. A question of four hops is made of two
that were solved, so an attempt at it can be made of theirs. The turns are played in the environment
like any others, and the judge has the last word.
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

    The answer is the outer one's; nobody has verified the whole. Its solution looks up the inner
    answer, thinks what that attempt thought last, and goes on as the outer one began.

    Returns:
        ``None`` where the outer question does not name the inner one's answer, or the whole would
        give away either answer.
    """
    name = re.search(rf"(?<!\w)(?:the )?{re.escape(inner.truth.answer)}(?!\w)", outer.question)
    if name is None:
        return None

    asked = inner.question.strip()
    asks = _ASKS_FOR.fullmatch(asked)
    described = f"(the answer to: {asked})" if asks is None else asks[1]
    text = outer.question[: name.start()] + described + outer.question[name.end() :]
    if mentions(text, outer.truth.wordings) or mentions(text, inner.truth.wordings):
        return None

    solution: tuple[str, ...] = ()
    if inner.solution and outer.solution:
        # A solution is (searching turns ..., last thought, answer). The inner one's answer is
        # dropped: its last thought runs into the outer one's first turn.
        *first, thought, _ = inner.solution
        begins, *rest = outer.solution
        solution = (*first, f"{thought} {begins}".strip(), *rest)
    searches, parts = outer.searches + inner.searches, outer.parts + inner.parts
    return PooledQuestion(text, outer.truth, searches, parts, solution)


POOL = TypeAdapter(list[PooledQuestion])


# -- examples ---------------------------------------------------------------------------------


def solution_of(game: Game, tags: Tags) -> tuple[str, ...]:
    """The turns of the first right attempt, if any: the text of each turn that searched, then what
    the last turn thought (maybe nothing), and the answer with its tags."""
    right = [attempt.trajectory for attempt in game.counted if attempt.right]
    if not right:
        return ()

    ids, decode = right[0].ids, right[0].limits.tokenizer.decode
    *searches, last = [decode(ids[i:j]).strip() for i, j, own in right[0].runs() if own]
    thought, tag, answer = last.rpartition(tags.opening("answer"))
    return (*searches, thought.strip(), tag + answer)


def play_examples(rules: Rules, games: Sequence[Game]) -> None:
    """Gives games whose question has a known solution an attempt that follows it.

    Only one that comes out right stays; an outage costs no more than the example."""
    referee, limit, plays = Referee(rules), rules.config.max_document_tokens, []
    for game in games:
        if game.start.solution and game.question is not None:
            prompt = rules.prompts.solver(game.question, rules.config.max_searches)
            *searches, thought, answer = game.start.solution
            trajectory = Trajectory(rules.limits[Role.SOLVER], prompt, game.question)
            plays.append((game, trajectory, [*searches, f"{thought} {answer}".strip()]))

    # All of them side by side, so that their searches are a few batches.
    while live := [play for play in plays if play[1].waiting is Waiting.POLICY and play[2]]:
        for _, trajectory, turns in live:
            trajectory.feed_text(turns.pop(0))
        due = [(game, t) for game, t, _ in live if t.waiting is Waiting.SEARCH]
        for (_, trajectory), found in zip(due, referee.search(due) if due else (), strict=True):
            if isinstance(found, ServiceError):
                _log.warning("an example is left out: %s", found)
                trajectory.end(Ending.OUTAGE)
            else:
                trajectory.observe(found, rules.prompts.information(found, limit))

    ended = [(game, trajectory) for game, trajectory, _ in plays if trajectory.result is not None]
    for (game, trajectory), word in zip(ended, referee.judge(ended), strict=True):
        if isinstance(word, Verdict):
            example = Attempt(trajectory)
            example.verdict = game.verdict_on(example, word)
            game.example = example if example.right else None

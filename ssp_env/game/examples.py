"""Right attempts that are shown again: at the question that they solved, or joined, at one that it
was put together with.

What a policy hardly ever does, it cannot be rewarded for. A question of four hops is made of two
that were solved, so an attempt at it can be made of theirs: look up the inner answer as its solver
did, and from there go on as the outer one's did. The turns are played in the environment like any
others, so what searches find is what they find for this question, and the judge has the last word.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ssp_env.errors import ServiceError
from ssp_env.game.game import Attempt, Game
from ssp_env.game.outcome import Ending
from ssp_env.game.protocol import Tags
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.types import Role

_log = logging.getLogger(__name__)


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
    asked = [game for game in games if game.solution and game.question is not None]
    plays = [(game, _begun(rules, game), _written(game)) for game in asked]

    # All of them side by side, so that their searches are a few batches.
    while live := [play for play in plays if play[1].waiting is Waiting.POLICY and play[2]]:
        for _, trajectory, turns in live:
            trajectory.feed_turn(rules.limits[Role.SOLVER].tokenizer.encode(turns.pop(0)))
        _search(rules, [trajectory for _, trajectory, _ in live])

    ended = [(game, trajectory) for game, trajectory, _ in plays if trajectory.result is not None]
    tasks = [JudgeTask(game.question or "", t.result or "", game.truth) for game, t in ended]
    for (game, trajectory), word in zip(ended, rules.checked.judge(tasks), strict=True):
        if isinstance(word, Verdict) and game.ruled(Attempt(trajectory), word).correct:
            game.example = trajectory


def _begun(rules: Rules, game: Game) -> Trajectory:
    prompt = rules.prompts.solver(game.question or "", rules.config.max_searches)
    return Trajectory(rules.limits[Role.SOLVER], prompt, game.question or "")


def _written(game: Game) -> list[str]:
    """What is to be written, turn by turn."""
    *searches, thought, answer = game.solution
    return [*searches, f"{thought} {answer}".strip()]


def _search(rules: Rules, trajectories: Sequence[Trajectory]) -> None:
    due = [t for t in trajectories if t.waiting is Waiting.SEARCH]
    if not due:
        return

    limit = rules.config.max_document_tokens
    found_by_each = rules.checked.search([trajectory.query or "" for trajectory in due])
    for trajectory, found in zip(due, found_by_each, strict=True):
        if isinstance(found, ServiceError):
            _log.warning("an example is left out: %s", found)
            trajectory.end(Ending.OUTAGE)
        else:
            trajectory.observe(found, rules.prompts.information(found, limit))


def _turns(trajectory: Trajectory) -> list[str]:
    """What the policy wrote, turn by turn, as text."""
    ids, mask, at = trajectory.ids, trajectory.mask, trajectory.prompt_length
    turns = []
    while at < len(ids):
        stop = mask.find(b"\0" if mask[at] else b"\1", at)
        stop = stop if stop >= 0 else len(ids)
        if mask[at]:
            turns.append(trajectory.limits.tokenizer.decode(ids[at:stop]).strip())
        at = stop
    return turns

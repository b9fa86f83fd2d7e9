"""Examples: what solved and wrote a question, shown again to learn from.

What a policy hardly ever does, it cannot be rewarded for. A question of four hops is made of two
that were solved, so an attempt at it can be made of theirs, and a proposal of it of their
proposals. The turns are played in the environment like any others; judge and filters have the last
word."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from ssp_env.errors import ServiceError
from ssp_env.game.game import Attempt, Game, Origin
from ssp_env.game.outcome import Ending
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.protocol import Tags
from ssp_env.game.referee import Referee
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.judge.base import Verdict
from ssp_env.types import Role

_log = logging.getLogger(__name__)


def with_turns(item: PooledQuestion, game: Game, tags: Tags) -> PooledQuestion:
    """The question with the turns of the first right attempt, if any, and those of its proposer."""
    right = [attempt.trajectory for attempt in game.counted if attempt.right]
    solution = _turns(right[0], tags.opening("answer")) if right else ()
    proposal = () if game.proposer is None else _turns(game.proposer, tags.opening("question"))[:-1]
    return replace(item, solution=solution, proposal=proposal)


def _turns(trajectory: Trajectory, opening: str) -> tuple[str, ...]:
    """The text of each turn that searched, then what the last one thought (maybe nothing), and from
    this opening tag on what it said."""
    ids, decode, retried = trajectory.ids, trajectory.limits.tokenizer.decode, trajectory.retried
    # A turn that ends where a message about it begins was malformed, and is no example.
    by_policy = [(i, j) for i, j, by_policy in trajectory.runs() if by_policy and j not in retried]
    *searches, last = [decode(ids[i:j]).strip() for i, j in by_policy]
    thought, tag, said = last.rpartition(opening)
    return (*searches, thought.strip(), tag + said)


def play_examples(rules: Rules, games: Sequence[Game]) -> None:
    """Gives games whose question has known turns an attempt and a proposal that follow them.

    Only an attempt that comes out right stays, and a proposal of the very question that passes the
    filters; an outage costs no more than the example."""
    referee, limit, plays = Referee(rules), rules.config.max_document_tokens, []
    for game in games:
        question, state = game.question or "", game.initial_state
        if state.solution:
            prompt = rules.prompts.solver(question, rules.config.max_searches)
            *searches, thought, answer = state.solution
            trajectory = Trajectory(rules.limits[Role.SOLVER], prompt, question)
            plays.append((game, trajectory, [*searches, f"{thought} {answer}".strip()]))
        # Where actions are tool calls, tags would teach another format; and where proposers choose,
        # a question that was put together has no topic.
        if state.proposal and rules.tags.call is None and not rules.config.proposer_chooses:
            *searches, thought = state.proposal
            opening, closing = rules.tags.opening("question"), rules.tags.closing("question")
            asks = f"{thought} {opening} {question} {closing}".strip()
            prompt = rules.prompts.proposer(state.truth.answer, state.least_searches)
            trajectory = Trajectory(rules.limits[Role.PROPOSER], prompt, state.truth.answer)
            plays.append((game, trajectory, [*searches, asks]))

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
                trajectory.observe(found, rules.prompts.information(found, limit, trajectory.about))

    for game, trajectory, _ in plays:
        if trajectory.role is Role.PROPOSER and trajectory.done:
            # Read as any proposal is.
            proposed = Game(
                replace(game.initial_state, origin=Origin.PROPOSED, question=None), trajectory
            )
            referee.filter_proposal(proposed)
            if proposed.question == game.question and proposed.accepted:
                game.example_proposal = Attempt(trajectory)

    solved = [play[:2] for play in plays if play[1].role is Role.SOLVER]
    ended = [(game, trajectory) for game, trajectory in solved if trajectory.result is not None]
    for (game, trajectory), word in zip(ended, referee.judge(ended), strict=True):
        if isinstance(word, Verdict):
            example = Attempt(trajectory)
            example.verdict = game.verdict_on(example, word)
            game.example = example if example.right else None

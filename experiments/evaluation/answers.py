"""Lets a policy answer questions: several attempts each, or once from memory alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from agents.engines.base import Engine, Request, generate
from agents.rollout import play
from ssp_env.errors import ServiceError
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.players import Player
from ssp_env.types import Question, Role

CHUNK = 256
"""Questions that are answered side by side."""

_MEMORY = 0x3E30
"""Sets the random numbers of answers from memory apart."""


class Answers(Protocol):
    """Plays a round to its end."""

    def __call__(self, round_: Round) -> Round: ...


def by_engine(engine: Engine, temperature: float) -> Answers:
    """A policy in an engine."""
    return lambda round_: play(round_, engine, temperature=temperature)


def by_player(player: Player) -> Answers:
    """A player, such as a model behind an API."""

    def answers(round_: Round) -> Round:
        while pending := round_.pending():
            try:
                player.play(pending)
            except ServiceError as error:
                # What it did write stands; who still waits for it is void.
                lost = {trajectory.key for trajectory in pending}
                waiting = [t for t in round_.pending() if t.key in lost]
                round_.void(waiting, error)
            round_.advance()
        return round_

    return answers


def answer(
    rules: Rules, questions: Sequence[Question], answers: Answers, seed: int, start: int = 0
) -> Iterator[list[GameRecord]]:
    """Answers questions, chunk by chunk; one record per question, in order.

    What is drawn for a question follows from the seed and its place, so that an evaluation that
    goes on at a chunk ends as one that was never stopped.

    Args:
        rules: what is played by; ``attempts`` of the config are made at each question.
        questions: all of them.
        answers: plays the solver.
        seed: decides all randomness.
        start: the first question that is still to be asked, a multiple of :data:`CHUNK`.
    """
    for begin in range(start, len(questions), CHUNK):
        asked = questions[begin : begin + CHUNK]
        round_ = answers(Round.of_questions(rules, asked, [seed, begin]))
        yield [
            record_game(game, rules, question_group=question.group)
            for game, question in zip(round_.games, asked, strict=True)
        ]


def from_memory(
    rules: Rules, questions: Sequence[Question], engine: Engine, seed: int
) -> list[Verdict | ServiceError]:
    """What the policy knows without searching: one greedy answer per question, judged.

    The prompt is that of the closed-book gate.

    Args:
        rules: their prompts, limits and judge.
        questions: what is asked.
        engine: plays the solver.
        seed: of the requests.
    """
    verdicts: list[Verdict | ServiceError] = []
    for begin in range(0, len(questions), CHUNK):
        asked = questions[begin : begin + CHUNK]
        written = [
            Trajectory(rules.limits[Role.CLOSED_BOOK], rules.prompts.closed_book(q.text), q.text)
            for q in asked
        ]
        requests = [Request(t.key, t.ids, t.tokens_left, 0.0, _MEMORY + seed) for t in written]
        for trajectory, generation in zip(written, generate(engine, requests), strict=True):
            trajectory.feed_turn(generation.ids, generation.logprobs)

        engine.release([trajectory.key for trajectory in written])
        tasks = [
            JudgeTask(q.text, t.result or "", q.truth) for q, t in zip(asked, written, strict=True)
        ]
        verdicts += rules.checked.judge(tasks)
    return verdicts


def with_attempts(rules: Rules, attempts: int) -> Rules:
    """The same rules with so many attempts at each question."""
    return replace(rules, config=rules.config.replace(attempts=attempts))

"""Answers of a policy to fixed questions: with search, several attempts each, or from memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agents.engines.base import Engine, Request, generate
from agents.rollout import play
from ssp_env.errors import ServiceError
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.referee import judge
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

Answers = Callable[[Round], Round]
"""Plays a round to its end."""


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
                # Finished turns stand; trajectories that still wait for the player are void.
                lost = {trajectory.key for trajectory in pending}
                round_.void([t for t in round_.pending() if t.key in lost], error)
            round_.advance()
        return round_

    return answers


def answer(
    rules: Rules, questions: Sequence[Question], answers: Answers, seed: Sequence[int]
) -> list[GameRecord]:
    """Answers questions side by side; one record per question, in order.

    Args:
        rules: what is played by; ``attempts`` of the config are made at each question.
        questions: what is asked.
        answers: plays the solver.
        seed: decides all randomness.
    """
    round_ = answers(Round.of_questions(rules, questions, list(seed)))
    return [
        record_game(game, rules, question_group=question.group)
        for game, question in zip(round_.games, questions, strict=True)
    ]


def from_memory(
    rules: Rules, questions: Sequence[Question], engine: Engine, seed: int
) -> list[bool | None]:
    """Verdicts on one greedy answer per question without search; ``None`` after an outage.

    Args:
        rules: their limits, judge and prompt, which is that of the closed-book gate.
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
        verdicts += judge(rules, tasks)
    return [None if isinstance(one, ServiceError) else bool(one.correct) for one in verdicts]


def with_attempts(rules: Rules, attempts: int) -> Rules:
    """The same rules with so many attempts at each question."""
    return replace(rules, config=rules.config.replace(attempts=attempts))

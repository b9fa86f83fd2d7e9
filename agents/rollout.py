"""Plays whole rounds against an inference engine: the batched door to the game."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from agents.engines.base import Engine, Request
from ssp_env.errors import ServiceError
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Question

_EVALUATION = 0xE7A1
"""Sets the random numbers of evaluation apart from those of self-play."""


def play(round_: Round, engine: Engine, *, temperature: float, rng: np.random.Generator) -> Round:
    """Lets the engine play all trajectories of a round to its end.

    Args:
        round_: a round; it is moved to :attr:`~ssp_env.game.round.Phase.DONE` in place.
        engine: plays both roles.
        temperature: of sampling; 0 is greedy.
        rng: seeds the engine's sampling.
    """
    generator = torch.Generator().manual_seed(int(rng.integers(1 << 62)))
    while pending := round_.pending():
        take_turns(round_, pending, engine, temperature, generator)
        round_.advance()
    return round_


def answer(
    rules: Rules, questions: Sequence[Question], engine: Engine, *, temperature: float, seed: int
) -> list[GameRecord]:
    """Lets the solver answer fixed questions, once each; nothing is learnt from it.

    Args:
        rules: what is played by.
        questions: what is asked.
        engine: plays the solver.
        temperature: of sampling; 0 is greedy.
        seed: decides all randomness.

    Returns:
        One record per question, in order.
    """
    once = replace(rules, config=replace(rules.config, attempts=1))
    round_ = Round.of_questions(once, questions, [_EVALUATION, seed])
    rng = np.random.default_rng([_EVALUATION, seed])

    play(round_, engine, temperature=temperature, rng=rng)
    return [
        record_game(game, rules, engine.weights_version, question.group)
        for game, question in zip(round_.games, questions, strict=True)
    ]


def take_turns(
    round_: Round,
    pending: list[Trajectory],
    engine: Engine,
    temperature: float,
    generator: torch.Generator,
) -> None:
    """Makes one engine call for all pending trajectories; if it fails, their games are void."""
    requests = [Request(t.key, t.ids, t.tokens_left) for t in pending]
    try:
        generations = engine.generate(requests, temperature=temperature, generator=generator)
    except ServiceError as error:
        round_.void(pending, error)
        return

    for trajectory, generation in zip(pending, generations, strict=True):
        trajectory.feed(generation.ids, generation.logprobs)

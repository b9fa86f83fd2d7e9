"""Whole rounds against an engine: turns that the engine cuts in the middle of a thought go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

import ssp_env
from agents.engines.base import Generation, Request, StopRule
from agents.rollout import play
from ssp_env.game.outcome import Ending
from ssp_env.game.round import Round


class Reciting:
    """Writes the same turn in every trajectory, and stops wherever a turn may end."""

    weights_version = 0

    def __init__(self, ids: list[int], prompt_length: int, stop: StopRule) -> None:
        self._ids, self._prompt_length, self._stop = ids, prompt_length, stop
        self.calls = 0

    def generate(
        self, requests: Sequence[Request], *, temperature: float, generator: torch.Generator
    ) -> list[Generation]:
        self.calls += 1
        return [self._continue(len(request.ids) - self._prompt_length) for request in requests]

    def _continue(self, start: int) -> Generation:
        end = next(i for i in range(start, len(self._ids)) if self._ids[i] in self._stop.token_ids)
        written = self._ids[start : end + 1]
        return Generation(written, [-1.0] * len(written))

    def update_weights(self, state: Mapping[str, Any], version: int) -> None: ...


def test_an_engine_that_stops_inside_a_thought_goes_on() -> None:
    rules = ssp_env.raw_env(world="mini", game={"attempts": 1}).rules
    words, question = rules.tokenizer, rules.world.questions(0, per_group=1)[0]
    round_ = Round.of_questions(rules, [question], [0])

    right = question.answers[0]
    turn = f"<think> </search> <information> </think> <answer> {right} </answer>"
    engine = Reciting(
        words.encode(turn), round_.pending()[0].prompt_length, StopRule.of(rules.config, words)
    )
    play(round_, engine, temperature=1.0, rng=np.random.default_rng(0))

    (attempt,) = round_.games[0].attempts
    assert engine.calls == 3, "it stopped twice inside the thought"
    assert attempt.trajectory.ending is Ending.ACTION
    assert attempt.verdict is not None
    assert attempt.verdict.correct
    assert attempt.trajectory.ids[attempt.trajectory.prompt_length :] == words.encode(turn)

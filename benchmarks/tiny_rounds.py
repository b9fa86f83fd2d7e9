"""Rounds of the preset ``tiny`` by the policy that ships, with services of this process; no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from agents.rollout import play
from agents.rows import Credit, Row, rows_of, with_loss_weights
from experiments.config import RunConfig, load_preset, make_config
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import GroundTruth
from ssp_env.worlds import open_world


class Table:
    """What rounds of the preset are played with."""

    def __init__(self) -> None:
        self.config: RunConfig = make_config(load_preset("tiny"))
        tokenizer = HuggingFaceTokenizer.load(tiny_directory())
        self.rules = Rules.build(open_world(self.config.world), tokenizer, self.config.game)
        self._model = load_model(tiny_directory())
        self._stop, self._tokenizer = StopRule.of(self.config.game, tokenizer), tokenizer

    def engine(self) -> TransformersEngine:
        """One that has computed nothing yet."""
        return TransformersEngine(self._model, self._tokenizer, self._stop)

    def play(self, seed: Sequence[int], engine: Any, slots: int) -> Round:
        """A round of so many questions, played to its end."""
        round_ = Round(self.rules, self._answers, slots, list(seed))
        return play(round_, engine, temperature=self.config.learning.temperature)

    def rows(self, round_: Round) -> list[Row]:
        """What the preset learns from a round that is a step of its own."""
        learning = self.config.learning
        rows = Credit(learning)(rows_of(round_.games, learning))
        return with_loss_weights(rows, learning, len(round_.games), self.config.game.attempts)

    def _answers(self, rng: np.random.Generator, count: int) -> list[GroundTruth]:
        every = self.rules.world.answers
        return [every[i] for i in rng.choice(len(every), count, replace=False)]

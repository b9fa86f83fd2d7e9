"""The EnvRunner: plays whole rounds; hands back rows to learn from and records to keep."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from agents.engines.base import Engine, Generation, StopRule
from agents.engines.opening import open_engine
from agents.rllib.batch import MODULE_ID
from agents.rllib.module import module_spaces
from agents.rollout import answer, play
from agents.rows import Row, rows_of
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import make_strategy
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import GroundTruth, Question

COMPONENT_STRATEGY = "strategy"


@dataclass(frozen=True)
class Sample:
    """What one runner brings back from a step; plain data, cheap to ship."""

    rows: list[Row]
    records: list[GameRecord]
    seconds: dict[str, float]
    """Wall-clock seconds: ``game`` (everything but the engine) and ``engine``."""


_GAMES = 0x9A3E
"""First number of the seeds of training games: their random streams are no others'."""


class SSPEnvRunner(EnvRunner, Checkpointable):
    """Plays its share of each step's slots, with its own world, engine and batch strategy.

    Groups never leave a runner. All randomness follows from the config's seed, the step and the
    runner's index, so a resumed run plays the same games."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.game, self.learning = self.config.game(), self.config.learning()
        self.tokenizer = HuggingFaceTokenizer.load(self.config.model_dir)
        self.world = self.config.make_world()
        self.rules: Rules = self.config.make_rules(self.world, self.tokenizer)
        self.strategy = make_strategy(self.learning.strategy, self.learning.reset_every)
        self.make_module()
        self._index = self.worker_index or 0

    def make_module(self) -> None:
        """Loads the model into an inference engine."""
        config = self.config
        self.engine: Engine = open_engine(
            config.engine_config(),
            config.model_dir,
            self.tokenizer,
            StopRule.of(self.game, self.tokenizer),
            device="cuda" if config.num_gpus_per_env_runner else "cpu",
            longest=self.rules.longest_trajectory,
            shares=not (config.num_env_runners or config.num_learners),
        )

    def sample(self, *, step: int = 0, slots: int | None = None, **_: Any) -> Sample:
        """Plays one round.

        Args:
            step: training step; decides all randomness, together with seed and runner.
            slots: how many questions; the config's batch size when not given.
        """
        seed = (self.config.seed or 0, step, self._index)
        engine = _Stopwatch(self.engine)
        began = time.perf_counter()
        engine.wake()
        wanted = self.learning.batch_size if slots is None else slots
        round_ = Round(self.rules, self._answers, wanted, [_GAMES, *seed], self.strategy)
        play(round_, engine, temperature=self.learning.temperature)
        records = [record_game(game, self.rules, engine.weights_version) for game in round_.games]
        engine.sleep()  # the learner's turn
        rows = rows_of(round_.games, self.learning)
        game_seconds = time.perf_counter() - began - engine.seconds

        return Sample(rows, records, {"game": game_seconds, "engine": engine.seconds})

    def solve(
        self, questions: Sequence[Question], temperature: float, seed: int
    ) -> list[GameRecord]:
        """Lets the solver answer fixed questions, once each; nothing is learnt from it."""
        self.engine.wake()
        return answer(self.rules, questions, self.engine, temperature=temperature, seed=seed)

    def _answers(self, rng: np.random.Generator, count: int) -> list[GroundTruth]:
        answers = self.world.answers
        return [answers[i] for i in rng.choice(len(answers), count, replace=count > len(answers))]

    # -- RLlib ---------------------------------------------------------------------------------

    def get_spaces(self) -> dict[str, Any]:
        """Observations are token sequences, actions single tokens."""
        spaces = module_spaces(self.tokenizer.vocab_size)
        return {INPUT_ENV_SPACES: spaces, INPUT_ENV_SINGLE_SPACES: spaces, MODULE_ID: spaces}

    def get_metrics(self) -> dict[str, Any]:
        """None of its own: figures are made from the records, over all runners."""
        figures: dict[str, Any] = self.metrics.reduce()
        return figures

    def assert_healthy(self) -> None:
        """Raises if the runner is not ready."""
        assert self.engine is not None, "the engine was not built"

    def get_state(
        self, components: Any = None, *, not_components: Any = None, **_: Any
    ) -> dict[str, Any]:
        """Weights and the batch strategy's state."""
        state: dict[str, Any] = {WEIGHTS_SEQ_NO: self.engine.weights_version}
        if self._check_component(COMPONENT_STRATEGY, components, not_components):
            state[COMPONENT_STRATEGY] = self.strategy.get_state()

        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            weights = self.engine.weights()
            state[COMPONENT_RL_MODULE] = {
                MODULE_ID: {f"lm.{name}": value for name, value in weights.items()}
            }

        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes weights (or a reference to them) and the strategy's state, whichever is there."""
        if COMPONENT_STRATEGY in state:
            self.strategy.set_state(state[COMPONENT_STRATEGY])

        if COMPONENT_RL_MODULE in state:
            weights = state[COMPONENT_RL_MODULE]
            weights = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
            module = weights.get(MODULE_ID, weights)
            named = {name.removeprefix("lm."): value for name, value in module.items()}
            self.engine.update_weights(
                named, int(state.get(WEIGHTS_SEQ_NO, self.engine.weights_version + 1))
            )

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[()], dict[str, Any]]:
        """For RLlib's checkpoints."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """No part keeps a checkpoint of its own."""
        return []

    def stop(self) -> None:
        """Nothing to close."""


class _Stopwatch:
    """An engine that notes how long it was at work."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.seconds = engine, 0.0
        self.weights_version = engine.weights_version
        self.submit, self.release = engine.submit, engine.release
        self.weights, self.update_weights = engine.weights, engine.update_weights
        self.sleep, self.wake = engine.sleep, engine.wake

    @property
    def running(self) -> int:
        return self._engine.running

    def step(self) -> list[tuple[int, Generation]]:
        began = time.perf_counter()
        try:
            return self._engine.step()
        finally:
            self.seconds += time.perf_counter() - began

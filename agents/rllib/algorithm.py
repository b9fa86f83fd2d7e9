"""The algorithm, used as RLlib users expect:
``SSPConfig().environment(...).training(...).build_algo().train()``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from agents.engines.gap import Gap
from agents.metrics import step_metrics
from agents.rllib.batch import MODULE_ID, shard, to_batch
from agents.rllib.comparison import compare
from agents.rllib.config import SelfPlayConfig
from agents.rllib.env_runner import COMPONENT_STRATEGY, Sample, SSPEnvRunner
from agents.rllib.honoured import EVALUATION
from agents.rllib.learner import SSPLearner
from agents.rllib.rounds import deal, renumber
from agents.rows import Row, with_loss_weights
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.record import GameRecord
from ssp_env.types import Question

STRATEGIES = "ssp_strategies"
"""Where a checkpoint keeps the state of the batch strategies."""


class SSP(Algorithm):
    """Search self-play: play a round, learn from it, hand the new weights to the players.

    ``last_games`` holds the records of the latest step, for callers that want to keep them.
    """

    last_games: Sequence[GameRecord] = ()
    last_gap: Gap | None = None
    """What the latest comparison of engine and learner found."""

    @classmethod
    def get_default_config(cls) -> SSPConfig:
        """An empty config."""
        return SSPConfig()

    def training_step(self) -> None:
        """One step of the paper's Algorithm 1; the figures go to RLlib's metrics under ``ssp``."""
        learning, game = self.config.learning(), self.config.game()
        began = time.perf_counter()
        samples = self._play()
        sampled = time.perf_counter()
        self.last_games = [record for sample in samples for record in sample.records]
        if self.last_gap is None or self.iteration % self.config.engine_config().check_every == 0:
            self.last_gap = compare(self, self.last_games)
        rows = [row for sample in samples for row in sample.rows]
        updates = [self._learn(part, size, game.attempts) for part, size in deal(rows, learning)]
        self._hand_over_weights(self.iteration + 1)
        learnt = time.perf_counter()
        figures = step_metrics(
            self.last_games, learning.batch_size, [update for update in updates if update]
        )
        seconds = {
            "sample": sampled - began,
            "learn": learnt - sampled,
            "game": max((sample.seconds["game"] for sample in samples), default=0.0),
            "engine": max((sample.seconds["engine"] for sample in samples), default=0.0),
        }
        # RLlib would go on reporting last step's figures, as NaN, where this step has none.
        self.metrics.delete("ssp", key_error=False)
        self.metrics.log_dict({"figures": figures, "seconds": seconds}, key="ssp", window=1)

    def solve(
        self, questions: Sequence[Question], temperature: float = 0.0, seed: int = 0
    ) -> list[GameRecord]:
        """Lets the present policy answer questions; one record a question, in order.

        Raises:
            ServiceError: a runner died.
        """
        if self.env_runner is not None:
            local: SSPEnvRunner = self.env_runner
            return local.solve(questions, temperature, seed)
        runners = self.env_runner_group.healthy_worker_ids()
        shares = {runner: questions[i :: len(runners)] for i, runner in enumerate(runners)}
        results = self.env_runner_group.foreach_env_runner(
            [lambda r, share=share: r.solve(share, temperature, seed) for share in shares.values()],
            local_env_runner=False,
            remote_worker_ids=list(shares),
            timeout_seconds=self.config.sample_timeout_s,
        )
        if len(results) != len(runners):
            raise ServiceError("engine", "an env runner died while it was evaluating")
        answered: list[GameRecord | None] = [None] * len(questions)
        for i, records in enumerate(results):
            answered[i :: len(runners)] = records
        return [record for record in answered if record is not None]

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Refused: RLlib would count environment steps, of which there are none.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"RLlib's evaluation is not used by search self-play; {EVALUATION}")

    def policy_weights(self) -> dict[str, Any]:
        """The present weights, named as the model names them."""
        module = self.learner_group.get_weights()[MODULE_ID]
        return {name.removeprefix("lm."): value for name, value in module.items()}

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """Hands the current weights to env runners that RLlib has restarted.

        Their pools of questions start empty."""
        restored: list[int] = env_runner_group.probe_unhealthy_env_runners()
        if restored:
            self._hand_over_weights(self.iteration, restored)
        return restored

    def _play(self) -> list[Sample]:
        step = self.iteration
        if self.config.num_env_runners == 0:
            return [self.env_runner.sample(step=step)]
        share = self.config.learning().batch_size // self.config.num_env_runners
        samples = self.env_runner_group.foreach_env_runner(
            lambda runner: runner.sample(step=step, slots=share),
            local_env_runner=False,
            timeout_seconds=self.config.sample_timeout_s,
        )
        if not samples:
            # RLlib only logs why.
            raise ServiceError(
                "engine", "no env runner brought back a sample; Ray's log of the workers says why"
            )
        return renumber(samples)

    def _learn(self, rows: Sequence[Row], games: int, attempts: int) -> dict[str, float]:
        """One optimizer update; empty when there is nothing to learn from."""
        if not rows:
            return {}
        weighted = with_loss_weights(rows, self.config.learning(), games, attempts)
        timesteps = {"training_step": self.iteration}
        if self.config.num_learners == 0:
            results = self.learner_group.update(batch=to_batch(weighted), timesteps=timesteps)
        else:
            batches = [to_batch(part) for part in shard(weighted, self.config.num_learners)]
            results = self.learner_group.update(batches=batches, timesteps=timesteps)
        return SSPLearner.merge([result[MODULE_ID] for result in results])

    def _hand_over_weights(self, version: int, runners: list[int] | None = None) -> None:
        """Synchronous, unlike RLlib's own: no runner may play the next step with old weights.

        Args:
            version: how many steps these weights have learnt from.
            runners: remote env runners, by number; all of them when not given.
        """
        weights = self.learner_group.get_weights()
        state = {COMPONENT_RL_MODULE: weights, WEIGHTS_SEQ_NO: version}
        if self.env_runner is not None:
            self.env_runner.set_state(state)
        if self.config.num_env_runners:
            shared = {**state, COMPONENT_RL_MODULE: ray.put(weights)}
            self.env_runner_group.foreach_env_runner(
                lambda runner: runner.set_state(shared),
                local_env_runner=False,
                remote_worker_ids=runners,
                timeout_seconds=self.config.sample_timeout_s,
            )

    # -- checkpoints ---------------------------------------------------------------------------

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, and the batch strategy of every runner."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        state[STRATEGIES] = self._strategies()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes all of it back.

        Raises:
            ConfigError: the checkpoint has batch strategies of env runners that this algorithm does
                not have.
        """
        strategies: dict[int, dict[str, Any]] = state.get(STRATEGIES, {})
        count = self.config.num_env_runners
        if set(strategies) - set(range(1, count + 1) if count else [0]):
            raise ConfigError(
                "num_env_runners",
                count,
                f"resume with {max(strategies)}, as the checkpoint was made",
            )
        super().set_state(state)
        for runner, strategy in strategies.items():
            self._restore_strategy(runner, strategy)
        self._hand_over_weights(self.iteration)

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """As RLlib's, but the weights keep the step's number as their version."""
        super().restore_from_path(path, *args, **kwargs)
        self._hand_over_weights(self.iteration)

    def _strategies(self) -> dict[int, dict[str, Any]]:
        """State of each runner's batch strategy by the runner's number; 0 is the main process."""
        if self.env_runner is not None:
            return {0: self.env_runner.get_state(components=COMPONENT_STRATEGY)[COMPONENT_STRATEGY]}
        states = self.env_runner_group.foreach_env_runner(
            lambda runner: (
                runner.worker_index,
                runner.get_state(components=COMPONENT_STRATEGY)[COMPONENT_STRATEGY],
            ),
            local_env_runner=False,
        )
        return dict(states)

    def _restore_strategy(self, runner: int, strategy: dict[str, Any]) -> None:
        part = {COMPONENT_STRATEGY: strategy}
        if runner == 0:
            self.env_runner.set_state(part)
            return
        self.env_runner_group.foreach_env_runner(
            lambda remote: remote.set_state(part),
            local_env_runner=False,
            remote_worker_ids=[runner],
        )


class SSPConfig(SelfPlayConfig):
    """The config of :class:`SSP`; everything about it is in :class:`SelfPlayConfig`."""

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or SSP)

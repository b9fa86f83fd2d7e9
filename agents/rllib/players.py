"""The env runners of an algorithm: they are asked, brought back, and given weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from agents.rllib.runners import RunnerPool
from agents.rllib.weights import as_reference

Recreated = Callable[[EnvRunnerGroup, list[int]], object]
"""Is told which env runners of a group have come back."""


class Players:
    """Speaks to env runners, in the main process or remote, of training or of evaluation."""

    def __init__(self, recreated: Recreated) -> None:
        """
        Args:
            recreated: is told of env runners that came back while others played.
        """
        self._recreated = recreated
        self._handed_over: dict[str, Any] = {}

    def ask(
        self, config: AlgorithmConfig, group: EnvRunnerGroup, calls: Sequence[Any]
    ) -> list[Any]:
        """The results of functions of an env runner, whichever makes them.

        Raises:
            ServiceError: all env runners are gone.
        """
        if group.local_env_runner is not None:
            return [call(group.local_env_runner) for call in calls]

        def restore(seconds: float) -> list[int]:
            restored = self.revive(config, group, seconds)
            if restored:
                self._recreated(group, restored)
            return restored

        return RunnerPool(group, restore, config).map(calls)

    def revive(
        self, config: AlgorithmConfig, group: EnvRunnerGroup, seconds: float | None = None
    ) -> list[int]:
        """Hands the weights to env runners that Ray has restarted; returns their numbers."""
        restored = sorted(set(group.probe_unhealthy_env_runners(seconds)))
        if restored:
            # Not the learner's weights of this moment: it may be in the middle of an update.
            self._send(config, group, restored)
        return restored

    def hand_over(
        self, config: AlgorithmConfig, group: EnvRunnerGroup, weights: dict[str, Any], steps: int
    ) -> None:
        """Gives all env runners weights that have seen so many steps.

        Synchronous, unlike RLlib's own: no runner may play the next step with old weights.
        """
        state = {COMPONENT_RL_MODULE: weights, WEIGHTS_SEQ_NO: steps}
        if group.local_env_runner is not None:
            group.local_env_runner.set_state(state)
        if group.num_remote_env_runners():
            shared = as_reference(weights, half=in_half(config))
            self._handed_over = {**state, COMPONENT_RL_MODULE: shared}
        if group.num_healthy_remote_env_runners():
            self._send(config, group)

    def _send(
        self, config: AlgorithmConfig, group: EnvRunnerGroup, runners: list[int] | None = None
    ) -> None:
        """Sends what was last handed over to remote env runners, by number; to all by default."""
        shared = self._handed_over
        group.foreach_env_runner(
            lambda runner: runner.set_state(shared),
            local_env_runner=False,
            remote_worker_ids=runners,
            timeout_seconds=config.sample_timeout_s,
        )


def in_half(config: AlgorithmConfig) -> bool:
    """Whether weights travel in bfloat16: engines on a GPU compute in it; elsewhere nothing is
    rounded."""
    return bool(config.num_gpus_per_env_runner > 0)

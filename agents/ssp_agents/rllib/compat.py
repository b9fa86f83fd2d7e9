"""The inside of RLlib and Ray that self-play touches, all of it, under public names.

The canaries in `tests/agents/rllib/test_compat.py` name what an upgrade took away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor

# -- classes to inherit from -------------------------------------------------------------------


class HookedConfig(AlgorithmConfig):
    """RLlib's settings."""

    def leave_connectors_alone(self) -> None:
        """Env runners are not sent states of connectors, of which there are none."""
        self._dont_auto_sync_env_runner_states = True

    @property
    def given_module_spec(self) -> Any:
        """What ``rl_module(rl_module_spec=...)`` was given; ``None`` without it."""
        return self._rl_module_spec

    def module_settings(self) -> dict[str, Any]:
        """Settings that every module is given, before the user's own ones."""
        return {}

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return self.module_settings()


class HookedAlgorithm(Algorithm):
    """RLlib's algorithm."""

    @classmethod
    def evaluates_apart(cls, eval_config: Any) -> bool:
        """True if evaluation has env runners of its own."""
        return bool(super()._should_create_evaluation_env_runners(eval_config))

    def evaluation_to_show(self, results: Any) -> Any:
        """An iteration's evaluation, as Tune is to see it."""
        return results

    def includes(self, component: str, components: Any, not_components: Any) -> bool:
        """True if a state that is asked for has this component."""
        return bool(self._check_component(component, components, not_components))

    @classmethod
    def _should_create_evaluation_env_runners(cls, eval_config: Any) -> bool:
        return cls.evaluates_apart(eval_config)

    def _compile_iteration_results(self, *, train_results: Any, eval_results: Any) -> Any:
        shown = self.evaluation_to_show(eval_results)
        return super()._compile_iteration_results(train_results=train_results, eval_results=shown)


class HookedLearner(TorchLearner):
    """RLlib's learner in PyTorch."""

    @property
    def torch_device(self) -> torch.device:
        device: torch.device = self._device
        return device

    def place(self, modules: Any) -> None:
        """Moves the modules to the device, before there are optimizers."""
        super()._map_module_to_device(modules)

    def is_wrapped(self) -> bool:
        """True if modules of several learners are wrapped in DDP."""
        return True

    def learn(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """Learns from a batch by module id; returns the loss of each module.

        RLlib's only hook that leaves the order of passes to us, after the connectors."""
        raise NotImplementedError

    def _map_module_to_device(self, module: Any) -> None:
        self.place(module)

    def _make_modules_ddp_if_necessary(self) -> None:
        if self.is_wrapped():
            super()._make_modules_ddp_if_necessary()

    def _uncompiled_update(self, batch: Mapping[str, Any], **kwargs: Any) -> tuple[Any, Any, Any]:
        return {}, self.learn(batch), {}


# -- what is found in RLlib's objects ----------------------------------------------------------


def workers_of(group: Any) -> Any:
    """The manager of the remote actors of a group of env runners or learners; ``None`` where a
    learner works in this process."""
    return group._worker_manager


def await_actor(actor: Any, seconds: float) -> None:
    """Returns once an actor answers; Ray's errors say that it does not."""
    ray.get(actor.__ray_ready__.remote(), timeout=seconds)


def attribute_of(setting: str, settings: Mapping[str, Any]) -> str:
    """The attribute under which RLlib's settings hold one of theirs."""
    return next(name for name in (setting, f"_{setting}", f"{setting}_str") if name in settings)

"""The inside of RLlib that `ssp_agents/rllib/compat.py` touches: each canary names what is gone."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from ssp_agents import rllib
from ssp_agents.rllib import algorithm, compat, config, env_runner, learner, module

HOOKS: dict[str, tuple[type, list[str]]] = {
    "_should_create_evaluation_env_runners": (Algorithm, ["cls", "eval_config"]),
    "_compile_iteration_results": (Algorithm, ["self", "train_results", "eval_results"]),
    "_check_component": (Algorithm, ["self", "name", "components", "not_components"]),
    "_map_module_to_device": (TorchLearner, ["self", "module"]),
    "_make_modules_ddp_if_necessary": (TorchLearner, ["self"]),
    "_uncompiled_update": (TorchLearner, ["self", "batch", "kwargs"]),
}
"""Methods that are overridden or called, with their parameters."""


@pytest.mark.parametrize("name", HOOKS)
def test_canary_a_hook_takes_what_it_took(name: str) -> None:
    cls, parameters = HOOKS[name]
    function = inspect.getattr_static(cls, name)
    function = getattr(function, "__func__", function)
    assert [*inspect.signature(function).parameters] == parameters


@pytest.mark.parametrize(
    ("cls", "calls"),
    [
        (Algorithm, "_should_create_evaluation_env_runners"),
        (Algorithm, "_compile_iteration_results"),
        (TorchLearner, "_map_module_to_device"),
        (TorchLearner, "_make_modules_ddp_if_necessary"),
        (TorchLearner, "_uncompiled_update"),
        (TorchLearner, "_device"),
        (AlgorithmConfig, "_model_config_auto_includes"),
        (EnvRunnerGroup, "_worker_manager"),
        (LearnerGroup, "_worker_manager"),
    ],
)
def test_canary_rllib_itself_uses_it(cls: type, calls: str) -> None:
    assert any(f".{calls}" in inspect.getsource(base) for base in cls.__mro__[:-1])


def test_canary_settings_that_are_set_or_read_are_there() -> None:
    held = vars(AlgorithmConfig())
    assert {"_dont_auto_sync_env_runner_states", "_rl_module_spec"} <= held.keys()
    for name in config.REFUSED:
        compat.attribute_of(name, vars(rllib.SSPConfig()))


def test_nothing_else_overrides_what_rllib_keeps_for_itself() -> None:
    """`_forward` and `_forward_train` are its documented places for a module's own code."""
    for part in (algorithm, config, env_runner, learner, module):
        for cls in vars(part).values():
            if inspect.isclass(cls) and cls.__module__ == part.__name__:
                others: list[Any] = [b for b in cls.__mro__ if not b.__module__.startswith("ssp_")]
                private = {n for n in vars(cls) if n.startswith("_") and not n.startswith("__")}
                taken = {n for n in private for base in others if n in vars(base)}
                assert taken <= {"_forward", "_forward_train", "_abc_impl"}, cls
    assert issubclass(learner.SSPLearner, Learner)

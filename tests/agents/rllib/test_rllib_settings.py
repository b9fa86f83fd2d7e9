"""The settings of the RLlib algorithm: what works, what is refused and how, what is handed on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from agents.rllib import SSPConfig
from agents.rllib.module import LLMModule
from ssp_env.errors import ConfigError


class Own(LLMModule):
    """A module of the user's."""


@pytest.mark.parametrize(
    ("env", "training", "runners", "field", "says"),
    [
        ({"wurld": "mini"}, {}, 0, "env_config.wurld", "'world'"),
        ({"judge": object()}, {}, 0, "env_config.judge", "--rules my_module:make_rules"),
        ({"world": "wiki-mni"}, {}, 0, "env_config.world", "'wiki-mini'"),
        ({"game": {"attempts": 1}}, {}, 0, "game.attempts", "at least 2"),
        ({"game": {"proposals": 3}}, {"batch_size": 8}, 0, "learning.batch_size", "multiple"),
        ({}, {"batch_size": 32}, 2, "learning.round_size", "give at most 16"),
        ({}, {"overlap": True, "importance_cap": None}, 0, "compute.overlap", "update old"),
        ({}, {"solver_algorithm": "ppo"}, 0, "learning.solver_algorithm", "module:NAME"),
    ],
)
def test_settings_that_cannot_work_are_named(
    env: dict[str, Any],
    training: dict[str, Any],
    runners: int,
    field: str,
    says: str,
    model_dir: Path,
) -> None:
    config = SSPConfig().environment(env_config=env).training(model_dir=model_dir, **training)
    with pytest.raises(ConfigError, match=says) as caught:
        config.env_runners(num_env_runners=runners).build_algo()
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("gamma", lambda c: c.training(gamma=0.9), "nothing is discounted"),
        (
            "train_batch_size_per_learner",
            lambda c: c.training(train_batch_size_per_learner=9),
            "training.batch_size=",
        ),
        ("env", lambda c: c.environment("CartPole-v1"), "env_config"),
        ("framework", lambda c: c.framework("tf2"), "PyTorch"),
        ("model_config", lambda c: c.rl_module(model_config={"a": 1}), "model_dir"),
    ],
)
def test_what_rllib_has_and_nobody_would_read_is_refused(name: str, change: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        change(SSPConfig()).validate()
    assert caught.value.field == name
    assert "not used by search self-play" in caught.value.fix


class Episodic(RLlibCallback):
    """Waits for what never comes."""

    def on_episode_end(self, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("field", "change", "says"),
    [
        ("callbacks_class", lambda c: c.callbacks(Episodic), "never calls on_episode_end"),
        ("evaluation_duration", lambda c: c.evaluation(evaluation_duration="auto"), "at least 1"),
        ("compute.sharding", lambda c: c.learners(sharding="zero"), "ddp, fsdp2"),
        (
            "compute.sharding",
            lambda c: c.learners(sharding="fsdp2", num_learners=1),
            "there are 1",
        ),
        (
            "rl_module_spec",
            lambda c: c.training(engine="vllm").rl_module(
                rl_module_spec=RLModuleSpec(module_class=Own)
            ),
            "engine='transformers'",
        ),
    ],
)
def test_what_could_not_work_is_refused(field: str, change: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        change(SSPConfig()).validate()
    assert caught.value.field == field


def test_a_module_of_ones_own_keeps_the_settings_it_does_not_name(model_dir: Path) -> None:
    spec = RLModuleSpec(module_class=Own, model_config={"rank": 3})
    made = SSPConfig().training(model_dir=model_dir).rl_module(rl_module_spec=spec).rl_module_spec
    assert made.module_class is Own
    default = {"attention": "eager", "lora_rank": 0, "seed": 0}
    assert made.model_config == {"rank": 3, "model": str(model_dir), **default}
    assert made.action_space is not None


def test_evaluation_asks_all_groups_in_turn(model_dir: Path) -> None:
    config = SSPConfig().training(model_dir=model_dir).evaluation(evaluation_duration=7)
    questions = config.evaluation_questions()
    groups = [question.group for question in questions]
    assert len(questions) == 7
    assert len(set(groups)) > 1
    assert max(map(groups.count, groups)) - min(map(groups.count, groups)) <= 1
    assert questions == config.evaluation_questions()


def test_a_config_survives_its_dict(algorithm_config: SSPConfig) -> None:
    algorithm_config.training(kl_coeff=0.125, learning_roles=("solver",))
    copy = SSPConfig().update_from_dict(algorithm_config.to_dict())
    assert copy.learning() == algorithm_config.learning()
    assert copy.game() == algorithm_config.game()
    assert copy.model_dir == algorithm_config.model_dir
    copy.validate()

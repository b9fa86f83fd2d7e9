"""Env runners that hang, raise and come back: real processes, no model. Those that die in
mid-rollout are in `test_algorithm.py`. And settings: what works, what is refused and how."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from playful import WORLD, make_rules
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.actor_manager import FaultTolerantActorManager

from ssp_agents.config import SHARED, EngineConfig
from ssp_agents.rllib import SSP, SSPConfig, SSPLearner
from ssp_agents.rllib.env_runner import SSPEnvRunner
from ssp_agents.rllib.module import LLMModule
from ssp_agents.rllib.runners import Runners
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.worlds.mini import MiniWorld

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def manager(request: pytest.FixtureRequest) -> Iterator[FaultTolerantActorManager]:
    """Two actors that Ray restarts, managed as RLlib manages its env runners."""
    request.getfixturevalue("cluster")
    # Their processes get what is defined here as it is, and do not import this file.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

    @ray.remote(num_cpus=0, max_restarts=-1)
    class Worker:
        def apply(self, func: Callable[[Any], Any]) -> Any:
            return func(self)

        def ping(self) -> str:
            return "pong"

    actors = FaultTolerantActorManager([Worker.remote(), Worker.remote()], init_id=1)
    yield actors
    actors.clear()


Map = Callable[..., list[int]]


def pool(manager: FaultTolerantActorManager, **changes: Any) -> Map:
    """:meth:`Runners.map` over the manager's actors, as if they were env runners."""

    def probe(seconds: float | None) -> list[int]:
        return manager.probe_unhealthy_actors(timeout_seconds=seconds, mark_healthy=True)

    group = SimpleNamespace(
        local_env_runner=None,
        _worker_manager=manager,
        probe_unhealthy_env_runners=probe,
        foreach_env_runner=lambda *_, **__: None,
    )
    config = {
        "sample_timeout_s": 60.0,
        "restart_failed_env_runners": True,
        "env_runner_restore_timeout_s": 60.0,
        "num_gpus_per_env_runner": 0,
        "engine_config": EngineConfig,
    }
    runners = Runners(SimpleNamespace(**{**config, **changes}))
    return partial(runners.map, group)


def calls(first: Callable[[], object]) -> list[Callable[[Any], int]]:
    """Three calls that return their number, after the first has done something."""

    def call(worker: Any, number: int) -> int:
        if number == 0:
            first()
        return number

    return [partial(call, number=number) for number in range(3)]


def test_an_error_is_raised_here_and_ends_no_runner(manager: FaultTolerantActorManager) -> None:
    def wrong() -> None:
        raise ConfigError("a.b", 1, "give 2")

    workers = pool(manager)
    assert workers(calls(lambda: None)) == [0, 1, 2]
    with pytest.raises(ConfigError, match=r"a\.b = 1: give 2"):
        workers(calls(wrong))
    assert len(manager.healthy_actor_ids()) == 2


def test_a_runner_that_hangs_is_killed(manager: FaultTolerantActorManager, tmp_path: Path) -> None:
    trigger = tmp_path / "trigger"
    trigger.touch()

    def hang() -> None:
        if trigger.exists():
            trigger.unlink()
            time.sleep(600)

    assert pool(manager, sample_timeout_s=1.0)(calls(hang)) == [0, 1, 2]


def test_a_call_that_ends_every_runner_is_given_up(manager: FaultTolerantActorManager) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ServiceError, match="3 env runners died of the same work"):
        pool(manager)(calls(die))


def spread(
    config: SSPConfig, runners: int, learners: int, of_each: tuple[float, float]
) -> SSPConfig:
    config = config.copy(copy_frozen=False).training(round_size=4)
    config.env_runners(num_env_runners=runners, num_gpus_per_env_runner=of_each[0])
    return config.learners(num_learners=learners, num_gpus_per_learner=of_each[1])


def test_tune_reserves_whole_gpus_for_pairs(algorithm_config: SSPConfig) -> None:
    def bundles(*layout: Any) -> list[dict[str, float]]:
        return list(SSP.default_resource_request(spread(algorithm_config, *layout)).bundles)

    pair = {"CPU": 1, "GPU": 1}
    assert bundles(2, 2, SHARED)[1:] == [pair, pair]
    assert bundles(0, 0, SHARED) == [{"CPU": 1, "GPU": 1}]
    assert bundles(1, 2, (1, 1))[1:] == [{"CPU": 1, "GPU": 1}, {"GPU": 1}, {"GPU": 1}]


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ((0, 0, SHARED), "sees no GPU"),
        ((2, 15, (1, 1)), "need 17 GPUs, and Ray has 16"),
        ((0, 999, (0, 0)), "compute.learners = 999: there are .* CPUs.*give at most"),
    ],
)
def test_a_cluster_without_room_is_refused(
    algorithm_config: SSPConfig, layout: Any, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        spread(algorithm_config, *layout).build_algo()


# -- settings ----------------------------------------------------------------------------------

Change = Callable[[SSPConfig], object]


class Own(LLMModule):
    """A module of the user's."""


class Episodic(RLlibCallback):
    """Waits for what never comes."""

    def on_episode_end(self, **kwargs: Any) -> None: ...


class Clipping(SSPLearner):
    """Overrides a hook that an update does without."""

    def postprocess_gradients(self, gradients_dict: Any) -> Any:
        return {name: gradient * 0 for name, gradient in gradients_dict.items()}


def gpus(runners: int, learners: int, *of_each: float) -> Change:
    """Env runners and learners, and the GPUs of each."""

    def change(config: SSPConfig) -> None:
        config.env_runners(num_env_runners=runners, num_gpus_per_env_runner=of_each[0])
        config.learners(num_learners=learners, num_gpus_per_learner=of_each[1])

    return change


OWN = RLModuleSpec(module_class=Own)
REFUSED: list[tuple[str, Change, str]] = [
    ("env_config.wurld", lambda c: c.environment(env_config={"wurld": 1}), "'world'"),
    (
        "game.attempts",
        lambda c: c.environment(env_config={"game": {"attempts": 1}}).training(
            solver_algorithm="learning:GROUPED"
        ),
        "learning:GROUPED compares attempts",
    ),
    ("training.lrr", lambda c: c.training(lrr=1), "'lr'"),
    ("training.lr", lambda c: c.training(lr=-1), "RLlib takes this one for"),
    ("compute.overlap", lambda c: c.training(overlap=True, importance_cap=None), "update old"),
    ("rl_module_spec", lambda c: c.training(engine="vllm").rl_module(rl_module_spec=OWN), "plays"),
    ("learner_class", lambda c: c.learners(learner_class=Clipping), "never calls postprocess_grad"),
    ("callbacks_class", lambda c: c.callbacks(Episodic), "never calls on_episode_end"),
    (
        "num_gpus_per_env_runner, num_gpus_per_learner",
        gpus(2, 2, 1, 0.5),
        "give 1 and 1 for GPUs of their own, or 0.6 and 0.4",
    ),
    ("compute.gpus", gpus(2, 1, *SHARED), "give 2 of each, or GPUs of their own"),
    ("compute.gpus", gpus(0, 2, 1, 1), "give at least one env runner and one learner"),
    ("compute.tensor_parallel", gpus(2, 2, 2, 1), "only vLLM on GPUs of its own"),
    ("policies", lambda c: c.multi_agent(policies={"a", "b"}), "one policy plays both"),
]
"""Field that is refused, a change that makes it so, and words of the fix."""


@pytest.mark.parametrize(("field", "change", "says"), REFUSED)
def test_settings_that_cannot_work_are_named(field: str, change: Change, says: str) -> None:
    def use() -> None:
        config = SSPConfig()
        change(config)
        config.validate()

    with pytest.raises(ConfigError, match=says) as caught:
        use()
    assert caught.value.field == field


def test_a_config_survives_its_dict(algorithm_config: SSPConfig) -> None:
    algorithm_config.training(kl_coeff=0.125, learning_roles=("solver",))
    copy = SSPConfig().update_from_dict(algorithm_config.to_dict())
    assert copy.learning() == algorithm_config.learning()
    assert copy.game() == algorithm_config.game()
    assert copy.model_dir == algorithm_config.model_dir
    copy.validate()


def test_what_is_played_is_the_world_of_the_rules(algorithm_config: SSPConfig) -> None:
    other = MiniWorld(seed=9, entities=50)
    env = {"make_rules": lambda world, tokenizer, game: make_rules(other, tokenizer, game)}
    algorithm_config.environment(env_config={**algorithm_config.env_config, **env})
    state = algorithm_config.batch_strategy().get_state()
    sample = SSPEnvRunner(config=algorithm_config).sample(step=0, slots=4, strategy=state)
    asked_about = {record.answer for record in sample.records}
    assert asked_about <= {truth.answer for truth in other.answers}
    assert not asked_about <= {truth.answer for truth in MiniWorld(**WORLD).answers}

    algorithm_config.evaluation(evaluation_duration=4)
    evaluated = algorithm_config.evaluation_questions()
    assert {q.text for q in evaluated} <= {q.text for q in other.questions(0, per_group=4)}

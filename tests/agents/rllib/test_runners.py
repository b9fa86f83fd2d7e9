"""Env runners that hang, raise and come back: real processes, no model. Those that die in
mid-rollout are in `test_algorithm.py`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.rllib.utils.actor_manager import FaultTolerantActorManager

from ssp_agents.config import SHARED, EngineConfig
from ssp_agents.rllib import SSP, SSPConfig
from ssp_agents.rllib.runners import Runners
from ssp_env.errors import ConfigError, ServiceError

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
        with suppress(FileNotFoundError):  # the other one was first
            trigger.unlink()
            time.sleep(600)

    assert pool(manager, sample_timeout_s=1.0)(calls(hang)) == [0, 1, 2]


@pytest.mark.slow
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

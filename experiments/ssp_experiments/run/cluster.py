"""Parts of Ray and RLlib that a run needs: the cluster, the config, the algorithm.

Importing this takes seconds.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray

from ssp_agents.rllib import SSP, SSPConfig
from ssp_env.errors import ServiceError
from ssp_experiments.config import RunConfig
from ssp_experiments.run.address import check_ray
from ssp_experiments.run.process import quiet_libraries, uninterrupted
from ssp_experiments.run.rules import rules_of, world_of


def algorithm_config(config: RunConfig) -> SSPConfig:
    compute = config.compute
    of_runner, of_learner = compute.gpus_of_each
    made = SSPConfig()
    made.environment(
        env_config={
            "world": partial(world_of, config),
            "game": config.game,
            "make_rules": partial(rules_of, config),
        }
    )
    made.training(
        model_dir=config.model_dir,
        engine=config.engine,
        overlap=compute.overlap,
        **vars(config.learning),
    )

    # Ray gives each actor as many threads as it has CPUs.
    made.env_runners(
        num_env_runners=compute.env_runners,
        num_gpus_per_env_runner=of_runner,
        num_cpus_per_env_runner=compute.threads,
    )

    # RLlib refuses a learner with GPUs and more than one CPU.
    learner_cpus = 1 if of_learner else compute.threads
    made.learners(
        num_learners=compute.learners,
        num_gpus_per_learner=of_learner,
        num_cpus_per_learner=learner_cpus,
        sharding=compute.sharding,
    )

    made.resources(num_cpus_for_main_process=compute.threads)
    made.debugging(seed=config.seed, log_level="ERROR")
    return made


def build(config: RunConfig) -> SSP:
    """The algorithm, with its model loaded. The caller stops it."""
    algorithm = algorithm_config(config).build_algo()
    assert isinstance(algorithm, SSP)
    # RLlib makes a folder for results in the home directory. It stays empty: ours is elsewhere.
    Path(algorithm.logdir).rmdir()
    return algorithm


@contextmanager
def started_ray(config: RunConfig | None = None, actors: int = 0) -> Iterator[None]:
    """Starts Ray on this machine, quiet and without a dashboard, unless it is running already.

    It gets as many CPUs as a run has processes, and without a ``config`` all that there are;
    ``actors`` share memory then. ``RAY_ADDRESS`` names a cluster to use instead.
    """
    if ray.is_initialized():
        yield
        return

    local: dict[str, Any] = {}
    if config is not None:
        actors = config.compute.env_runners + config.compute.learners
        local["num_cpus"] = 1 + actors * config.compute.threads
    if not actors:  # nobody shares anything
        local["object_store_memory"] = 100 * 1024 * 1024
    # Ray would start idle workers, each of which loads its libraries.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")

    quiet_libraries()
    check_ray()
    address = os.environ.get("RAY_ADDRESS") or "local"
    on_sigterm = signal.getsignal(signal.SIGTERM)

    try:
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **(local if address == "local" else {}),
        )
    except SystemExit as error:
        # SIGTERM while Ray's own handler was in place.
        raise KeyboardInterrupt(signal.SIGTERM) from error
    except Exception as error:
        # Ray has no type of its own for it: a machine that is too busy, or an address without Ray.
        fix = "name a cluster that runs by RAY_ADDRESS"
        if address == "local":
            fix = "start again when the machine is less busy, or name a cluster by RAY_ADDRESS"
        raise ServiceError("engine", f"Ray did not start: {error}; {fix}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray's own would end the process at once

    try:
        yield
    finally:
        with uninterrupted():
            ray.shutdown()

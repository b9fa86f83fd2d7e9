"""Placing env runners and learners on the CPUs and GPUs of a Ray cluster."""

from __future__ import annotations

import os

import ray
import torch
from ray.util import get_current_placement_group

from agents.config import check_processors
from agents.rllib.config import SSPConfig
from ssp_env.errors import ConfigError


def check_cluster(config: SSPConfig) -> None:
    """Makes sure that Ray has the CPUs and GPUs of a run, and can place pairs on these; inside of
    Tune, which has reserved them, there is nothing to ask."""
    runners, learners = config.num_env_runners, config.num_learners
    if get_current_placement_group() is not None:
        return
    if config.gpus == "none":
        if not (runners or learners):
            return
        nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        # On one machine, Ray may have been told of more CPUs than there are.
        there = os.cpu_count() or 1 if len(nodes) == 1 else int(sum(nodes))
        check_processors(config.compute(), there)
        return
    if not runners:
        if not torch.cuda.is_available():
            fix = "the main process sees no GPU: leave it at 0"
            raise ConfigError("num_gpus_per_learner", config.num_gpus_per_learner, fix)
        return

    alive = [node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"]]
    machines = [int(gpus) for gpus in alive if gpus]
    own = runners * int(config.num_gpus_per_env_runner) + learners
    asked, there = runners if config.gpus == "shared" else own, sum(machines)
    if asked > there:
        what = f"{runners} env runners and {learners} learners need {asked} GPUs"
        fix = f"{what}, and Ray has {there}; start Ray on more machines, or ask for fewer"
        raise ConfigError("num_env_runners, num_learners", (runners, learners), fix)
    if config.gpus == "shared" and len(machines) > 1:
        # Ray adds up what is left of a machine's GPUs, and waits for a whole share of one there.
        what = f"Ray has GPUs on {len(machines)} machines, and pairs could not be placed on them"
        fix = f"{what}; give GPUs of their own, or start Ray on one machine alone"
        raise ConfigError("num_env_runners, num_learners", (runners, learners), fix)

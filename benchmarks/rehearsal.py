"""The large presets on GPUs that Ray only believes in.

    python -m benchmarks.rehearsal --out benchmarks/results/rehearsal.json

Each preset is planned for Qwen2.5's shape, then actors that hold nothing ask for what its env
runners and learners would, in RLlib's order, on machines of eight GPUs. No weights and no CUDA:
docs/first_hour.md lists what that leaves out.
"""

from __future__ import annotations

import logging
import os
import time
from functools import partial
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster
from ray.exceptions import RayError
from transformers import AutoModelForCausalLM, Qwen2Config

from benchmarks.harness import parser, write
from ssp_agents.rllib import SSPConfig
from ssp_agents.rllib.runners import check_cluster
from ssp_env.errors import ConfigError
from ssp_experiments.config import load_preset, make_config
from ssp_experiments.layouts import Shape, estimate, shape_of
from ssp_experiments.planner import check_fit
from ssp_experiments.run.cluster import algorithm_config

GPUS, MEMORY = 8, 80 * 2**30
QWEN = {
    7: (3584, 18_944, 28, 28, 4),
    32: (5120, 27_648, 64, 40, 8),
}
"""Width, width of the MLP, layers, heads and KV heads of Qwen2.5, by billions of parameters."""
RUNS: list[tuple[str, int, int, dict[str, Any]]] = [
    ("paper-7b-8", 7, 1, {}),
    ("paper-7b", 7, 2, {}),
    ("paper-7b", 32, 4, {"compute.tensor_parallel": 2, "compute.learners": 24}),
]
"""Preset, policy, machines, changes."""
Place = tuple[str, tuple[int, ...]]


class Holder:
    """Stands for an env runner or a learner."""

    def place(self) -> Place:
        return ray.get_runtime_context().get_node_id()[:4], tuple(ray.get_gpu_ids())

    def die(self) -> None:
        os._exit(1)


def placed(config: SSPConfig) -> str:
    """Where env runners and learners are, after one runner has died as well."""
    check_cluster(config)
    counts = config.num_env_runners, config.num_learners
    shares = config.num_gpus_per_env_runner, config.num_gpus_per_learner
    actors: list[list[Any]] = []
    places: list[list[Place]] = []
    for count, share in zip(counts, shares, strict=True):
        held: Any = ray.remote(num_cpus=0, num_gpus=share, max_restarts=-1)(Holder)
        actors.append([held.remote() for _ in range(count)])
        places.append(ray.get([actor.place.remote() for actor in actors[-1]]))

    actors[0][0].die.remote()
    places[0][0] = _once_back(actors[0][0])
    for name, found in zip(("env runners", "learners"), places, strict=True):
        each = [(node, gpu) for node, gpus in found for gpu in gpus]
        assert len(set(each)) == len(each), f"two {name} meet: {sorted(each)}"
    for actor in [*actors[0], *actors[1]]:
        ray.kill(actor)
    one, two = ({(node, gpu) for node, gpus in found for gpu in gpus} for found in places)
    assert (one == two) if config.gpus == "shared" else not one & two
    return f"{counts[0]} env runners, {counts[1]} learners, {len(one | two)} GPUs"


def _once_back(actor: Any) -> Place:
    for _ in range(60):
        try:
            return tuple(ray.get(actor.place.remote(), timeout=30))
        except RayError:
            time.sleep(1)
    raise AssertionError("it was not restarted")


def main() -> None:
    """Places each run, and writes where and how fast."""
    out = parser(__doc__, seed=False).parse_args().out
    result: dict[str, Any] = {}
    cluster = Cluster()
    add = partial(cluster.add_node, num_cpus=64, num_gpus=GPUS, object_store_memory=2**27)
    add()
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)

    for preset, size, count, changes in RUNS:
        while len(ray.nodes()) < count:
            add()
        run = make_config(load_preset(preset), changes)
        shape = qwen(size)
        check_fit(run, shape, MEMORY, GPUS * count)
        where = placed(algorithm_config(run))
        name = f"{preset}, {size}B, {count} x {GPUS} GPUs"
        result[name] = {"placed": where, "estimate": str(estimate(shape, run, MEMORY))}

    # Ray would let half of the env runners wait for ever: pairs are for one machine.
    try:
        check_cluster(algorithm_config(make_config(load_preset("paper-7b-8"))))
    except ConfigError as error:
        result[f"paper-7b-8 on {len(ray.nodes())} x {GPUS} GPUs"] = {"refused": str(error)}
    ray.shutdown()
    cluster.shutdown()
    write(out, result)


def qwen(size: int) -> Shape:
    """Qwen2.5's shape at so many billions of parameters."""
    width, inner, layers, heads, kv_heads = QWEN[size]
    config = Qwen2Config(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=152_064,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        return shape_of(AutoModelForCausalLM.from_config(config))


if __name__ == "__main__":
    main()

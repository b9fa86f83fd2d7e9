"""How long new weights take from a learner to an engine, and how many bytes travel.

A model of some .1B parameters, made of random numbers, in RLlib's own learner and env runner: both
in one process, or a process each, with Ray's object store between them. There, weights go as they
are or rounded to bfloat16, as for engines on GPUs, or adapters go alone. For comparison, the way
that RLlib has: through the driver. And, where its package is installed, NIXL (`compute.weights`):
here from CPU to CPU, in processes of their own, because its threads never rest.

Weights change before each time. What an engine has in the end is given as a digest, which is the
same for all ways that round alike; after NIXL also that of a runner that died and came back."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import ray
import torch
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from transformers import AutoModelForCausalLM, Qwen2Config

from agents.models import tiny_directory
from agents.rllib.algorithm import SSPConfig
from agents.rllib.batch import MODULE_ID
from agents.rllib.env_runner import SSPEnvRunner
from agents.rllib.learner import SSPLearner
from agents.rllib.weights import Named
from benchmarks.origin import origin

RANK = 16
Figures = dict[str, float]
Found = dict[str, dict[str, Any]]


def main() -> int:
    """Measures each way several times, in turn, and writes the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--times", type=int, default=5)
    settings = parser.parse_args()
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as folder:
        parameters = make_model(Path(folder))
        result = {
            **origin("handover"),
            "seed": 0,
            "parameters": parameters,
            "times": settings.times,
            "one_process": one_process(Path(folder), settings.times),
            **between_processes(Path(folder), settings.times),
        }

    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


def make_model(folder: Path) -> int:
    """A model directory with the tiny policy's tokenizer; returns the number of parameters."""
    for file in tiny_directory().glob("tokenizer*"):
        shutil.copyfile(file, folder / file.name)

    torch.manual_seed(0)
    lm = AutoModelForCausalLM.from_config(
        Qwen2Config(
            hidden_size=768,
            intermediate_size=3072,
            num_hidden_layers=10,
            num_attention_heads=12,
            num_key_value_heads=4,
            vocab_size=16_384,
            tie_word_embeddings=True,
        )
    )
    lm.save_pretrained(folder)
    return int(lm.num_parameters())


# -- both in this process ----------------------------------------------------------------------


def one_process(folder: Path, times: int) -> dict[str, Figures]:
    """The learner's own tensors are copied into the engine's."""
    found = {}
    for name, rank in (("all weights", 0), (f"adapters of rank {RANK}", RANK)):
        config = config_of(folder, rank, learners=0)
        learner, runner = learner_of(config), SSPEnvRunner(config=config)
        seconds = []
        for _ in range(times):
            began = time.perf_counter()
            (weights,) = learner.publish(half=False)
            runner.set_state({COMPONENT_RL_MODULE: weights})
            seconds.append(time.perf_counter() - began)

        copied = sum(tensor.nbytes for tensor in weights[MODULE_ID].values())
        runs = [{"seconds": each, "bytes_copied": copied} for each in seconds]
        found[name] = summed_up(runs)
    return found


# -- a process each ----------------------------------------------------------------------------


@ray.remote(num_cpus=1)
class Learner:
    """RLlib's learner in a process of its own, without its group."""

    def __init__(self, config: SSPConfig) -> None:
        torch.set_num_threads(1)
        self._learner = learner_of(config)

    def change(self) -> None:
        """Makes other weights of the present ones."""
        with torch.no_grad():
            for parameter in self._learner.module[MODULE_ID].parameters():
                parameter.mul_(1.001)

    def publish(self, half: bool, direct: bool) -> tuple[list[Any], float]:
        """A reference to the weights, and seconds."""
        began = time.perf_counter()
        return self._learner.publish(half, direct), time.perf_counter() - began

    def get_state(self) -> dict[str, Any]:
        """As RLlib's group asks for weights."""
        state: dict[str, Any] = self._learner.get_state(COMPONENT_RL_MODULE, inference_only=True)
        return state


@ray.remote(num_cpus=1, max_restarts=1, max_task_retries=-1)
class Runner:
    """RLlib's env runner in a process of its own."""

    def __init__(self, config: SSPConfig) -> None:
        torch.set_num_threads(1)
        self._runner = SSPEnvRunner(config=config)

    def set_state(self, state: dict[str, Any]) -> float:
        """Takes weights; returns seconds."""
        began = time.perf_counter()
        self._runner.set_state(state)
        return time.perf_counter() - began

    def size(self, state: dict[str, Any]) -> int:
        """Bytes of weights."""
        weights = ray.get(state[COMPONENT_RL_MODULE])[MODULE_ID]
        return sum(weight.nbytes for weight in weights.values())

    def at_rest(self) -> float:
        """Cores that this process takes up while it has nothing to do."""
        began, used = time.perf_counter(), time.process_time()
        time.sleep(2)
        return (time.process_time() - used) / (time.perf_counter() - began)

    def digest(self) -> str:
        """Of the engine's weights."""
        found = hashlib.sha256()
        for _, weight in sorted(self._runner.engine.weights().items()):
            found.update(weight.tobytes())
        return found.hexdigest()


@dataclass(frozen=True)
class Way:
    """How weights go from process to process."""

    half: bool | None = False
    """Whether they are rounded; ``None``: RLlib's own way."""
    direct: bool = False
    """Whether they are read out of the learner's memory."""


STORE = {
    "all weights, float32": Way(),
    "all weights, bfloat16": Way(half=True),
    "all weights, float32, through the driver": Way(half=None),
}
ADAPTERS = {f"adapters of rank {RANK}, float32": Way()}
NIXL = {
    "all weights, float32": Way(direct=True),
    "all weights, bfloat16": Way(half=True, direct=True),
}


def between_processes(folder: Path, times: int) -> dict[str, Any]:
    """All ways from process to process."""
    ray.init(
        "local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    try:
        store = in_turn(folder, 0, STORE, times) | in_turn(folder, RANK, ADAPTERS, times)
        if find_spec("nixl") is None:
            return {"object_store": store}
        direct: Found = {}
        for name, way in NIXL.items():
            direct |= in_turn(folder, 0, {name: way}, times)
        return {"object_store": store, "nixl_version": version("nixl"), "nixl": direct}
    finally:
        ray.shutdown()


def in_turn(folder: Path, rank: int, ways: dict[str, Way], times: int) -> Found:
    """Each way so many times, between the same two processes."""
    config = config_of(folder, rank, learners=1)
    learner, runner = Learner.remote(config), Runner.remote(config)
    measured: dict[str, list[Figures]] = {name: [] for name in ways}

    # Waits until both are there, and until readers know where to read.
    for way in ways.values():
        handed_over(learner, runner, way)
    for _ in range(times):
        ray.get(learner.change.remote())
        for name, way in ways.items():
            measured[name].append(handed_over(learner, runner, way))

    found: Found = {}
    for name, way in ways.items():
        handed_over(learner, runner, way)
        found[name] = {**summed_up(measured[name]), "engine": ray.get(runner.digest.remote())}
        if way.direct:
            found[name]["cores_at_rest"] = ray.get(runner.at_rest.remote())
            found[name]["engine_after_restart"] = after_restart(config, learner, way)

    ray.kill(learner)
    ray.kill(runner)
    return found


def after_restart(config: SSPConfig, learner: Any, way: Way) -> str:
    """The digest of a runner that has died, and is handed what the others have."""
    runner = Runner.remote(config)
    handed_over(learner, runner, way)
    state = {COMPONENT_RL_MODULE: ray.get(learner.publish.remote(way.half, way.direct))[0][0]}
    ray.kill(runner, no_restart=False)
    ray.get(runner.set_state.remote(state))
    digest: str = ray.get(runner.digest.remote())
    ray.kill(runner)
    return digest


def handed_over(learner: Any, runner: Any, way: Way) -> Figures:
    """One time, step by step."""
    began = time.perf_counter()
    if way.half is None:
        weights: Named = ray.get(learner.get_state.remote())[COMPONENT_RL_MODULE]
        put = time.perf_counter() - began
        reference = ray.put(weights)
    else:
        (reference,), put = ray.get(learner.publish.remote(way.half, way.direct))

    state = {COMPONENT_RL_MODULE: reference}
    taken = ray.get(runner.set_state.remote(state))
    seconds = time.perf_counter() - began
    size = ray.get(runner.size.remote(state))
    return {"seconds": seconds, "learner_seconds": put, "engine_seconds": taken, "bytes": size}


def summed_up(runs: list[Figures]) -> Figures:
    """Medians, and the fastest and the slowest time."""
    middle = {name: median(run[name] for run in runs) for name in runs[0]}
    seconds = [run["seconds"] for run in runs]
    return {**middle, "fastest": min(seconds), "slowest": max(seconds)}


def config_of(folder: Path, rank: int, learners: int) -> SSPConfig:
    """One learner, one env runner, all in float32, as on CPUs."""
    config = SSPConfig().environment(env_config={"world": "mini"}).debugging(seed=0)
    config.training(model_dir=str(folder), lora_rank=rank, kl_coeff=0.0, precision="float32")
    config.learners(num_learners=learners)
    return config


def learner_of(config: SSPConfig) -> SSPLearner:
    """A learner that is not part of an algorithm."""
    spec = MultiRLModuleSpec(rl_module_specs={MODULE_ID: config.get_default_rl_module_spec()})
    learner = SSPLearner(config=config, module_spec=spec)
    learner.build()
    return learner


if __name__ == "__main__":
    sys.exit(main())

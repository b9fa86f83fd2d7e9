"""``ssp plan``, and the check before each run: does it fit on its GPUs?

Everything follows from settings, by the formulas of ``agents/memory.py``.
"""

from __future__ import annotations

import json
import logging
import math
import os
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from agents.memory import (
    Device,
    Plan,
    Shape,
    gpus_of,
    least_share,
    longest_row,
    plan,
    rows_per_pass,
    shape_of,
)
from experiments.config import RunConfig
from experiments.run.checks import TINY_WORLDS, check_model_directory
from experiments.run.process import quiet_libraries
from ssp_env.errors import ConfigError, ModelError

MEMORY = 80.0
"""GiB of a GPU, unless it is said."""
USABLE = 0.92
"""Share of a GPU's memory that a plan may fill; the rest is for CUDA, NCCL and fragments."""
UNCHECKED = (
    "no GPU could be asked how much memory it has; `ssp plan --memory GIB`, with the settings of "
    "this run, tells whether it fits"
)
HELPS = {
    "activations": (
        "learning.gradient_checkpointing",
        "set it to true, or lower learning.microbatch_tokens, or set compute.sharding=fsdp2",
    ),
    "KV cache": ("learning.round_size", "lower it, or set engine.kind=vllm"),
    "the engine's passes": ("learning.round_size", "lower it, or set engine.kind=vllm"),
    "engine's weights": ("compute.gpus_per_env_runner", "take larger GPUs"),
    "weights": (
        "compute.sharding",
        "set compute.sharding=fsdp2 with more compute.learners, or learning.lora_rank=16",
    ),
}
"""Largest part of a full device -> the setting to name, and what helps."""

_log = logging.getLogger(__name__)


def show_plan(
    config: RunConfig, *, gpus: int | None = None, memory: float | None = None, as_json: bool
) -> int:
    """Prints the plan of a run; see :func:`experiments.cli.plan`."""
    quiet_libraries()
    if config.model:
        check_model_directory(Path(config.model))
    elif config.world not in TINY_WORLDS:
        what = f"the tiny policy that ships cannot read {config.world}"
        raise ConfigError("model", "", f"{what}; give --model DIR (its config.json is enough)")

    used = gpus_of(config.compute)
    for name, given in (("--gpus", gpus), ("--memory", memory)):
        if given is not None and given <= 0:
            raise ConfigError(name, given, "give more than 0")
        if given is not None and not used:
            fix = "set compute.gpus_per_learner and gpus_per_env_runner, or take --preset h200"
            raise ConfigError(name, given, f"these settings use no GPU; {fix}")

    shape, size = read_shape(config.model_dir), (memory or MEMORY) * 2**30
    made = check_fit(config, shape, size, gpus or math.ceil(used))
    if as_json:
        print(json.dumps(_plain(config, made)))
    else:
        _show(config, made, size)
    return 0


def check_memory(config: RunConfig) -> Plan | None:
    """Makes sure that a run fits on its GPUs, of this machine or of its Ray cluster.

    Returns:
        Its plan; ``None`` if it uses no GPU, or if none could be asked, which is then logged.

    Raises:
        ConfigError: it does not fit; names the setting to change.
        ServiceError: the cluster cannot be reached.
    """
    if not gpus_of(config.compute):
        return None

    memories = gpu_memories()
    if not memories:
        _log.warning(UNCHECKED)
        return None

    # A cluster may get more GPUs than it has now.
    gpus = max(len(memories), math.ceil(gpus_of(config.compute)))
    return check_fit(config, read_shape(config.model_dir), min(memories), gpus)


def check_fit(config: RunConfig, shape: Shape, memory: float, gpus: int) -> Plan:
    """The plan of a run that fits.

    Args:
        config: of the run.
        shape: of its policy.
        memory: bytes of each GPU.
        gpus: how many there are.

    Raises:
        ConfigError: it does not fit, or could not be dealt to its processes.
    """
    config.check()
    asked = gpus_of(config.compute)
    if not asked:
        return plan(shape, config)
    if asked > gpus:
        what = f"{asked:g} GPUs are asked for in all, and there are {gpus}"
        fix = f"{what}; ask for fewer compute.learners and compute.env_runners"
        raise ConfigError("compute.learners", config.compute.learners, fix)

    made = plan(shape, config, memory)
    full = max((device for device in made.devices if device.gpu), key=lambda each: each.total)
    if full.total > USABLE * memory:
        raise _too_full(config, full, memory)
    if config.engine.kind == "vllm" and config.compute.gpus_per_env_runner:
        least = least_share(shape, config, memory)
        if config.engine.memory < least - 0.05:
            fix = f"policy and longest row take {least:.2f} of the GPU; give at least that"
            raise ConfigError("engine.memory", config.engine.memory, fix)
    return made


def _too_full(config: RunConfig, full: Device, memory: float) -> ConfigError:
    largest = max(full.parts, key=lambda name: full.parts[name])
    what = f"each {full.name} needs {gib(full.total)} of the {gib(memory)} of its GPU"
    what += f" ({gib(full.parts[largest])} of it {largest})"
    if largest == "KV cache" and config.engine.kind == "vllm":
        name, fix = "engine.memory", "lower it"
    else:
        name, fix = HELPS.get(largest.partition(",")[0], HELPS["weights"])
    section, _, field = name.partition(".")
    return ConfigError(name, getattr(getattr(config, section), field), f"{what}; {fix}")


def read_shape(directory: Path) -> Shape:
    """Sizes of the policy of a model directory, of which only ``config.json`` is read."""
    try:
        config: Any = AutoConfig.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{directory / 'config.json'} cannot be used: {error}") from error

    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelError(f"the model in {directory} ({config.model_type}) is not a causal LM")
    return shape_of(config)


# -- GPUs that are there -----------------------------------------------------------------------


def gpu_memories() -> list[int]:
    """Bytes of each GPU that a run may use, as far as they are known.

    With ``RAY_ADDRESS``, each node of that cluster is asked about its GPUs, in a task of its own;
    the main process need not have any.

    Raises:
        ServiceError: the cluster cannot be reached.
    """
    if not os.environ.get("RAY_ADDRESS"):
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [torch.cuda.get_device_properties(i).total_memory for i in range(there)]

    import ray  # takes seconds, and only clusters need it here
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from experiments.run.cluster import started_ray

    with started_ray():
        asked = {}
        for node in ray.nodes():
            if node["Alive"] and (count := int(node["Resources"].get("GPU", 0))):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = ray.remote(num_cpus=0, num_gpus=0.01, scheduling_strategy=there)
                asked[task(_first_memory).remote()] = count

        # Nodes that are too busy to answer within a minute are left out.
        answered, busy = (
            ray.wait([*asked], num_returns=len(asked), timeout=60) if asked else ([], [])
        )
        for reference in busy:
            ray.cancel(reference)
        return [size for ref in answered for size in [ray.get(ref)] * asked[ref] if size]


def _first_memory() -> int:
    """Bytes of the GPU that this process was given; 0 if PyTorch does not see it."""
    return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0


# -- what is printed ---------------------------------------------------------------------------


def _plain(config: RunConfig, made: Plan) -> dict[str, Any]:
    """A plan as plain data; all sizes in bytes."""
    return {
        "model": str(config.model_dir),
        "parameters": made.shape.parameters,
        "longest_row": longest_row(config.game),
        "rows_per_pass": rows_per_pass(config.game, config.learning),
        "devices": [
            {"name": device.name, "count": device.count, "holds": device.parts, "all": device.total}
            for device in made.devices
        ],
        "moved_per_step": made.moved,
    }


def _show(config: RunConfig, made: Plan, memory: float) -> None:
    """Prints which model was counted, one table per kind of device, then what a step moves."""
    console = Console(highlight=False)
    model = config.model or "the tiny policy that ships"
    rows = rows_per_pass(config.game, config.learning)
    passes = f"{rows} row{'s' if rows > 1 else ''} of {longest_row(config.game):,} tokens"
    billions = made.shape.parameters / 1e9
    count = f"{billions:.2f}B" if billions >= 1 else f"{1000 * billions:.2f}M"
    size = f"{count} parameters; a pass takes up to {passes}"
    console.print(f"{model}: {size}", markup=False, soft_wrap=True)

    for device in made.devices:
        where = "GPU" if device.gpu else "process"
        several = f"{where}s, each" if device.gpu else f"{where}es, each"
        console.print(f"{device.name}: {device.count} {where if device.count == 1 else several}")

        table = Table("", "", show_header=False)
        table.columns[1].justify = "right"
        for name, held in device.parts.items():
            table.add_row(name, gib(held))
        table.add_section()
        table.add_row("all", gib(device.total))
        if device.gpu:
            table.add_row(f"of {gib(memory)}, of which {USABLE:.0%} may be used", "fits")
        console.print(table)

    for name, moved in made.moved.items():
        console.print(f"a step moves, {name}: {gib(moved)}")


def gib(size: float) -> str:
    """Bytes as a person reads them."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 2**10:,.1f} KiB"

"""The check before each run: does it fit on its GPUs, and which layout is the fastest?

Everything follows from settings, by the formulas of ``estimates.py``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import torch

from ssp_agents.config import vllm_share
from ssp_agents.models import meta_model
from ssp_env.errors import ConfigError
from ssp_experiments.config import RunConfig
from ssp_experiments.estimates import (
    Device,
    Shape,
    estimate,
    least_share,
    plan,
    shape_of,
)

MEMORY = 80.0
"""GiB of a GPU, unless it is said."""
MACHINE = 8
"""GPUs of a machine; Ray can place pairs that share them on one machine alone."""
SPARE = 0.8
"""Share of a device's memory up to which a plan goes without checkpointing, unless it is said."""
USABLE = 0.92
"""Share of a GPU's memory that a plan may fill; the rest is for CUDA, NCCL and fragments."""
HELPS = {
    "activations": (
        "learning.gradient_checkpointing",
        "set it to true, or lower learning.microbatch_tokens, or set compute.sharding=fsdp2",
    ),
    "KV cache": ("learning.round_size", "lower it, or set engine.kind=vllm"),
    "the engine's passes": ("learning.round_size", "lower it, or set engine.kind=vllm"),
    "engine's weights": ("compute.tensor_parallel", "give 2 or more, or take larger GPUs"),
    "weights": (
        "compute.sharding",
        "set compute.sharding=fsdp2 with more compute.learners, or learning.lora_rank=16",
    ),
}
"""Largest part of a full device -> the setting to name, and what helps."""

_log = logging.getLogger(__name__)


def fastest(config: RunConfig, shape: Shape, memory: float, gpus: int) -> RunConfig | None:
    """The run in the layout of that many GPUs that fits and takes the fewest seconds a step by
    :func:`~ssp_experiments.estimates.estimate`; ``None`` if there is none."""
    fitting = [one for one in layouts(config, gpus) if _too_full(one, shape, memory) is None]
    return min(fitting, key=lambda one: estimate(shape, one, memory).step, default=None)


def layouts(config: RunConfig, gpus: int) -> Iterator[RunConfig]:
    """The run in each layout of that many GPUs: all shared, or some for engines and the others for
    learners, which then work at once where importance ratios correct for it."""
    compute, engine, spread = config.compute, config.engine, config.compute.tensor_parallel
    overlap = compute.overlap or config.learning.importance_cap is not None
    # A single GPU is shared within the main process, without actors.
    pairs = gpus if gpus > 1 else 0
    kinds = [("shared", pairs, pairs, engine)] if gpus <= MACHINE else []
    if kinds and engine.memory is None and engine.kind == "vllm":
        # What learners that share a policy may leave to the engine.
        kinds.append(("shared", pairs, pairs, engine.replace(memory=0.6)))
    # Each engine takes ``spread`` GPUs, the learners all others, at least one.
    for engines in range(1, (gpus - 1) // spread + 1):
        kinds.append(("own", engines, gpus - engines * spread, engine))

    for kind, runners, learners, given in kinds:
        changed = compute.replace(
            gpus=kind,
            tensor_parallel=spread if kind == "own" else 1,
            env_runners=runners,
            learners=learners,
            sharding="fsdp2" if learners > 1 else "ddp",
            overlap=overlap and kind == "own",
        )
        made = config.replace(compute=changed, engine=given)
        try:
            made.check()
        except ConfigError:
            continue
        yield made


def difference(config: RunConfig, other: RunConfig) -> str:
    """Arguments that make one run's layout another's."""
    return " ".join(
        f"--set {section}.{name}={str(value).lower()}"
        for section in ("compute", "engine")
        for name, value in getattr(other, section)
        if value != getattr(getattr(config, section), name)
    )


def machine_memory() -> float:
    """Bytes that this machine's processes may hold, by its own count and by that of the control
    group that it runs this one in."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    said = limit.read_text(encoding="utf-8").strip() if limit.is_file() else "max"
    return float(memory if said == "max" else min(memory, int(said)))


def with_checkpointing(config: RunConfig, shape: Shape, memory: float) -> RunConfig:
    """The run with ``learning.gradient_checkpointing`` decided, where that is left open: without,
    if the plan then takes at most ``SPARE`` of the memory. That is a GPU's, or the machine's, of
    which each process takes its part. Results are the same."""
    if config.learning.gradient_checkpointing is not None:
        return config
    without = _checkpointing(config, False)
    on_gpus = config.compute.gpus != "none"
    devices = plan(shape, without, memory if on_gpus else 0)
    # On GPUs the largest process has to fit, on a CPU's memory all of them together.
    each = [device.total for device in devices for _ in range(device.count)]
    fits = (max(each) if on_gpus else sum(each)) <= SPARE * memory
    return without if fits else _checkpointing(config, True)


def _checkpointing(config: RunConfig, chosen: bool) -> RunConfig:
    learning = config.learning.replace(gradient_checkpointing=chosen)
    return config.replace(learning=learning)


def check_memory(config: RunConfig) -> RunConfig:
    """Makes sure that a run fits on this machine's GPUs; those of a Ray cluster are not asked.

    Returns:
        The run, with ``learning.gradient_checkpointing`` decided.
    """
    shape = shape_of(meta_model(config.model_dir))
    if config.compute.gpus == "none":
        return with_checkpointing(config, shape, machine_memory())
    if os.environ.get("RAY_ADDRESS"):
        fix = "`ssp plan --memory GIB`, with the settings of this run, tells whether it fits"
        _log.warning("no GPU could be asked how much memory it has; %s", fix)
        return with_checkpointing(config, shape, MEMORY * 2**30)

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    memories = [torch.cuda.get_device_properties(i).total_memory for i in range(count)]
    memory = min(memories, default=0)
    config = with_checkpointing(config, shape, memory)
    check_fit(config, shape, memory, count)
    return config


def check_fit(config: RunConfig, shape: Shape, memory: float, gpus: int) -> tuple[Device, ...]:
    """The plan of a run that fits on that many GPUs of ``memory`` bytes each; a ConfigError, which
    names the setting to change and the fastest layout that fits, if it does not."""
    config.check()
    wanted = config.compute.gpus_in_all
    if not wanted:
        return plan(shape, config)

    refused = _too_full(config, shape, memory) if gpus else None
    if refused is None and wanted > gpus:
        what = f"{wanted} GPUs are asked for in all, and there are {gpus}"
        fix = f"{what}; ask for fewer env runners and learners, or set RAY_ADDRESS"
        refused = ConfigError("compute.gpus", config.compute.gpus, fix)
    if refused is None:
        return plan(shape, config, memory)

    best = fastest(config, shape, memory, gpus)
    if best is not None and best != config:
        refused = ConfigError(
            refused.field, refused.value, f"{refused.fix}. This fits: {difference(config, best)}"
        )
    raise refused


def _too_full(config: RunConfig, shape: Shape, memory: float) -> ConfigError | None:
    """Complaint about the fullest GPU of a run, if it is too full."""
    devices = plan(shape, config, memory)
    share = vllm_share(config.engine, config.compute.gpus == "shared")
    full = max(devices, key=lambda each: each.total)
    if full.total > USABLE * memory:
        largest = max(full.parts, key=lambda name: full.parts[name])
        what = f"each {full.name} needs {gib(full.total)} of the {gib(memory)} of its GPU"
        what += f" ({gib(full.parts[largest])} of it {largest})"
        if largest == "KV cache" and config.engine.kind == "vllm":
            return ConfigError("engine.memory", share, f"{what}; lower it")
        name, fix = HELPS.get(largest.partition(",")[0], HELPS["weights"])
        return ConfigError(name, attrgetter(name)(config), f"{what}; {fix}")

    least = least_share(shape, config, memory)
    # The twentieth for vLLM's own passes is not insisted on.
    if config.engine.kind == "vllm" and share < least - 0.05:
        fix = f"policy and longest row take {least:.2f} of the GPU; give at least that"
        return ConfigError("engine.memory", share, fix)
    return None


def gib(size: float) -> str:
    """Bytes as a person reads them."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 2**10:,.1f} KiB"

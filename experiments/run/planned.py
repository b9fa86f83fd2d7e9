"""Plans of runs from their settings alone: what does not fit on the GPUs is refused with what does.

The formulas are in ``agents/memory.py``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents.config import check_overlap, check_rounds
from agents.memory import Device, Plan, Shape, gpus_of, least_share, longest_row, plan, shape_of
from experiments.config import RunConfig
from experiments.run.gpus import gpu_memories
from ssp_env.config import named
from ssp_env.errors import ConfigError, ModelError

USABLE = 0.92
"""Share of a GPU's memory that a plan may fill; the rest is for CUDA, NCCL and fragments."""
UNCHECKED = (
    "no GPU could be asked how much memory it has, so nobody knows whether this run fits: "
    "`ssp plan --preset %s --memory GIB`, with the other settings of this run, says so"
)

_log = logging.getLogger(__name__)


def read_shape(directory: Path) -> Shape:
    """Sizes of the policy of a model directory, of which only ``config.json`` is read."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    try:
        config: Any = AutoConfig.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{directory / 'config.json'} cannot be used: {error}") from error

    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelError(f"the model in {directory} ({config.model_type}) is not a causal LM")
    return shape_of(config)


def plan_of(config: RunConfig, shape: Shape, memory: float = 0) -> Plan:
    """The plan of a run; arguments as of :func:`agents.memory.plan`."""
    return plan(shape, config, memory)


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
        _log.warning(UNCHECKED, config.preset)
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
        ConfigError: it does not fit, or could not be dealt to its processes; names settings with
            which it would, if there are any.
    """
    check_dealt(config)
    asked = gpus_of(config.compute)
    full = _over(config, shape, memory)
    if asked <= gpus and full is None:
        return plan_of(config, shape, memory)

    if asked > gpus:
        what = f"{asked:g} GPUs are asked for in all, and there are {gpus}"
        starts = _on_fewer(config, gpus)
    else:
        assert full is not None
        largest = max(full.parts, key=lambda name: full.parts[name])
        what = f"each {full.name} needs {gib(full.total)} of the {gib(memory)} of its GPU"
        what += f" ({gib(full.parts[largest])} of it {largest})"
        starts = iter([config])

    for start in starts:
        vllm = start.replace(engine=start.engine.replace(kind="vllm"))
        ways = [_fitting(each, shape, memory, gpus) for each in (start, vllm)]
        changes = [_changes(config, way) for way in ways if way is not None]
        if changes:
            name = next(iter(changes[0]))
            advice = dict.fromkeys(
                ", ".join(f"{n}={new}" for n, (_, new) in change.items()) for change in changes
            )
            raise ConfigError(name, changes[0][name][0], f"{what}; set {'; or '.join(advice)}")

    fix = f"{what}; no settings that this plan knows make it fit: take more or larger GPUs"
    raise ConfigError("compute.learners", config.compute.learners, fix)


def check_dealt(config: RunConfig) -> None:
    """Makes sure that a run's sizes can be dealt to its processes."""
    with named("learning"):
        check_rounds(config.game, config.learning, config.compute.env_runners)
    with named("compute"):
        check_overlap(config.learning, config.compute.overlap)


def _on_fewer(config: RunConfig, gpus: int) -> Iterator[RunConfig]:
    """The same run on so many GPUs: half of them learn, or more, or one does both."""
    rounds = -(-config.learning.batch_size // config.learning.round_size)
    compute = config.compute
    whole = compute.replace(gpus_per_env_runner=1, gpus_per_learner=1)
    for runners in range(min(gpus // 2, rounds), 0, -1):
        split = whole.replace(env_runners=runners, sharding="ddp", learners=gpus - runners)
        if split.learners > 1:
            split = split.replace(sharding=compute.sharding)
        yield config.replace(compute=split)

    if not compute.overlap:
        one = whole.replace(env_runners=0, sharding="ddp", learners=0)
        half = one.replace(gpus_per_env_runner=0.5, gpus_per_learner=0.5)
        yield config.replace(compute=half)


def _fitting(config: RunConfig, shape: Shape, memory: float, gpus: int) -> RunConfig | None:
    """The run with as few changes as make it fit; ``None`` if these do not."""
    while (full := _over(config, shape, memory)) is not None:
        changed = _remedy(config, shape, full, memory)
        if changed is None or gpus_of(changed.compute) > gpus:
            return None
        config = changed

    try:
        check_dealt(config)
    except ConfigError:
        return None
    return config


def _over(config: RunConfig, shape: Shape, memory: float) -> Device | None:
    """The GPU that holds the most, if that is more than it can."""
    devices = [device for device in plan_of(config, shape, memory).devices if device.gpu]
    full = max(devices, key=lambda device: device.total)
    if full.total > USABLE * memory:
        return full

    if config.engine.kind == "vllm" and config.compute.gpus_per_env_runner:
        # Its share has to hold the policy and the longest row.
        least = least_share(shape, config, memory)
        if config.engine.memory < least - 0.05:
            return next(device for device in devices if "engine" in device.name)
    return None


def _remedy(config: RunConfig, shape: Shape, full: Device, memory: float) -> RunConfig | None:
    """One change for what is full, from the cheapest on; ``None`` if there is none left."""
    game, learning, compute = config.game, config.learning, config.compute
    sharded = compute.sharding == "fsdp2"
    if "activations" in full.parts:
        if not learning.gradient_checkpointing:
            return config.replace(learning=learning.replace(gradient_checkpointing=True))
        if learning.microbatch_tokens >= 2 * longest_row(game):
            shorter = learning.replace(microbatch_tokens=longest_row(game))
            return config.replace(learning=shorter)
        if compute.learners > 1 and not sharded:
            return config.replace(compute=compute.replace(sharding="fsdp2"))
        if full.name == "learner" and sharded:
            return config.replace(compute=compute.replace(learners=2 * compute.learners))

    if "KV cache" in full.parts:
        if config.engine.kind == "vllm":
            least = least_share(shape, config, memory)
            if least == config.engine.memory or least > USABLE:
                return None
            return config.replace(engine=config.engine.replace(memory=least))
        # An engine holds one round at a time, of whole groups of proposals.
        smaller = min(learning.round_size, learning.batch_size) // 2
        smaller -= smaller % game.proposals
        if smaller:
            return config.replace(learning=learning.replace(round_size=smaller))
    return None


def _changes(before: RunConfig, after: RunConfig) -> dict[str, tuple[object, str]]:
    """Settings in which two runs differ: old value, and new one as it is typed."""
    changed = {}
    for part in ("compute", "engine", "learning"):
        old, new = vars(getattr(before, part)), vars(getattr(after, part))
        for name, value in new.items():
            if value != old[name]:
                changed[f"{part}.{name}"] = old[name], str(value).lower()
    return changed


def gib(size: float) -> str:
    """Bytes as a person reads them."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 2**10:,.1f} KiB"

"""Refuses what does not fit on the GPUs, and finds the settings with which it would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agents.config import check_overlap, check_rounds, check_sharding
from agents.planning.plan import Device, Job, Layout, Plan, Planner
from ssp_env.errors import ConfigError
from ssp_env.settings import named

USABLE = 0.92
"""Share of a GPU's memory that a plan may fill; the rest is for CUDA, NCCL and fragments."""


def check_fit(planner: Planner, job: Job, memory: float, gpus: int) -> Plan:
    """The plan of a job that fits.

    Args:
        planner: counts for the policy.
        job: what is to run.
        memory: bytes of each GPU.
        gpus: how many there are.

    Raises:
        ConfigError: it does not fit, or a run would refuse it; names the settings with which it
            would fit, if there are any. A run takes these as they are.
    """
    check_allowed(job)
    if job.layout.gpus > gpus:
        raise _too_many(planner, job, memory, gpus)

    plan = planner.plan(job, memory)
    full = _over(planner, job, memory)
    if full is None:
        return plan

    if job.vllm and _starves(planner, job, memory):
        least = planner.least_share(job, memory)
        what = f"of {gib(memory)} does not hold the policy and its longest row; "
        fix = f"set compute.engine_memory={least}" if least <= USABLE else "take larger GPUs"
        raise ConfigError("compute.engine_memory", job.engine_memory, what + fix)

    needs = f"each {full.name} needs {gib(full.total)} of the {gib(memory)} of its GPU"
    found = [*_ways(planner, job, memory, gpus)]
    if found:
        before, after = settings(job), settings(found[0])
        name = next(name for name, value in after.items() if value != before[name])
        advice = "; or ".join(_changes(job, way) for way in found)
        raise ConfigError(name, before[name], f"{needs}; set {advice}")

    fix = f"{needs}, {_largest(full)}; take more or larger GPUs"
    raise ConfigError("compute.learners", job.layout.learners, fix)


def check_allowed(job: Job) -> None:
    """What a run checks of its sizes and processes.

    Raises:
        ConfigError: a run would refuse them.
    """
    with named("learning"):
        check_rounds(job.game, job.learning, job.layout.env_runners)
    with named("compute"):
        check_overlap(job.learning, job.overlap)
        check_sharding(job.layout.sharding, job.layout.learners)


def settings(job: Job) -> dict[str, object]:
    """What a plan may propose to change, by the names of the settings."""
    layout, learning = job.layout, job.learning
    return {
        "compute.env_runners": layout.env_runners,
        "compute.learners": layout.learners,
        "compute.gpus_per_env_runner": layout.gpus_per_env_runner,
        "compute.gpus_per_learner": layout.gpus_per_learner,
        "learning.gradient_checkpointing": learning.gradient_checkpointing,
        "learning.microbatch_tokens": learning.microbatch_tokens,
        "compute.sharding": layout.sharding,
        "learning.round_size": learning.round_size,
        "compute.engine": "vllm" if job.vllm else "transformers",
        "compute.engine_memory": job.engine_memory,
    }


def gib(size: float) -> str:
    """Bytes as a person reads them."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 2**10:,.1f} KiB"


def _too_many(planner: Planner, job: Job, memory: float, gpus: int) -> ConfigError:
    """Refuses more GPUs than there are; names processes that go on those, and what makes them
    fit."""
    layout = job.layout
    what = f"{layout.gpus:g} GPUs are asked for in all, and there are {gpus}; "
    for fewer in _layouts(job, gpus):
        ways = [*_ways(planner, fewer, memory, gpus)]
        if ways:
            advice = "; or ".join(_changes(job, way) for way in ways)
            return ConfigError("compute.env_runners", layout.env_runners, f"{what}set {advice}")

    name = "gpus_per_env_runner" if layout.gpus_per_env_runner else "gpus_per_learner"
    fix = "with as many, nothing that this plan knows makes it fit: take more or larger GPUs"
    return ConfigError(f"compute.{name}", getattr(layout, name), what + fix)


def _layouts(job: Job, gpus: int) -> Iterator[Job]:
    """The same processes on fewer GPUs: half of them learn, or more, or one does both."""
    rounds = -(-job.learning.batch_size // job.learning.round_size)
    alone = job.layout
    for runners in range(min(gpus // 2, rounds), 0, -1):
        learners = gpus - runners
        sharding = alone.sharding if learners > 1 else "ddp"
        yield replace(job, layout=Layout(runners, learners, 1, 1, sharding))

    if not (job.overlap or job.direct):
        yield replace(job, layout=Layout(0, 0, 0.5, 0.5, "ddp"))


def _ways(planner: Planner, job: Job, memory: float, gpus: int) -> Iterator[Job]:
    """Jobs that fit and that a run accepts: this one with cheaper settings, and with vLLM where
    that spares a change of the rounds."""
    own = _fitting(planner, job, memory, gpus)
    if own is not None:
        yield own

    same_games = own is not None and own.learning.round_size == job.learning.round_size
    if not (job.vllm or same_games) and job.layout.gpus_per_env_runner:
        share = max(job.engine_memory, planner.least_share(job, memory))
        other = replace(job, vllm=True, engine_memory=share)
        way = _fitting(planner, other, memory, gpus)
        if way is not None:
            yield way


def _fitting(planner: Planner, job: Job, memory: float, gpus: int) -> Job | None:
    """The job with as few changes as make it fit; ``None`` if these do not."""
    while (full := _over(planner, job, memory)) is not None:
        changed = _remedy(planner, job, full, memory)
        if changed is None or changed.layout.gpus > gpus:
            return None
        job = changed

    try:
        check_allowed(job)
    except ConfigError:
        return None
    return job


def _remedy(planner: Planner, job: Job, full: Device, memory: float) -> Job | None:
    """One change for what is full, from the cheapest on; ``None`` if there is none left."""
    learning, layout = job.learning, job.layout
    if "activations" in full.parts:
        if not learning.gradient_checkpointing:
            return replace(job, learning=learning.replace(gradient_checkpointing=True))
        if job.rows > 1:
            return replace(job, learning=learning.replace(microbatch_tokens=job.longest))
        if layout.learners > 1 and not job.sharded:
            return replace(job, layout=replace(layout, sharding="fsdp2"))
        if full.name == "learner" and job.sharded:
            return replace(job, layout=replace(layout, learners=2 * layout.learners))

    if "KV cache" in full.parts:
        if job.vllm:
            least = planner.least_share(job, memory)
            return replace(job, engine_memory=least) if job.engine_memory != least else None
        # An engine holds one round at a time.
        group = job.game.proposals
        smaller = min(learning.round_size, learning.batch_size) // 2 // group * group
        if smaller:
            return replace(job, learning=learning.replace(round_size=smaller))
    return None


def _over(planner: Planner, job: Job, memory: float) -> Device | None:
    """The GPU that holds the most, if that is more than it can."""
    plan = planner.plan(job, memory)
    full = max((d for d in plan.devices if d.gpu), key=lambda device: device.total)
    if full.total > USABLE * memory:
        return full
    if job.vllm and job.layout.gpus_per_env_runner and _starves(planner, job, memory):
        return next(device for device in plan.devices if "engine" in device.name)
    return None


def _starves(planner: Planner, job: Job, memory: float) -> bool:
    """Whether vLLM's share is too small for the policy and its longest row."""
    return job.engine_memory * memory < planner.least_bytes(job)


def _largest(full: Device) -> str:
    largest = max(full.parts, key=lambda name: full.parts[name])
    return f"{gib(full.parts[largest])} of it {largest}"


def _changes(before: Job, after: Job) -> str:
    """The settings in which two jobs differ, as they are set."""
    old = settings(before)
    return ", ".join(
        f"{name}={_plain(value)}" for name, value in settings(after).items() if value != old[name]
    )


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Refuses what does not fit on the GPUs, and finds the settings with which it would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agents.planning.plan import Device, Job, Plan, Planner
from ssp_env.errors import ConfigError

USABLE = 0.92
"""Share of a GPU's memory that a plan may fill; the rest is for CUDA, NCCL and fragments."""
_MANY = 1024


def check_fit(planner: Planner, job: Job, memory: int, gpus: int) -> Plan:
    """The plan of a job that fits.

    Args:
        planner: counts for the policy.
        job: what is to run.
        memory: bytes of each GPU.
        gpus: how many there are.

    Raises:
        ConfigError: it does not fit; names the settings with which it would, if there are any.
    """
    if job.layout.gpus > gpus:
        raise _too_many(job, gpus)

    plan = planner.plan(job)
    full = _fullest(plan)
    if full.total <= USABLE * memory:
        return plan

    needs = f"each {full.name} needs {gib(full.total)} of the {gib(memory)} of its GPU"
    changes: dict[str, object] = {}
    before: object = None
    for name, old, value, changed in _remedies(planner, job):
        before = old if not changes else before
        changes[name] = value
        if _fits(planner, changed, memory) and changed.layout.gpus <= gpus:
            fix = ", ".join(f"{name}={_plain(value)}" for name, value in changes.items())
            raise ConfigError(next(iter(changes)), before, f"{needs}; set {fix}")

    largest = max(full.parts, key=lambda name: full.parts[name])
    fix = f"{needs}, {gib(full.parts[largest])} of it {largest}; take more or larger GPUs"
    raise ConfigError("compute.learners", job.layout.learners, fix)


def gib(size: float) -> str:
    """Bytes as a person reads them."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 2**10:,.1f} KiB"


def _too_many(job: Job, gpus: int) -> ConfigError:
    layout = job.layout
    fix = f"{layout.gpus:g} GPUs are asked for in all, and there are {gpus}; "
    if gpus >= 2 and layout.env_runners and layout.learners:
        half = gpus // 2
        fix += f"set compute.env_runners={half}, compute.learners={gpus - half}"
        if gpus - half == 1 and layout.sharding == "fsdp2":
            fix += ", compute.sharding=ddp"  # one learner has nobody to share with
        return ConfigError("compute.env_runners", layout.env_runners, fix)
    name = "gpus_per_env_runner" if layout.gpus_per_env_runner else "gpus_per_learner"
    return ConfigError(f"compute.{name}", getattr(layout, name), fix + "ask for fewer")


def _fullest(plan: Plan) -> Device:
    """The GPU that holds the most."""
    return max((d for d in plan.devices if d.gpu), key=lambda device: device.total)


def _fits(planner: Planner, job: Job, memory: int) -> bool:
    return _fullest(planner.plan(job)).total <= USABLE * memory


def _remedies(planner: Planner, job: Job) -> Iterator[tuple[str, object, object, Job]]:
    """Changes one after the other, each on top of those before it: from the cheapest on.

    Yields:
        the setting, its value before and after, and the job with it.
    """
    if not job.learning.gradient_checkpointing:
        job = replace(job, learning=replace(job.learning, gradient_checkpointing=True))
        yield "learning.gradient_checkpointing", False, True, job

    if job.rows > 1:
        old = job.learning.microbatch_tokens
        job = replace(job, learning=replace(job.learning, microbatch_tokens=job.longest))
        yield "learning.microbatch_tokens", old, job.longest, job

    fullest = _fullest(planner.plan(job)).name
    if fullest != "engine" and job.layout.learners > 1 and not job.sharded:
        job = replace(job, layout=replace(job.layout, sharding="fsdp2"))
        yield "compute.sharding", "ddp", "fsdp2", job

    while True:
        full = _fullest(planner.plan(job)).name
        if full == "engine" and job.layout.env_runners < _MANY:
            # An engine that plays half as many games caches half as much.
            old = max(1, job.layout.env_runners)
            job = replace(job, layout=replace(job.layout, env_runners=2 * old))
            yield "compute.env_runners", old, 2 * old, job
        elif full == "learner" and job.sharded and job.layout.learners < _MANY:
            old = job.layout.learners
            job = replace(job, layout=replace(job.layout, learners=2 * old))
            yield "compute.learners", old, 2 * old, job
        else:
            return


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

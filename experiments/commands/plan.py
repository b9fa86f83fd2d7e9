"""``ssp plan``: what each GPU will hold, before anything runs."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from typing import Any

from rich.console import Console
from rich.table import Table

from agents.planning.fit import USABLE, check_allowed, check_fit, gib
from agents.planning.plan import Job, Plan
from experiments.commands.train import DEFAULT_PRESET, settings
from experiments.config import load_preset
from experiments.run.planned import job_of, planner_of
from experiments.run.quiet import quiet_libraries
from ssp_env.errors import ConfigError


def run(arguments: Namespace) -> int:
    """Prints the plan.

    Raises:
        ConfigError: it does not fit; names the setting to change.
    """
    quiet_libraries()
    for name in ("gpus", "memory"):
        if getattr(arguments, name) is not None and getattr(arguments, name) <= 0:
            raise ConfigError(f"--{name}", getattr(arguments, name), "give more than 0")

    config = settings(arguments, load_preset(arguments.preset or DEFAULT_PRESET))
    job, planner = job_of(config), planner_of(config.model_dir)
    memory = arguments.memory * 2**30

    if job.layout.gpus:
        gpus = arguments.gpus or math.ceil(job.layout.gpus)
        plan = check_fit(planner, job, memory, gpus)
    else:
        check_allowed(job)
        plan = planner.plan(job)

    if arguments.json:
        print(json.dumps(as_json(plan, job)))
    else:
        show(plan, job, memory)
    return 0


def as_json(plan: Plan, job: Job) -> dict[str, Any]:
    """A plan as plain data; all sizes in bytes."""
    return {
        "parameters": plan.size.parameters,
        "longest_row": job.longest,
        "rows_per_pass": job.rows,
        "devices": [
            {"name": device.name, "count": device.count, "holds": device.parts, "all": device.total}
            for device in plan.devices
        ],
        "moved_per_step": plan.moved,
    }


def show(plan: Plan, job: Job, memory: float) -> None:
    """Prints one table per kind of device, then what a step moves."""
    console = Console()
    passes = f"{job.rows} row{'s' if job.rows > 1 else ''} of {job.longest:,} tokens"
    console.print(
        f"{plan.size.parameters / 1e9:.2f}B parameters; a pass takes up to {passes}",
        highlight=False,
    )

    for device in plan.devices:
        where = "GPU" if device.gpu else "process"
        several = "" if device.count == 1 else "s" if device.gpu else "es"
        title = f"{device.name}: {device.count} {where}{several}, each"
        table = Table(title=title, title_justify="left", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for name, size in device.parts.items():
            table.add_row(name, gib(size))
        table.add_section()
        table.add_row("all", gib(device.total))
        if device.gpu:
            table.add_row(f"of {gib(memory)}, of which {USABLE:.0%} may be used", "fits")
        console.print(table)

    for name, size in plan.moved.items():
        console.print(f"a step moves, {name}: {gib(size)}", highlight=False)

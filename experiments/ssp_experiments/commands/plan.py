"""``ssp plan``: what each GPU of a run will hold, whether that fits, and how long a step takes."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from ssp_agents.models import meta_model
from ssp_env.errors import ConfigError
from ssp_experiments.config import RunConfig, check_policy
from ssp_experiments.estimates import Device, estimate, longest_row, rows_per_pass, shape_of
from ssp_experiments.planner import (
    MEMORY,
    USABLE,
    check_fit,
    difference,
    fastest,
    gib,
    machine_memory,
    with_checkpointing,
)
from ssp_experiments.run.process import quiet_libraries

WORTHWHILE = 0.9
"""Share of a step's seconds that another layout may take at most to be named."""


def run(
    config: RunConfig, *, gpus: int | None = None, memory: float | None = None, as_json: bool
) -> int:
    """Prints what each device of a run will hold, its seconds, and a better layout, if any."""
    quiet_libraries()
    check_policy(config)

    used = config.compute.gpus_in_all
    for name, given in (("--gpus", gpus), ("--memory", memory)):
        if given is not None and not used:
            fix = "set compute.gpus, or take --preset h200"
            raise ConfigError(name, given, f"these settings use no GPU; {fix}")

    shape, size = shape_of(meta_model(config.model_dir)), (memory or MEMORY) * 2**30
    unsaid = config.learning.gradient_checkpointing is None
    config = with_checkpointing(config, shape, size if used else machine_memory())
    count = gpus or used
    best = fastest(config, shape, size, count) if used else None
    proposed = ""
    if best is not None and used > count:
        proposed = f"on {count} GPUs, not {used}: {difference(config, best)}"
        config = best
    devices = check_fit(config, shape, size, count)
    seconds = estimate(shape, config, size) if used else None
    if best is not None and seconds is not None:
        better = estimate(shape, best, size)
        if better.step < WORTHWHILE * seconds.step:
            proposed = f"faster: {difference(config, best)}, {better}"

    longest, rows = longest_row(config.game), rows_per_pass(config.game, config.learning)
    if as_json:
        figures = {
            "model": str(config.model_dir),
            "parameters": shape.parameters,
            "longest_row": longest,
            "rows_per_pass": rows,
            "devices": [
                {"name": each.name, "count": each.count, "holds": each.parts, "all": each.total}
                for each in devices
            ],
            "seconds": seconds and asdict(seconds),
            "proposed": proposed,
        }
        print(json.dumps(figures))
        return 0

    model = config.model or "the tiny policy that ships"
    billions = shape.parameters / 1e9
    parameters = f"{billions:.2f}B" if billions >= 1 else f"{1000 * billions:.2f}M"
    passes = f"{rows} row{'s' if rows > 1 else ''} of {longest:,} tokens"
    print(f"{model}: {parameters} parameters; a pass takes up to {passes}")
    for device in devices:
        _show(device, size if used else 0)
    if unsaid and config.learning.gradient_checkpointing:
        print("layers are computed again in the backward pass: without, memory would be short")
    for line in filter(None, (seconds, proposed)):
        print(line)
    return 0


def _show(device: Device, memory: float) -> None:
    """Prints the table of one kind of device: of a GPU with so much memory, or (0) of a process."""
    console = Console(highlight=False)
    one, several = ("GPU", "GPUs, each") if memory else ("process", "processes, each")
    console.print(f"{device.name}: {device.count} {one if device.count == 1 else several}")

    table = Table("", "", show_header=False)
    table.columns[1].justify = "right"
    for name, size in device.parts.items():
        table.add_row(name, gib(size))
    table.add_section()
    table.add_row("all", gib(device.total))
    if memory:
        table.add_row(f"of {gib(memory)}, of which {USABLE:.0%} may be used", "fits")
    console.print(table)

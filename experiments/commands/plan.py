"""``ssp plan``: what each GPU will hold, before anything runs."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from experiments.commands.train import DEFAULT_PRESET, settings
from experiments.config import ComputeConfig, RunConfig, load_preset
from experiments.run.checks import check_model_directory
from ssp_env.errors import ConfigError

if TYPE_CHECKING:
    from agents.memory import Plan

MEMORY = 80.0
"""GiB of a GPU, unless it is said."""
GENERATED = ("mini", "small")
"""Worlds whose words the policy that ships knows, or can spell."""


def run(arguments: Namespace) -> int:
    """Prints the plan."""
    config = settings(arguments, load_preset(arguments.preset or DEFAULT_PRESET))
    _check_model(config)
    _check_gpus(arguments, config.compute)

    # PyTorch is loaded from here on.
    from agents.memory import gpus_of
    from experiments.run.planned import check_dealt, check_fit, plan_of, read_shape
    from experiments.run.process import quiet_libraries

    quiet_libraries()
    shape, memory = read_shape(config.model_dir), (arguments.memory or MEMORY) * 2**30
    check_dealt(config)
    if used := gpus_of(config.compute):
        plan = check_fit(config, shape, memory, arguments.gpus or math.ceil(used))
    else:
        plan = plan_of(config, shape)

    if arguments.json:
        print(json.dumps(as_json(config, plan)))
    else:
        show(config, plan, memory)
    return 0


def _check_model(config: RunConfig) -> None:
    """
    Raises:
        ConfigError: it is not said which model; the one that ships is not what runs in this world.
        ModelError: there is no such directory, or it holds no model.
    """
    if config.model:
        check_model_directory(Path(config.model))
    elif config.world not in GENERATED:
        what = f"the tiny policy that ships cannot read {config.world}"
        raise ConfigError("model", "", f"{what}; give --model DIR (its config.json is enough)")


def _check_gpus(arguments: Namespace, compute: ComputeConfig) -> None:
    """
    Raises:
        ConfigError: it is said what GPUs there are, and that is not above 0, or no GPU is used.
    """
    used = compute.gpus_per_learner or compute.gpus_per_env_runner
    for name in ("gpus", "memory"):
        given = getattr(arguments, name)
        if given is not None and given <= 0:
            raise ConfigError(f"--{name}", given, "give more than 0")
        if given is not None and not used:
            fix = "set compute.gpus_per_learner and gpus_per_env_runner, or take --preset h200"
            raise ConfigError(f"--{name}", given, f"these settings use no GPU; {fix}")


def as_json(config: RunConfig, plan: Plan) -> dict[str, Any]:
    """A plan as plain data; all sizes in bytes."""
    from agents.memory import longest_row, rows_per_pass

    return {
        "model": str(config.model_dir),
        "parameters": plan.shape.parameters,
        "longest_row": longest_row(config.game),
        "rows_per_pass": rows_per_pass(config.game, config.learning),
        "devices": [
            {"name": device.name, "count": device.count, "holds": device.parts, "all": device.total}
            for device in plan.devices
        ],
        "moved_per_step": plan.moved,
    }


def show(config: RunConfig, plan: Plan, memory: float) -> None:
    """Prints which model was counted, one table per kind of device, then what a step moves."""
    from agents.memory import longest_row, rows_per_pass
    from experiments.run.planned import USABLE, gib

    console = Console(highlight=False)
    model = config.model or "the tiny policy that ships"
    rows = rows_per_pass(config.game, config.learning)
    passes = f"{rows} row{'s' if rows > 1 else ''} of {longest_row(config.game):,} tokens"
    billions = plan.shape.parameters / 1e9
    count = f"{billions:.2f}B" if billions >= 1 else f"{1000 * billions:.2f}M"
    size = f"{count} parameters; a pass takes up to {passes}"
    console.print(f"{model}: {size}", markup=False, soft_wrap=True)

    for device in plan.devices:
        where = "GPU" if device.gpu else "process"
        several = f"{where}s, each" if device.gpu else f"{where}es, each"
        console.print(f"{device.name}: {device.count} {where if device.count == 1 else several}")

        table = Table(show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for name, held in device.parts.items():
            table.add_row(name, gib(held))
        table.add_section()
        table.add_row("all", gib(device.total))
        if device.gpu:
            table.add_row(f"of {gib(memory)}, of which {USABLE:.0%} may be used", "fits")
        console.print(table)

    for name, moved in plan.moved.items():
        console.print(f"a step moves, {name}: {gib(moved)}")

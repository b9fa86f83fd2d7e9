"""``ssp bootstrap``."""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agents.tiny.bootstrap import BootstrapConfig, bootstrap, save_policy
from experiments.provenance import git_commit, machine
from ssp_env.config import MINI_GAME
from ssp_env.errors import RunError


def run(arguments: Namespace) -> int:
    """Trains the tiny policy on demonstrations and writes it as a model directory."""
    config = BootstrapConfig(seed=arguments.seed)
    if arguments.steps is not None:
        config = BootstrapConfig(seed=arguments.seed, steps=arguments.steps)
    out = Path(arguments.out)
    if out.exists():
        raise RunError(f"{out} exists already; choose another --out")
    try:
        out.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"{out} cannot be made: {error}") from error
    torch.set_num_threads(1)
    console = Console(stderr=True)
    columns = (
        TextColumn("bootstrap"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=config.steps, loss=float("nan"))
        model = bootstrap(config, MINI_GAME, lambda step, loss: bar.update(task, completed=step, loss=loss))
    save_policy(model, out)
    digest = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    origin = {
        "command": f"ssp bootstrap --seed {config.seed} --steps {config.steps} --out DIR",
        "config": asdict(config),
        "sha256": digest,
        "git_commit": git_commit(),
        "machine": machine(),
    }
    (out / "origin.json").write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
    console.print(f"wrote {out} (model.safetensors sha256 {digest[:16]}…)", highlight=False)
    return 0

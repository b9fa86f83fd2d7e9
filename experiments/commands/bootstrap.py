"""``ssp bootstrap``: trains the tiny base policy from scratch."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agents.tiny.bootstrap import BootstrapConfig, bootstrap, save_policy
from experiments.run.process import interruptible, quiet_libraries
from experiments.run.provenance import git_commit, machine
from ssp_env.disk import make_directories
from ssp_env.errors import RunError
from ssp_env.game.config import MINI_GAME


def run(arguments: Namespace) -> int:
    """Trains the tiny policy on demonstrations; writes a model directory in full or not at all."""
    sizes = {"width": arguments.width, "steps": arguments.steps}
    given = {name: value for name, value in sizes.items() if value is not None}
    config = BootstrapConfig(seed=arguments.seed, **given)
    out = Path(arguments.out)
    if out.exists():
        raise RunError(f"{out} exists already; choose another --out")

    quiet_libraries()
    unfinished = out.with_name(f".{out.name}.unfinished")
    if unfinished.exists():
        shutil.rmtree(unfinished)

    made: list[Path] = []

    try:
        with interruptible(lambda: None) as interrupted:
            made = make_directories(unfinished)
            model = _train(config, interrupted)

        save_policy(model, unfinished)
        digest = hashlib.sha256((unfinished / "model.safetensors").read_bytes()).hexdigest()
        text = json.dumps(_origin(config, digest), indent=2) + "\n"
        (unfinished / "origin.json").write_text(text, encoding="utf-8")
        unfinished.rename(out)
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error}") from error
    except KeyboardInterrupt:
        print(
            "nothing was written; ssp bootstrap cannot be resumed, only started again",
            file=sys.stderr,
        )
        raise
    finally:
        if unfinished.exists():
            shutil.rmtree(unfinished)
            for folder in made[1:]:
                if not any(folder.iterdir()):
                    folder.rmdir()

    Console(stderr=True).print(
        f"wrote {out} (model.safetensors sha256 {digest})", highlight=False, soft_wrap=True
    )

    return 0


def _train(config: BootstrapConfig, interrupted: Callable[[], object]) -> Any:
    torch.set_num_threads(1)
    columns = (
        TextColumn("bootstrap"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )

    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=config.steps, loss=float("nan"))

        def report(step: int, loss: float) -> None:
            bar.update(task, completed=step, loss=loss)
            if interrupted():
                raise KeyboardInterrupt

        return bootstrap(config, MINI_GAME, report)


def _origin(config: BootstrapConfig, digest: str) -> dict[str, Any]:
    """Provenance of the weights, kept in origin.json."""
    return {
        "command": f"ssp bootstrap --seed {config.seed} --width {config.width} "
        f"--steps {config.steps} --out DIR",
        "config": config.model_dump(mode="json"),
        "sha256": digest,
        "git_commit": git_commit(),
        "machine": machine(),
    }

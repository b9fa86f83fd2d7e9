"""``ssp bootstrap``: trains the tiny base policy from scratch."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress

from agents.tiny.bootstrap import HEAD_SIZE, bootstrap, save_policy
from experiments.run.process import handling, provenance, quiet_libraries, raise_interruption
from ssp_env.disk import make_directories, new_folder, remove_empty
from ssp_env.errors import ConfigError, RunError
from ssp_env.game.config import MINI_GAME


def make_policy(out: Path, seed: int, width: int, steps: int) -> int:
    """Trains the tiny policy on demonstrations; writes a model directory in full or not at all."""
    if width <= 0 or width % HEAD_SIZE:
        raise ConfigError("--width", width, f"give a multiple of {HEAD_SIZE}")
    if out.exists():
        raise RunError(f"{out} exists already; choose another --out")

    quiet_libraries()
    torch.set_num_threads(1)
    made = make_directories(out.parent)
    try:
        with new_folder(out) as folder, Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task("bootstrap", total=steps)

            def report(step: int, loss: float) -> None:
                bar.update(task, completed=step, description=f"bootstrap, loss {loss:.3f}")

            with handling(raise_interruption):
                save_policy(bootstrap(MINI_GAME, seed, width, steps, report), folder)
            digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
            command = f"ssp bootstrap --seed {seed} --width {width} --steps {steps} --out DIR"
            origin = {**provenance(), "command": command, "sha256": digest}
            text = json.dumps(origin, indent=2) + "\n"
            (folder / "origin.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error}") from error
    except KeyboardInterrupt:
        said = "nothing was written; ssp bootstrap cannot be resumed, only started again"
        print(said, file=sys.stderr)
        raise
    finally:
        remove_empty(made)

    print(f"wrote {out} (model.safetensors sha256 {digest})", file=sys.stderr)
    return 0

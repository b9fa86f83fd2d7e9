"""``ssp bootstrap``: a policy from nothing; ``ssp export``: that of a checkpoint, with its card."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from safetensors.torch import load_file
from torch import Tensor

from ssp_agents.checksums import check_weights, sha256_of
from ssp_agents.models import lm_weights, plain_weights, save_policy
from ssp_agents.sharding import read_weights, weights_folder
from ssp_agents.shipped.tiny import bootstrap as tiny
from ssp_env.disk import make_directories, new_folder, remove_empty, write_error
from ssp_env.errors import ConfigError, RunError
from ssp_env.game.config import MINI_GAME
from ssp_experiments.commands.cards import CARD, model_card
from ssp_experiments.config import POLICIES, check_model_directory
from ssp_experiments.run.process import handling, provenance, quiet_libraries, raise_interruption
from ssp_experiments.run.rundir import RunDirectory, check_empty

SHARES = ("algorithm/learner", "learner")
"""Folders that learners write, below the checkpoint of a run or of RLlib's algorithm."""


def make_policy(out: Path, seed: int, width: int, steps: int | None) -> int:
    """Trains a policy on demonstrations; writes a model directory in full or not at all."""
    if width <= 0 or width % tiny.HEAD_SIZE:
        raise ConfigError("--width", width, f"give a multiple of {tiny.HEAD_SIZE}")
    if out.exists():
        raise RunError(f"{out} exists already; choose another --out")

    quiet_libraries()
    torch.set_num_threads(1)
    steps = steps or tiny.STEPS
    made = make_directories(out.parent)
    try:
        with new_folder(out) as folder, Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task("bootstrap", total=steps)

            def report(step: int, loss: float) -> None:
                bar.update(task, completed=step, description=f"bootstrap, loss {loss:.3f}")
                if not bar.console.is_terminal and step % 100 == 0:
                    print(f"step {step}/{steps}, loss {loss:.3f}", file=sys.stderr)

            with handling(raise_interruption):
                tiny.save_policy(tiny.bootstrap(MINI_GAME, seed, width, steps, report), folder)
            (digest,) = sha256_of([folder / "model.safetensors"])
            command = f"ssp bootstrap --seed {seed} --steps {steps} --width {width} --out DIR"
            origin = {**provenance(), "command": command, "sha256": digest}
            text = json.dumps(origin, indent=2) + "\n"
            (folder / "origin.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise write_error(out, error) from error
    except KeyboardInterrupt:
        print("stopped; nothing is kept", file=sys.stderr)
        raise
    finally:
        remove_empty(made)

    print(f"wrote {out} (model.safetensors sha256 {digest})", file=sys.stderr)
    return 0


def export(source: Path, out: Path, dtype: str, model: str | None, role: str) -> int:
    quiet_libraries()
    check_empty(out)
    if not source.is_dir():
        raise RunError(f"there is no directory {source}")
    _, checkpoint = RunDirectory(source).latest_checkpoint() or (0, source)
    weights, origin = policy_of(checkpoint, model, role)
    run = RunDirectory(checkpoint.resolve().parents[1])
    step = re.fullmatch(r"step_(\d+)", checkpoint.name)
    with new_folder(out) as folder:
        save_policy(weights, origin, folder, getattr(torch, dtype))
        if step is not None and run.config.is_file() and run.metrics.is_file():
            card = model_card(run, int(step[1]), dtype, role)
            (folder / CARD).write_text(card, encoding="utf-8")
    whose = f", the {role}'s policy" if (checkpoint / POLICIES["proposer"]).is_dir() else ""
    print(f"{checkpoint} is now a model directory{whose}: {out}", file=sys.stderr)
    return 0


def policy_of(checkpoint: Path, model: str | None, role: str) -> tuple[dict[str, Tensor], Path]:
    """The weights of a role's policy as those of a plain causal LM, and the directory that has its
    config and tokenizer.

    A checkpoint of RLlib's algorithm does not hold the latter, so ``model`` names what was trained.
    """
    both = checkpoint / POLICIES["solver"]
    policy = checkpoint / POLICIES[role]
    if both.is_dir() and not policy.is_dir():
        fix = "one policy plays both roles there: leave it out"
        raise ConfigError("--role", role, fix)
    if policy.is_dir():
        if model is not None:
            raise RunError(f"{checkpoint} knows what was trained: leave --model out")
        check_weights(policy)
        return load_file(policy / "model.safetensors"), policy

    shares = [checkpoint / name for name in SHARES if (checkpoint / name).is_dir()]
    if not shares:
        plain = (checkpoint / "config.json").is_file()
        what = "a model directory already" if plain else "no checkpoint, and no run that has one"
        raise RunError(f"{checkpoint} is {what}")
    if model is None:
        raise RunError(f"{checkpoint} holds weights alone: name what was trained by --model")

    check_model_directory(Path(model))
    weights = read_weights(weights_folder(shares[0], role))
    return plain_weights(lm_weights(weights), model), Path(model)

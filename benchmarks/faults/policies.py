"""Policies that are broken, or break: weights that are not numbers, a learning rate of 10."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from agents.models import load_model, save_policy, tiny_directory
from benchmarks.runs import PATIENCE, SSP_COMMAND, sets, train

MOST_STEPS = 10
"""Within which a run of a learning rate of 10 has to be stopped."""


def nan(place: Path, seed: int) -> dict[str, Any]:
    """Trains a policy of broken weights; see the package's head."""
    weights = load_model(tiny_directory()).state_dict()
    name = next(iter(weights))
    save_policy(
        {**weights, name: torch.full_like(weights[name], torch.nan)},
        tiny_directory(),
        place / "policy",
    )
    done = train(place / "run", "--model", str(place / "policy"), steps=2, seed=seed)
    said = done.stderr.strip().splitlines()[-1]
    return {
        "status": done.returncode,
        "said": said,
        "held": done.returncode == 2
        and "logits that are no numbers" in said
        and "Traceback" not in done.stderr,
    }


def broken(place: Path, seed: int) -> dict[str, Any]:
    """Breaks the weights of a checkpoint; see the package's head."""
    run = place / "run"
    train(run, steps=1, seed=seed)
    for file in (run / "checkpoints" / "step_000001").rglob("learner/*.safetensors"):
        _break(file)

    patience = sets({"health.patience": 2})
    found = _end_of(run, train(run, "--resume", *patience, steps=9))
    found["held"] = (
        found["held"]
        and (found["sign"], found["step"]) == ("outage", 3)
        and "logits that are no numbers" in found["said"]
    )
    return found


def _break(file: Path) -> None:
    """Makes all weights of a learner's file no numbers; its moments stay."""
    with safe_open(file, "pt") as held:
        described = held.metadata()
        tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    for name, tensor in tensors.items():
        if name.startswith("weights."):
            tensor.fill_(torch.nan)
    save_file(tensors, file, described)


def diverged(place: Path, seed: int) -> dict[str, Any]:
    """Trains much too fast; see the package's head."""
    run = place / "run"
    settings = {"learning.lr": 10, "evaluation.per_group": 4, "seed": seed}
    command = [SSP_COMMAND, "train", "--steps", "20", "--out", str(run), *sets(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    found = _end_of(run, done)
    found["settings"] = {"preset": "tiny", "steps": 20, **settings}
    found["held"] = found["held"] and found["step"] <= MOST_STEPS
    return found


def _end_of(run: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """How a run ended that was to be stopped; ``held`` if it was, as it is documented."""
    file = run / "stopped.json"
    stopped = json.loads(file.read_text()) if file.exists() else {"sign": None, "step": None}
    said = done.stderr.strip().splitlines()[-1]
    checkpoints = sorted(path.name for path in (run / "checkpoints").glob("*"))
    return {
        "status": done.returncode,
        "sign": stopped["sign"],
        "step": stopped["step"],
        "said": re.sub(r"/\S*/faults\S*?/", "", said),
        "checkpoints": checkpoints,
        "held": done.returncode == 3
        and stopped["sign"] is not None
        and stopped["cause"] in said
        and f"What usually helps: {stopped['helps']}" in said
        and f"step_{stopped['step']:06d}" in checkpoints
        and "Traceback" not in done.stderr,
    }

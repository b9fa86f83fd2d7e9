"""``ssp export``: the policy of a checkpoint as a plain model directory."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from agents.models import plain_weights, save_policy
from agents.sharding import read_weights
from experiments.config import check_model_directory
from experiments.run.process import quiet_libraries
from experiments.run.rundir import RunDirectory
from ssp_env.errors import RunError

POLICY = "policy"
SHARES = ("algorithm/learner", "learner")
"""Folders that learners write, below the checkpoint of a run or of RLlib's algorithm."""
LM = "lm."
"""Beginning of the names of the causal LM's weights."""


def export(source: Path, out: Path, dtype: str, model: str | None = None) -> int:
    """Writes the directory; see :func:`experiments.cli.export`."""
    quiet_libraries()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty; choose another --out")
    if not source.is_dir():
        raise RunError(f"there is no directory {source}")

    latest = RunDirectory(source).latest_checkpoint()
    checkpoint = latest[1] if latest else source
    weights, origin = policy_of(checkpoint, model)
    save_policy(weights, origin, out, getattr(torch, dtype))
    print(f"{checkpoint} is now a model directory: {out}", file=sys.stderr)
    return 0


def policy_of(checkpoint: Path, model: str | None) -> tuple[dict[str, Tensor], Path]:
    """The weights of a plain causal LM, and the directory that has its config and tokenizer.

    A checkpoint of RLlib's algorithm does not hold the latter, so ``model`` names what was trained.
    """
    policy = checkpoint / POLICY
    if policy.is_dir():
        return load_file(policy / "model.safetensors"), policy

    shares = [checkpoint / name for name in SHARES if (checkpoint / name).is_dir()]
    if not shares:
        raise RunError(f"{checkpoint} is no checkpoint, and no run that has one")
    if model is None:
        raise RunError(f"{checkpoint} holds weights alone: name what was trained by --model")

    check_model_directory(Path(model))
    named = read_weights(shares[0])
    weights = {name.removeprefix(LM): w for name, w in named.items() if name.startswith(LM)}
    return plain_weights(weights, model), Path(model)

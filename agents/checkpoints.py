"""Weights and Adam's moments on disk, written by all processes together, as safetensors.

Every process writes the shares that it holds (PyTorch's distributed checkpoint). Any number of
processes reads them again: one, or more than wrote. No file is a pickle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from ssp_env.errors import RunError

MOMENTS = ("exp_avg", "exp_avg_sq")
"""What Adam keeps of each weight."""


def save_shares(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: str | Path
) -> None:
    """Writes trained weights and the optimizer's state; every process has to call it.

    Args:
        module: its trainable parameters are written, spread or not.
        optimizer: an Adam of these parameters.
        directory: seen by all processes; made if missing.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    _prepare(module, optimizer)
    state = dict(_named(module, optimizer))
    writer = HuggingFaceStorageWriter(str(directory), save_distributed=True)
    save(state, storage_writer=writer, no_dist=not torch.distributed.is_initialized())


def load_shares(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: str | Path
) -> None:
    """Takes them back, in place; every process has to call it.

    Args:
        module: of the same parameters, spread over as many processes as there are now.
        optimizer: an Adam of these parameters.
        directory: where :func:`save_shares` wrote.

    Raises:
        RunError: there are no such files.
    """
    if not any(Path(directory).glob("*.safetensors")):
        raise RunError(f"{directory} holds no shares of weights (*.safetensors)")

    _prepare(module, optimizer)
    state = dict(_named(module, optimizer))
    reader = HuggingFaceStorageReader(str(directory))
    load(state, storage_reader=reader, no_dist=not torch.distributed.is_initialized())

    # Steps are kept as vectors of one number on disk.
    for name, parameter in _trained(module):
        optimizer.state[parameter]["step"].copy_(state[f"step.{name}"][0])


def _trained(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            yield name, parameter


def _prepare(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gives Adam its moments where it has not made a step yet."""
    for _, parameter in _trained(module):
        held = optimizer.state[parameter]
        if not held:
            held["step"] = torch.tensor(0.0)
            held.update({name: torch.zeros_like(parameter) for name in MOMENTS})


def _named(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in _trained(module):
        held = optimizer.state[parameter]
        yield f"weights.{name}", parameter.detach()
        yield f"step.{name}", held["step"].reshape(1).clone()
        for moment in MOMENTS:
            yield f"{moment}.{name}", held[moment].detach()

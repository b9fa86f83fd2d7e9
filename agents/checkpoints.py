"""Weights and Adam's moments on disk, as safetensors, by PyTorch's distributed checkpoint.

Processes that share a policy write together, each what it holds. Any number of processes reads
that again: one, or more than wrote. No file is a pickle.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from agents.state import state_of
from ssp_env.errors import RunError

MOMENTS = ("exp_avg", "exp_avg_sq")
"""What Adam keeps of each weight."""
_WEIGHTS = "weights."
_UNREADABLE = (OSError, RuntimeError, ValueError, SafetensorError, CheckpointException)


def save_shares(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    directory: str | Path,
    *,
    alone: bool | None = None,
) -> None:
    """Writes weights and the optimizer's state.

    Args:
        module: spread or not.
        optimizer: an Adam of its trainable parameters.
        directory: made if missing.
        alone: this process holds, and writes, everything. Else every process of the group has to
            call it, with one directory that all of them see. When not given: if there is no group.

    Raises:
        RunError: it cannot be written.
    """
    _prepare(module, optimizer)
    state = dict(_named(module, optimizer))
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        writer = HuggingFaceStorageWriter(str(directory), save_distributed=True)
        with _quiet():
            save(state, storage_writer=writer, no_dist=_alone(alone))
    except (OSError, SafetensorError, CheckpointException) as error:
        raise RunError(f"{directory} cannot be written: {_cause(error)}") from error


def load_shares(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    directory: str | Path,
    *,
    alone: bool | None = None,
) -> None:
    """Takes them back, in place.

    Args:
        module: of the same weights, spread over as many processes as there are now.
        optimizer: an Adam of its trainable parameters.
        directory: where :func:`save_shares` wrote.
        alone: as there.

    Raises:
        RunError: there are no such files, or not of this module.
    """
    _check_there(directory)
    _prepare(module, optimizer)
    state = dict(_named(module, optimizer))
    reader = HuggingFaceStorageReader(str(directory))
    try:
        with _quiet():
            load(state, storage_reader=reader, no_dist=_alone(alone))
    except _UNREADABLE as error:
        raise RunError(f"{directory} cannot be read: {_cause(error)}") from error

    # Steps are kept as vectors of one number on disk.
    for name, parameter in _trained(module):
        optimizer.state[parameter]["step"].copy_(state[f"step.{name}"][0])


def read_weights(directory: str | Path) -> dict[str, Tensor]:
    """All weights that any number of processes have written there, whole, on the CPU.

    Raises:
        RunError: there are no such files, or they are broken.
    """
    _check_there(directory)
    reader = HuggingFaceStorageReader(str(directory))
    try:
        held = reader.read_metadata().state_dict_metadata
        state = {
            name: torch.empty(tensor.size, dtype=tensor.properties.dtype)
            for name, tensor in held.items()
            if name.startswith(_WEIGHTS) and isinstance(tensor, TensorStorageMetadata)
        }
        with _quiet():
            load(state, storage_reader=reader, no_dist=True)
    except _UNREADABLE as error:
        raise RunError(f"{directory} cannot be read: {_cause(error)}") from error

    return {name.removeprefix(_WEIGHTS): tensor for name, tensor in state.items()}


def _check_there(directory: str | Path) -> None:
    if not any(Path(directory).glob("*.safetensors")):
        raise RunError(f"{directory} holds no shares of weights (*.safetensors)")


def _trained(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            yield name, parameter


def _prepare(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gives Adam its moments where it has not made a step yet."""
    for _, parameter in _trained(module):
        held = optimizer.state[parameter]
        if not held:
            # A fused Adam counts where it computes.
            fused = optimizer.defaults.get("fused")
            held["step"] = torch.tensor(0.0, device=parameter.device if fused else "cpu")
            held.update({name: torch.zeros_like(parameter) for name in MOMENTS})


def _named(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in state_of(module).items():
        yield f"{_WEIGHTS}{name}", tensor

    for name, parameter in _trained(module):
        held = optimizer.state[parameter]
        yield f"step.{name}", held["step"].reshape(1).clone()
        for moment in MOMENTS:
            yield f"{moment}.{name}", held[moment].detach()


def _alone(alone: bool | None) -> bool:
    return not torch.distributed.is_initialized() if alone is None else alone


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning that one process is alone: it was asked to be."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _cause(error: BaseException) -> object:
    """What went wrong, of the first process that says so."""
    failures = error.failures if isinstance(error, CheckpointException) else {}
    return next((cause for cause, _ in failures.values()), error)

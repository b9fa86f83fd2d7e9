"""One policy over several learners: FSDP2 of PyTorch, and checkpoints by any number of processes.

With FSDP2, every learner holds a share of each weight, of its gradient and of the optimizer's
moments. A layer is made whole when it is computed and let go afterwards, so what a learner holds
shrinks with their number. All learners have to pass through the model in step.

Weights and Adam's moments are written as safetensors by PyTorch's distributed checkpoint, by each
process what it holds. Any number of processes reads that again. No file is a pickle.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor

from ssp_agents.checksums import check_weights
from ssp_agents.models import load_model, meta_model, state_of
from ssp_env.errors import RunError

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Adam's state of each weight."""
_WEIGHTS = "weights."


def layers_of(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of a `transformers` model, or of whatever holds one, in order."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [part for part in module.modules() if isinstance(part, GradientCheckpointingLayer)]


def is_first() -> bool:
    """True in the process that speaks for all."""
    return not dist.is_initialized() or dist.get_rank() == 0


def load_first(directory: str | Path) -> Any:
    """Loads a causal LM in the first process, for :func:`shard` to give to the others: these get
    one without numbers, so that a machine holds a large policy once."""
    return (load_model if is_first() else meta_model)(directory)


def shard(
    module: torch.nn.Module,
    device: torch.device,
    compute: torch.dtype | None = None,
    forward: str = "forward",
) -> None:
    """Spreads a module over all processes of the process group, in place.

    All processes end up with the weights of the first one; the others' may be on the meta device.
    Layers of `transformers` go to the device one by one, so that it never holds the whole module.

    Weights are gathered and computed with in the dtype ``compute``; shares, added gradients and the
    optimizer stay float32. They are whole only within the method ``forward``.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    # Inputs hold masks and log-probabilities, which must not lose precision.
    policy = MixedPrecisionPolicy(
        param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False
    )

    # Layers first, each gathered alone; the module takes what is left: embeddings and output layer.
    for part in (*layers_of(module), module):
        _make_room(part, device)
        part.to(device)
        for tensor in (*part.parameters(), *part.buffers()):
            # Those of the layers are spread already when it comes to the whole module.
            if not isinstance(tensor, DTensor):
                dist.broadcast(tensor.detach(), src=0)
        fully_shard(part, mesh=mesh, mp_policy=policy)

    # FSDP makes weights whole for ``forward``, unless it is told of another method.
    if forward != "forward":
        register_fsdp_forward_method(module, forward)


def _make_room(module: torch.nn.Module, device: torch.device) -> None:
    """Gives tensors on the meta device memory, without numbers; tied ones the same."""
    made: dict[int, Tensor] = {}
    for part in module.modules():
        shallow: dict[str, Any] = {"recurse": False, "remove_duplicate": False}
        tensors = [*part.named_parameters(**shallow), *part.named_buffers(**shallow)]
        for name, tensor in tensors:
            if tensor.is_meta:
                empty = torch.empty_like(tensor, device=device)
                if isinstance(tensor, torch.nn.Parameter):
                    empty = torch.nn.Parameter(empty, tensor.requires_grad)
                setattr(part, name, made.setdefault(id(tensor), empty))


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor, gathered if it is spread; then every process has to call this."""
    gathered: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return gathered


def agreed_maximum(number: int, device: torch.device) -> int:
    """The largest number of all processes."""
    tensor = torch.tensor(number, device=device)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return int(tensor)


# -- checkpoints -------------------------------------------------------------------------------


def weights_folder(learners: Path, policy: str) -> Path:
    """Folder of a policy's weights and moments. It is the learners' own folder where there is only
    one policy."""
    own = learners / policy
    return own if own.is_dir() else learners


def save_shares(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: str | Path
) -> None:
    """Writes weights of a module, and Adam's state of those that are trained. If it is spread,
    every process has to call it, with one directory that all of them see."""
    state = _state(module, optimizer)
    with _storage(directory, "written"):
        Path(directory).mkdir(parents=True, exist_ok=True)
        # A module that is not spread is written by the process that is asked, without the others.
        writer = HuggingFaceStorageWriter(str(directory), save_distributed=True)
        save(state, storage_writer=writer, no_dist=not _is_spread(module))


def load_shares(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: str | Path
) -> None:
    """Takes back, in place, what :func:`save_shares` wrote with any number of processes."""
    state = _state(module, optimizer)
    with _storage(directory, "read"):
        load(state, storage_reader=_reader(directory), no_dist=not _is_spread(module))

    # Steps are kept as vectors of one number on disk.
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            optimizer.state[parameter]["step"].copy_(state[f"step.{name}"][0])


def read_weights(directory: str | Path) -> dict[str, Tensor]:
    """All weights that any number of processes have written there, whole, on the CPU."""
    check_weights(directory)
    with _storage(directory, "read"):
        reader = _reader(directory)
        saved = reader.read_metadata().state_dict_metadata
        state = {
            name: torch.empty(tensor.size, dtype=tensor.properties.dtype)
            for name, tensor in saved.items()
            if name.startswith(_WEIGHTS) and isinstance(tensor, TensorStorageMetadata)
        }
        load(state, storage_reader=reader, no_dist=True)

    return {name.removeprefix(_WEIGHTS): tensor for name, tensor in state.items()}


def _reader(directory: str | Path) -> HuggingFaceStorageReader:
    shares = list(Path(directory).glob("*.safetensors"))
    if not shares:
        raise RunError(f"{directory} holds no shares of weights (*.safetensors)")
    for share in shares:
        # PyTorch would print the traceback of a share that was cut off.
        with safe_open(share, framework="pt"):
            pass
    return HuggingFaceStorageReader(str(directory))


def _is_spread(module: torch.nn.Module) -> bool:
    return any(isinstance(parameter, DTensor) for parameter in module.parameters())


def _state(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights and Adam's state, by name, where they lie; its moments are made where there has been
    no step yet."""
    state = {f"{_WEIGHTS}{name}": tensor for name, tensor in state_of(module).items()}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        adam = optimizer.state[parameter]
        if not adam:
            # A fused Adam counts where it computes.
            fused = optimizer.defaults.get("fused")
            adam["step"] = torch.tensor(0.0, device=parameter.device if fused else "cpu")
            adam.update({moment: torch.zeros_like(parameter) for moment in MOMENTS})

        state[f"step.{name}"] = adam["step"].reshape(1).clone()
        state |= {f"{moment}.{name}": adam[moment].detach() for moment in MOMENTS}
    return state


@contextmanager
def _storage(directory: str | Path, done: str) -> Iterator[None]:
    """Names the directory in errors, with the first process's cause; leaves out the warning that a
    process is alone, which it was asked to be."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    except (OSError, RuntimeError, ValueError, SafetensorError, CheckpointException) as error:
        failures = error.failures if isinstance(error, CheckpointException) else {}
        # Other processes fail only because the first of these did.
        cause = next((cause for cause, _ in failures.values()), error)
        raise RunError(f"{directory} cannot be {done}: {cause}") from error

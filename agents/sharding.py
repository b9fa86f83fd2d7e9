"""One policy spread over several learners: FSDP2 of PyTorch, and what is made whole of it.

Every learner holds a share of each weight, of its gradient and of the optimizer's moments. A layer
is made whole when it is computed and let go afterwards, so what a learner holds shrinks with their
number. All learners have to pass through the model in step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def layers_of(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of a `transformers` model, or of whatever holds one, in order."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [part for part in module.modules() if isinstance(part, GradientCheckpointingLayer)]


def shard(
    module: torch.nn.Module,
    device: torch.device,
    compute: torch.dtype | None = None,
    forward: str = "forward",
) -> None:
    """Spreads a module over all processes of the process group, in place.

    All processes end up with the weights of the first one. Layers go to the device one by one, so
    that it never holds the whole module.

    Args:
        module: layers of `transformers` anywhere in it are spread one by one, the rest together.
        device: where the shares are kept.
        compute: dtype in which weights are gathered and computed with; the shares, the gradients
            that are added up and the optimizer stay float32. ``None``: float32 too.
        forward: the method through which the module is called. Weights are whole only within it.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import (
        MixedPrecisionPolicy,
        fully_shard,
        register_fsdp_forward_method,
    )

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    # Inputs hold masks and log-probabilities, which must not lose precision.
    policy = MixedPrecisionPolicy(
        param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False
    )

    for part in (*layers_of(module), module):
        part.to(device)
        _take_from_first(part)
        fully_shard(part, mesh=mesh, mp_policy=policy)

    if forward != "forward":
        register_fsdp_forward_method(module, forward)


def _take_from_first(module: torch.nn.Module) -> None:
    """Gives every process the first one's weights, where they are not spread yet."""
    for tensor in (*module.parameters(), *module.buffers()):
        if not is_spread(tensor):
            dist.broadcast(tensor.detach(), src=0)


def is_spread(tensor: Tensor) -> bool:
    """Whether this process holds only a share of it."""
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """A tensor, gathered if it is spread; then every process has to call this."""
    gathered: Any = tensor
    return gathered.full_tensor() if is_spread(tensor) else tensor


def whole_state(module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and whole tensors of a module's state, one at a time; every process has to take all."""
    for name, tensor in module.state_dict().items():
        yield name, whole(tensor.detach())


def agreed_maximum(number: int, device: torch.device) -> int:
    """The largest number of all processes."""
    held = torch.tensor(number, device=device)
    dist.all_reduce(held, dist.ReduceOp.MAX)
    return int(held)

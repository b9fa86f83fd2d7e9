"""Weights that env runners read out of a learner's memory, by Ray Direct Transport over NIXL.

Nothing is put into Ray's object store but names and addresses: from GPU to GPU, NIXL takes NVLink
or RDMA; between CPUs, shared memory or TCP."""

from __future__ import annotations

import ray
import torch
from torch import Tensor

from agents.rllib.batch import MODULE_ID
from agents.rllib.weights import travelling_dtype


class Window:
    """A copy of the weights that others may read, at one place for as long as the learner lives.

    Its memory is registered with the network once, and readers get to know its addresses once.
    Because Ray keeps what a process has ever been told of such a place, a new one for each step
    would fill its memory."""

    def __init__(self, half: bool) -> None:
        """
        Args:
            half: see :func:`agents.rllib.weights.published`.
        """
        self._half = half
        self.tensors: dict[str, Tensor] = {}
        self._reference: ray.ObjectRef | None = None

    def take(self, name: str, tensor: Tensor) -> None:
        """Copies one weight, rounded where weights travel so. Nobody may be reading.

        Args:
            name: the weight's, as the module names it.
            tensor: all of it, on the device that it is to be read from.
        """
        if name not in self.tensors:
            dtype = travelling_dtype(name, tensor, self._half)
            self.tensors[name] = torch.empty(tensor.shape, dtype=dtype, device=tensor.device)
        self.tensors[name].copy_(tensor)

    def reference(self) -> ray.ObjectRef:
        """What a reader gives to :func:`ray.get`; always the same, whatever was taken since."""
        # Readers do not wait for this GPU to be done with copying.
        if any(tensor.is_cuda for tensor in self.tensors.values()):
            torch.cuda.synchronize()

        if self._reference is None:
            self._reference = ray.put({MODULE_ID: self.tensors}, _tensor_transport="nixl")
        return self._reference

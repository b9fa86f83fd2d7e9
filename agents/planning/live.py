"""How much memory is alive while PyTorch computes, read off the tensors that come and go."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes how many bytes of what is made within it are alive at a time, at most.

    Tensors may be fake: their sizes are real. What shares a storage is counted once. ``copies``
    are weights in another precision, which autocast keeps; ``peak`` is all the rest."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        """
        Args:
            weights: leaves that are there already. Neither they nor their gradients are counted.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak, self.copies = 0, 0
        self._now = {"copies": 0, "rest": 0}
        self._known: dict[int, Any] = {}
        self._weights: set[int] = set()

        for weight in weights:
            self._weights.add(id(weight.untyped_storage()))
            self._watch(weight.untyped_storage(), 0, "rest")
            if weight.grad is not None:
                self._watch(weight.grad.untyped_storage(), 0, "rest")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Runs an operation and takes note of what it made."""
        made = func(*args, **(kwargs or {}))
        kind = "copies" if func is torch.ops.aten._to_copy.default and self._is_weight(args) else ""

        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor) and id(leaf.untyped_storage()) not in self._known:
                storage = leaf.untyped_storage()
                self._watch(storage, storage.nbytes(), kind or "rest")

        return made

    def _is_weight(self, args: tuple[Any, ...]) -> bool:
        return isinstance(args[0], Tensor) and id(args[0].untyped_storage()) in self._weights

    def _watch(self, storage: Any, size: int, kind: str) -> None:
        key = id(storage)

        def gone(_: Any) -> None:
            del self._known[key]
            self._now[kind] -= size

        self._known[key] = weakref.ref(storage, gone)
        self._now[kind] += size
        self.peak = max(self.peak, self._now["rest"])
        self.copies = max(self.copies, self._now["copies"])

#!/usr/bin/env bash
# torch 2.13.0, torch.autocast with float32 weights (here bfloat16 on a CPU; the rule is the same elsewhere).
#
# One would guess: autocast casts each weight once and keeps it until its context ends; weights that are frozen, because
# only an adapter is trained, are the cheapest case.
# Seen: only leaves that require gradients are kept. A frozen weight is cast again at every use: five uses, five casts,
# where a trained one takes one. And as gradients pass through, each use keeps its own cast for the backward pass, so
# memory grows with the uses of a shared weight (recursive layers, micro-batches before one backward, tied embeddings).
# Freezing a base model costs time and memory here; casting it to bfloat16 beforehand takes none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Casts(TorchDispatchMode):
    def __init__(self, shape):
        super().__init__()
        self.shape, self.number = shape, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default and args[0].shape == self.shape:
            self.number += 1
        return function(*args, **(kwargs or {}))


def use(weight, times):
    """The casts of ``weight``, and how many different tensors of its size wait for the backward pass."""
    state = torch.ones(2, 64, requires_grad=True)
    kept = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one)
    with Casts(weight.shape) as casts, hooks, torch.autocast("cpu", torch.bfloat16):
        for _ in range(times):
            state = torch.nn.functional.linear(state, weight)
    return casts.number, len({tensor.data_ptr() for tensor in kept if tensor.numel() == weight.numel()})


seen = {}
for name in ("trained", "frozen", "frozen bfloat16"):
    dtype = torch.bfloat16 if "bfloat16" in name else torch.float32
    weight = torch.nn.Parameter(torch.eye(64, dtype=dtype), requires_grad=name == "trained")
    seen[name] = use(weight, 5)
    print(f"{name}: five uses, {seen[name][0]} casts, {seen[name][1]} copies kept")
assert seen["trained"] == (1, 1)
assert seen["frozen"] == (5, 5)
assert seen["frozen bfloat16"] == (0, 1)
PY
echo "seen: a trained weight is cast once, a frozen one at each use, and each cast is kept for the backward pass"

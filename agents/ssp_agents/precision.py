"""The arithmetic of passes: kind of attention, and a learner's dtype, by policy and machine.

Small policies have float32 on every CPU, and attention written out, so that a seed gives the same
run on all of them. Larger ones have what their machine is fastest at.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

import torch
from torch import Tensor

SMALL = 10_000_000
"""Parameters below which CPUs keep to float32 and written-out attention. On one with AMX, bfloat16
and fused attention gained nothing at .7 million, and 1.4 to 1.5 times the speed at 16 million."""
Precision = Literal["auto", "float32", "bfloat16"]
_HALF = ("amx_bf16", "avx512_bf16", "bf16")
"""What PyTorch calls units of CPUs, of Intel, AMD and ARM, that multiply in bfloat16."""
_FAST = _HALF[:2]
"""Those that were measured: an update of Qwen2.5-0.5B with adapters was 2.2 times as fast as in
float32 with AMX (Intel), 1.5 times with bfloat16 in AVX-512 alone (AMD)."""

_log = logging.getLogger(__name__)


def is_small(lm: torch.nn.Module) -> bool:
    """True for policies such as those that ship."""
    return sum(parameter.numel() for parameter in lm.parameters()) < SMALL


def settle_attention(lm: Any) -> Any:
    """A causal LM of `transformers`, loaded with no kind of attention named: the fused one, unless
    its architecture has none. Small ones get the one that is written out, whose backward pass is
    faster there."""
    if is_small(lm):
        lm.set_attn_implementation("eager")
    return lm


def passes_dtype(wanted: Precision, device: torch.device, *, small: bool) -> torch.dtype | None:
    """Dtype that autocast multiplies in on a device: bfloat16, or ``None`` for float32.

    ``auto`` is bfloat16 on GPUs that have it, and on CPUs with AMX or AVX-512's bfloat16 for
    policies that are not ``small``. Where bfloat16 is asked for and the hardware lacks it, float32
    is taken with a warning: emulated, it would be slower.

    >>> passes_dtype("float32", torch.device("cpu"), small=False) is None
    True
    """
    if wanted == "float32":
        return None
    if device.type == "cuda":
        has = fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        # ``has``: it multiplies in bfloat16; ``fast``: that was measured to pay.
        units = torch.cpu.get_capabilities()
        mkldnn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        has = mkldnn and any(units.get(name) for name in _HALF)
        fast = mkldnn and any(units.get(name) for name in _FAST) and not small
    if wanted == "bfloat16" and not has:
        what = "this machine does not multiply in bfloat16"
        _log.warning("learning.dtype=bfloat16: %s, so float32 is taken", what)
    return torch.bfloat16 if (has if wanted == "bfloat16" else fast) else None


def autocasting(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    """Context of a pass in a dtype of :func:`passes_dtype`."""
    return torch.autocast(device.type, dtype, enabled=dtype is not None)


def round_frozen(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Keeps frozen weights of linear maps beneath adapters rounded.

    Autocast would round them in each pass and hold the copies until its end, so results stay the
    same to the last bit. Embeddings, and the output layer with them, keep their precision.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    bases = [p.get_base_layer() for p in module.modules() if isinstance(p, BaseTunerLayer)]
    frozen = {
        id(p) for base in bases if isinstance(base, torch.nn.Linear) for p in base.parameters()
    }
    for parameter in module.parameters():
        if id(parameter) in frozen and not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
        else:
            # A file of weights stays in memory for as long as one of them is a part of it.
            parameter.data = parameter.data.clone()


def widened(tensor: Tensor) -> Tensor:
    """A tensor as NumPy can hold it, which has no bfloat16."""
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor

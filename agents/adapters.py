"""Low-rank adapters (LoRA, https://arxiv.org/abs/2106.09685), by the package `peft`.

Beside each linear map of the layers, W, two small matrices are trained: W + 2 B A. W stays as it
is, so the policy without its adapters is the one that training began with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from agents.config import LORA
from ssp_env.errors import MissingExtra

SCALE = 2
"""What B A is multiplied by, whatever its rank."""
_A, _B = ".lora_A.default.weight", ".lora_B.default.weight"


def adapt(lm: Any, rank: int, seed: int) -> None:
    """Freezes a causal LM and gives all linear maps in its layers adapters, in place.

    These change nothing yet, because B is 0. A is drawn from the seed, so that all processes have
    the same.

    Args:
        lm: a model of `transformers`.
        rank: rows of A and columns of B.
        seed: for A.

    Raises:
        MissingExtra: `peft` is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise MissingExtra("learning.lora_rank", LORA) from error

    config = LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules="all-linear")
    inject_adapter_in_model(config, lm)

    generator = torch.Generator().manual_seed(seed)
    for name, parameter in lm.named_parameters():
        parameter.requires_grad_(is_adapter(name))
        if name.endswith(_A):
            torch.nn.init.kaiming_uniform_(parameter, a=math.sqrt(5), generator=generator)
    lm.eval()


def is_adapter(name: str) -> bool:
    """Whether a weight of this name belongs to an adapter."""
    return name.endswith((_A, _B))


@contextmanager
def without_adapters(module: torch.nn.Module) -> Iterator[None]:
    """The policy that training began with, for as long as it is wanted."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [part for part in module.modules() if isinstance(part, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def merged(base: Mapping[str, Tensor], adapters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a plain model that plays as the adapted one does.

    Args:
        base: weights of the model without adapters, by its own names; they are left as they are.
        adapters: those of :func:`adapt`, named as in the adapted model.
    """
    weights = dict(base)
    for name, a in adapters.items():
        if name.endswith(_A):
            place = name.removesuffix(_A)
            change = adapters[place + _B].float() @ a.float()
            weights[f"{place}.weight"] = weights[f"{place}.weight"] + SCALE * change

    return weights

"""What makes up a policy: the tensors that are sent to other processes, and saved."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Set
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agents.adapters import is_adapter, merged
from agents.models import load_model
from ssp_env.errors import UsageError


def state_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, without gradients, where they lie: shares stay shares.

    Tied weights come once, under their first name; what is frozen beneath adapters does not come,
    because every process reads it from the model directory.
    """
    kept = set(module.state_dict())
    kept -= _beneath_adapters(module, kept)
    named = chain(module.named_parameters(), module.named_buffers())

    return {name: tensor.detach() for name, tensor in named if name in kept}


def _beneath_adapters(module: torch.nn.Module, names: Set[str]) -> set[str]:
    """Which of these names are of models that have adapters, but not of these."""
    from transformers import PreTrainedModel

    adapters = {name for name in names if is_adapter(name)}
    if not adapters:
        return set()

    found = set()
    for place, part in module.named_modules():
        if isinstance(part, PreTrainedModel):
            inside = {name for name in names if name.startswith(f"{place}." if place else "")}
            found |= inside - adapters if inside & adapters else set()
    return found


def load_state(module: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Puts tensors or arrays in the place of a module's own, rounded to their dtype.

    Args:
        module: holds all its weights itself.
        state: at least what :func:`state_of` names.

    Raises:
        UsageError: something is missing, or it is another module's.
    """
    lacking = sorted(state_of(module).keys() - state.keys())
    unknown = sorted(state.keys() - module.state_dict().keys())
    if lacking or unknown:
        what = f"lack {lacking[0]}" if lacking else f"hold {unknown[0]}, which it has not"
        raise UsageError(f"these are not the weights of this model: they {what}")

    module.load_state_dict({name: as_tensor(value) for name, value in state.items()}, strict=False)


def plain_weights(weights: Mapping[str, Tensor], model_dir: str | Path) -> dict[str, Tensor]:
    """The weights of a plain causal LM, adapters merged into what they adapt.

    Args:
        weights: of a causal LM, or of its adapters alone, as :func:`state_of` names them.
        model_dir: what it was trained from.
    """
    if not any(is_adapter(name) for name in weights):
        return dict(weights)
    return merged(state_of(load_model(model_dir)), weights)


def as_tensor(value: Any) -> Tensor:
    """A tensor over the memory of an array, which may be read-only: nobody writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(value)

"""How weights leave the learners, for the engines and for disk, without passing the driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from agents.rllib.batch import LM, MODULE_ID
from agents.state import as_tensor
from ssp_env.errors import ServiceError

LEARNER = "learner"
"""Folder of a checkpoint that holds weights and moments: safetensors, no pickle."""

Named = dict[str, dict[str, Any]]
"""Module -> name -> tensor or array."""


def published(learner_group: Any, *, half: bool) -> Named | ray.ObjectRef:
    """The present weights, as :meth:`agents.rllib.learner.SSPLearner.publish` hands them out.

    Args:
        learner_group: RLlib's.
        half: round what plays to bfloat16, for engines that do so anyway.

    Returns:
        Of a learner in this process, its tensors by module and name. Of remote learners, a
        reference to arrays that the first one put into Ray's object store: whoever gets it reads
        them from that node, or where they lie, if it is on the same.
    """
    (weights,) = of_all(learner_group, lambda learner: learner.publish(half))
    found: Named | ray.ObjectRef = weights
    return found


def as_reference(weights: Named | ray.ObjectRef, *, half: bool) -> ray.ObjectRef:
    """What other processes are sent."""
    if isinstance(weights, ray.ObjectRef):
        return weights
    packed = {name: pack(name, tensor, half) for name, tensor in weights[MODULE_ID].items()}
    return ray.put({MODULE_ID: packed})


def pack(name: str, tensor: Tensor, half: bool) -> np.ndarray:
    """An array that Ray's object store holds without a copy; numpy has no bfloat16."""
    if half and name.startswith(LM) and tensor.is_floating_point():
        tensor = tensor.to(torch.bfloat16).view(torch.int16)
    packed: np.ndarray = tensor.cpu().numpy()
    return packed


def unpack(value: Any) -> Tensor:
    """The tensor of what :func:`pack` made, or of any array or tensor."""
    tensor = as_tensor(value)
    return tensor.view(torch.bfloat16) if tensor.dtype == torch.int16 else tensor


def as_arrays(weights: Named | ray.ObjectRef) -> dict[str, np.ndarray]:
    """Arrays, named as the module names them."""
    named: Named = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
    return {
        name: value.cpu().numpy() if isinstance(value, Tensor) else value
        for name, value in named[MODULE_ID].items()
    }


def save(learner_group: Any, path: str | Path) -> None:
    """Has the learners write weights and moments.

    Args:
        learner_group: RLlib's.
        path: a checkpoint's folder, which all learners see.

    Raises:
        RunError: a learner cannot write there.
    """
    folder = (Path(path) / LEARNER).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    of_all(learner_group, lambda learner: learner.save(str(folder)))


def load(learner_group: Any, path: str | Path) -> None:
    """Has the learners take weights and moments, whatever number of learners has written them.

    Raises:
        RunError: a learner does not see them, or they are another policy's.
    """
    folder = str((Path(path) / LEARNER).absolute())
    of_all(learner_group, lambda learner: learner.load(folder))


def of_all(learner_group: Any, ask: Callable[[Any], list[Any]]) -> list[Any]:
    """What all learners gave, in one list; an error of one of them is raised.

    Raises:
        ServiceError: not all of them are there any more.
    """
    found: list[Any] = []
    results = list(learner_group.foreach_learner(ask))
    if len(results) < len(learner_group):
        # Those that are known to be dead are not asked.
        raise ServiceError("learner", "a learner died; go on from the last checkpoint")

    for result in results:
        answer = result.get()
        if not result.ok:
            # Ray wraps an error in another one whose message is a traceback.
            raise getattr(answer, "cause", answer)
        found += answer
    return found

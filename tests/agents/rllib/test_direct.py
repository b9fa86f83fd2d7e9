"""Weights that are read out of a learner's memory; between real processes where NIXL is installed.

`benchmarks/results/handover.json` has the same with RLlib's learner and env runner."""

from __future__ import annotations

from typing import Any

import pytest
import ray
import torch
from torch import Tensor

from agents.rllib.batch import LM, MODULE_ID
from agents.rllib.direct import Window
from agents.rllib.weights import pack, unpack

WEIGHTS = {
    f"{LM}a": torch.arange(6.0).reshape(2, 3).T / 7,
    "b": torch.arange(4),
    "c": torch.rand(3),
}


def alike(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    dtypes = all(one[name].dtype == other[name].dtype for name in other)
    return one.keys() == other.keys() and dtypes and all(one[n].equal(other[n]) for n in other)


@pytest.mark.parametrize("half", [False, True])
def test_weights_are_those_of_the_store_and_stay_until_others_are_taken(half: bool) -> None:
    weights = {name: tensor.clone() for name, tensor in WEIGHTS.items()}
    stored = {name: unpack(pack(name, tensor, half).copy()) for name, tensor in weights.items()}
    window = Window(half)
    for name, tensor in weights.items():
        window.take(name, tensor)

    weights["c"] += 1  # the learner goes on learning
    assert alike(window.tensors, stored)
    assert all(tensor.is_contiguous() for tensor in window.tensors.values()), "Ray asks for it"
    assert (window.tensors[f"{LM}a"].dtype == torch.bfloat16) == half

    places = {name: tensor.data_ptr() for name, tensor in window.tensors.items()}
    window.take("c", weights["c"])
    assert window.tensors["c"].equal(weights["c"])
    assert places == {name: tensor.data_ptr() for name, tensor in window.tensors.items()}


def test_processes_read_what_was_taken_last(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("nixl")
    request.getfixturevalue("cluster")

    # Made here, so that their processes get them as they are and do not import this file.
    @ray.remote(num_cpus=0)
    class Learner:
        def __init__(self) -> None:
            self.window = Window(half=True)

        def publish(self, weights: dict[str, Tensor]) -> list[Any]:
            for name, tensor in weights.items():
                self.window.take(name, tensor)
            return [self.window.reference()]

    @ray.remote(num_cpus=0)
    class Runner:
        def read(self, state: list[Any]) -> dict[str, Tensor]:
            found: dict[str, Tensor] = ray.get(state[0])[MODULE_ID]
            return found

    learner, runners = Learner.remote(), [Runner.remote(), Runner.remote()]
    for factor in (1, 3):
        weights = {name: factor * tensor for name, tensor in WEIGHTS.items()}
        state = ray.get(learner.publish.remote(weights))
        stored = {name: unpack(pack(name, tensor, half=True)) for name, tensor in weights.items()}
        assert all(alike(ray.get(r.read.remote(state)), stored) for r in runners)

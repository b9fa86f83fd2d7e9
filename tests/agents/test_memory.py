"""Plans of memory: the formulas against counts over fake tensors, and advice that fits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from ssp_agents.memory import Device, Shape, least_share, plan, shape_of
from ssp_env.errors import ConfigError
from ssp_experiments.config import RunConfig, load_preset, make_config
from ssp_experiments.layouts import estimate, layouts
from ssp_experiments.planner import USABLE, check_fit, fastest

# Counted by running the learner's and the engine's code over fake tensors (paper-7b, rows of
# 12,288 tokens): parameters; activations and all of a learner by itself; the same with eight
# sharing (fsdp2); the engine's passes. Bytes.
COUNTED = [
    (
        (1536, 8960, 28, 12, 2, 151_936, True),
        (1543714304, 5080144328, 45216541128, 3279716808, 10899781576, 38276956160),
    ),
    (
        (5120, 27_648, 64, 40, 8, 152_064, False),
        (32763876352, 22536455000, 872838783832, 13571859800, 134261367128, 101066342400),
    ),
]


def qwen(*sizes: Any) -> Shape:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    names += ("num_key_value_heads", "vocab_size", "tie_word_embeddings")
    config = Qwen2Config(**dict(zip(names, sizes, strict=True)))
    with torch.device("meta"):
        return shape_of(AutoModelForCausalLM.from_config(config))


SMALL = qwen(64, 160, 3, 4, 2, 512, True)
QWEN_7B = qwen(3584, 18_944, 28, 28, 4, 152_064, False)


def run(**changes: Any) -> RunConfig:
    """A small run on four GPUs, with some settings changed."""
    settings: dict[str, Any] = {
        "game": {"attempts": 2, "max_prompt_tokens": 64, "max_response_tokens": 64},
        "learning": {"batch_size": 4, "round_size": 2, "microbatch_tokens": 512},
        "compute": {"env_runners": 2, "learners": 2, "gpus": "own"},
        "engine": {},
    }
    return make_config({part: {**settings[part], **changes.get(part, {})} for part in settings})


def made(config: RunConfig, memory: float = 0) -> tuple[Device, ...]:
    return plan(SMALL, config, memory)


@pytest.mark.parametrize(("sizes", "counted"), COUNTED)
def test_formulas_agree_with_counts_over_fake_tensors(
    sizes: tuple[Any, ...], counted: tuple[int, ...]
) -> None:
    paper = make_config(load_preset("paper-7b"), {"engine.kind": "transformers"})
    parameters, kept, learner, kept_shared, learner_shared, passes = counted
    shape = qwen(*sizes)
    assert shape.parameters == parameters
    for learners, activations, whole in ((1, kept, learner), (8, kept_shared, learner_shared)):
        sharding = "ddp" if learners == 1 else "fsdp2"
        compute = paper.compute.replace(learners=learners, sharding=sharding)
        first, engine = plan(shape, paper.replace(compute=compute))
        assert first.parts["activations"] == pytest.approx(activations, rel=0.2)
        assert first.total == pytest.approx(whole, rel=0.05)
        assert engine.parts["the engine's passes"] == pytest.approx(passes, rel=0.02)


def test_an_engine_holds_the_caches_of_a_round() -> None:
    engine = made(run())[1].parts
    # Two questions, which the policy reads three times, in 256 tokens: more than two attempts each,
    # of 128 tokens. Keys and values of 2 heads of 16 in 3 layers.
    assert engine["KV cache"] == 2 * (2 * 3) * 256 * (2 * 3 * 2 * 16)
    once = made(run(game={"verifications": (1, 1)}))[1].parts
    assert once["KV cache"] == 2 * 4 * 128 * (2 * 3 * 2 * 16)
    assert made(run(compute={"env_runners": 1}))[1].parts == engine
    smaller = made(run(learning={"round_size": 1}))[1].parts
    assert smaller["KV cache"] == engine["KV cache"] / 2

    vllm, memory = run(engine={"kind": "vllm", "memory": 0.5}), 100 * SMALL.parameters
    assert made(vllm, memory)[1].total == memory // 2
    assert 2 * SMALL.parameters / memory <= least_share(SMALL, vllm, memory) < 1


def test_proposals_are_the_fastest_layouts_that_fit() -> None:
    config = make_config(load_preset("paper-7b"))
    shape, memory = QWEN_7B, 80 * 2**30
    for gpus, kind in ((8, "shared"), (16, "own")):
        best = fastest(config, shape, memory, gpus)
        assert best is not None
        assert best.compute.gpus == kind
        assert best.compute.gpus_in_all == gpus
        check_fit(best, shape, memory, gpus)
        seconds = [estimate(shape, one, memory).step for one in layouts(config, gpus)]
        assert estimate(shape, best, memory).step == min(seconds)
        assert len(seconds) > 3
    assert fastest(config, shape, memory / 4, 2) is None
    # 64 GiB of weights are too many for one GPU's engine, beside a cache.
    large = make_config(load_preset("paper-7b"), {"compute.tensor_parallel": 2})
    best = fastest(large, qwen(*COUNTED[1][0]), memory, 32)
    assert best is not None
    assert best.compute.tensor_parallel == 2


@pytest.mark.parametrize(
    ("changes", "memory", "gpus", "field"),
    [
        ({"learning": {"microbatch_tokens": 65_536}}, 0.5, 4, "learning.gradient_checkpointing"),
        ({"learning": {"batch_size": 512, "round_size": 256}}, 0.5, 64, "learning.round_size"),
        ({"compute": {"learners": 100}}, 2.0, 8, "compute.gpus"),
        ({"engine": {"kind": "vllm", "memory": 0.01}}, 2.0, 4, "engine.memory"),
    ],
)
def test_what_does_not_fit_names_a_setting_that_helps(
    changes: dict[str, Any], memory: float, gpus: int, field: str
) -> None:
    """``memory`` is a share of the fullest device's need."""
    config = run(**changes)
    limit = memory * max(device.total for device in made(config)) / USABLE
    with pytest.raises(ConfigError) as refused:
        check_fit(config, SMALL, limit, gpus)
    assert refused.value.field == field


@pytest.mark.parametrize("count", [0, 2])
def test_on_shared_gpus_engine_and_learner_take_turns(count: int) -> None:
    shared = {"env_runners": count, "learners": count, "gpus": "shared"}
    (device,) = made(run(compute=shared))
    assert device.count == max(1, count)
    assert ("activations" in device.parts) != ("KV cache" in device.parts)
    assert {"weights", "reference", "engine's weights"} <= device.parts.keys()

    # vLLM sleeps without its weights, so they come with its cache or not at all.
    asleep = run(compute=shared, engine={"kind": "vllm"}, learning={"microbatch_tokens": 65_536})
    (device,) = made(asleep)
    assert "activations" in device.parts
    assert "engine's weights" not in device.parts
    memory = 10 * device.total
    (device,) = made(asleep, memory)
    playing = device.parts["KV cache"] + device.parts["engine's weights"]
    assert playing == pytest.approx(0.4 * memory, rel=1e-6)

"""Plans: the formulas against counts over fake tensors, advice that fits, and ``ssp plan``."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from ssp_env import cli
from ssp_env.errors import ConfigError
from ssp_experiments.config import RunConfig, load_preset, make_config
from ssp_experiments.estimates import Device, Shape, estimate, least_share, plan, shape_of
from ssp_experiments.planner import (
    USABLE,
    check_fit,
    check_memory,
    fastest,
    layouts,
    with_checkpointing,
)

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
QWEN_7B = (3584, 18_944, 28, 28, 4, 152_064, False)


def settings_of(*sizes: Any) -> Qwen2Config:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    names += ("num_key_value_heads", "vocab_size", "tie_word_embeddings")
    return Qwen2Config(**dict(zip(names, sizes, strict=True)))


def qwen(*sizes: Any) -> Shape:
    with torch.device("meta"):
        return shape_of(AutoModelForCausalLM.from_config(settings_of(*sizes)))


SMALL = qwen(64, 160, 3, 4, 2, 512, True)


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


def test_two_policies_have_two_optimizers_and_adapters_one_base() -> None:
    def parts(**learning: Any) -> list[dict[str, int]]:
        return [device.parts for device in made(run(learning=learning))]

    (one, plays), (two, play) = parts(), parts(policies="separate")
    assert two["weights"] == 2 * one["weights"]
    assert two["Adam's moments"] == 2 * one["Adam's moments"]
    assert two["reference"] == one["reference"], "the proposer's algorithm has no KL"
    assert play["proposer's weights"] == plays["engine's weights"]
    (one, plays), (two, play) = parts(lora_rank=2), parts(lora_rank=2, policies="separate")
    assert (two["weights"], play["engine's weights"]) == (one["weights"], plays["engine's weights"])
    assert two["Adam's moments"] == 2 * one["Adam's moments"]
    assert play == plays


def test_a_frozen_verifier_is_a_model_more_and_with_adapters_almost_none() -> None:
    def weights(**learning: Any) -> dict[str, int]:
        config = run(learning=learning).replace(game=run().game.replace(verifier="frozen"))
        return made(config)[-1].parts

    play = weights()
    assert play["verifier's weights"] == play["engine's weights"]
    play = weights(lora_rank=2)
    assert 0 < play["verifier's weights"] < play["engine's weights"] / 2
    play = weights(lora_rank=2, verifier_model="another")
    assert play["verifier's weights"] == play["engine's weights"]


def test_what_a_learner_on_a_cpu_had_resident_is_what_is_planned() -> None:
    """Measured by `benchmarks/plan_memory.py`."""
    file = Path(__file__).parents[2] / "benchmarks/results/plan_memory.json"
    cases = json.loads(file.read_text())["cases"]
    assert "48M" in cases
    for name, case in cases.items():
        assert case["planned_gib"] == pytest.approx(case["peak_gib"], rel=0.15), name


def test_the_arithmetic_of_a_learner_decides_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine's CPU, what it would compute in; on GPUs, bfloat16 unless it is said."""
    sizes, cpu = qwen(512, 2048, 8, 8, 2, 32_000, True), {"gpus": "none"}

    def learner(units: dict[str, bool], **changes: Any) -> dict[str, int]:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: units)
        changes.setdefault("compute", cpu)
        return plan(sizes, run(**changes))[0].parts

    there, not_there = {"amx_bf16": True}, {"avx2": True}
    half, whole = learner(there), learner(not_there)
    assert whole["activations"] > half["activations"]
    assert ("weights in bfloat16" in half, "weights in bfloat16" in whole) == (True, False)
    assert learner(there, learning={"dtype": "float32"}) == whole
    on_gpu = learner(not_there, compute={})
    assert "libraries" not in on_gpu
    assert on_gpu["weights"] == whole["weights"] == 4 * sizes.parameters
    # Beneath adapters, layers are kept in half.
    adapted = learner(there, learning={"lora_rank": 2})
    assert adapted["weights"] == 2 * (sizes.parameters - sizes.outside) + 4 * sizes.outside
    assert learner(not_there, learning={"lora_rank": 2})["weights"] == whole["weights"]


def test_layers_are_computed_again_where_memory_asks_for_it() -> None:
    for compute in ({}, {"gpus": "none", "env_runners": 0, "learners": 0}):
        opened = run(compute=compute)
        assert opened.learning.gradient_checkpointing is None
        needed = max(device.total for device in made(opened))
        for memory, chosen in ((2 * needed, False), (1.05 * needed, True)):
            decided = with_checkpointing(opened, SMALL, memory)
            assert decided.learning.gradient_checkpointing is chosen
        said = run(compute=compute, learning={"gradient_checkpointing": False})
        assert with_checkpointing(said, SMALL, 1.0) == said


def test_an_engine_holds_the_caches_of_a_round() -> None:
    engine = made(run())[1].parts
    # Two questions, which the policy reads three times, in 256 tokens: more than two attempts each,
    # of 128 tokens. Keys and values of 2 heads of 16 in 3 layers.
    assert engine["KV cache"] == 2 * (2 * 3) * 256 * (2 * 3 * 2 * 16)
    once = made(run(game={"verifications": (1, 1)}))[1].parts
    assert once["KV cache"] == 2 * 4 * 128 * (2 * 3 * 2 * 16)
    smaller = made(run(learning={"round_size": 1}))[1].parts
    assert smaller["KV cache"] == engine["KV cache"] / 2

    vllm, memory = run(engine={"kind": "vllm", "memory": 0.5}), 100 * SMALL.parameters
    assert made(vllm, memory)[1].total == memory // 2
    assert 2 * SMALL.parameters / memory <= least_share(SMALL, vllm, memory) < 1


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


def test_proposals_are_the_fastest_layouts_that_fit() -> None:
    config = make_config(load_preset("paper-7b"))
    shape, memory = qwen(*QWEN_7B), 80 * 2**30
    for gpus, kind in ((8, "shared"), (16, "own")):
        best = fastest(config, shape, memory, gpus)
        assert best is not None
        assert (best.compute.gpus, best.compute.gpus_in_all) == (kind, gpus)
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


def test_a_run_is_planned_for_the_gpus_that_it_will_have(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config({**load_preset("tiny"), "compute": {"gpus": "shared"}})

    def there(*sizes: int) -> None:
        properties = [SimpleNamespace(total_memory=size) for size in sizes]
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(sizes))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(sizes))
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    there(80 << 30, 80 << 30)
    check_memory(config)
    there(80 << 30, 1 << 20)
    with pytest.raises(ConfigError, match=r"of the 1\.0 MiB of its GPU"):
        check_memory(config)  # the smallest one decides
    there()
    with pytest.raises(ConfigError, match="1 GPUs are asked for in all, and there are 0"):
        check_memory(config)
    check_memory(make_config(load_preset("tiny")))  # no GPU, nobody is asked

    monkeypatch.setenv("RAY_ADDRESS", "a cluster that is too busy to answer")
    check_memory(config)
    assert "ssp plan --memory GIB" in caplog.text


def test_the_command_shows_the_paper_as_it_ships(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings_of(*QWEN_7B).save_pretrained(tmp_path)  # no weights, no tokenizer

    def shown(preset: str, *given: str, status: int = 0) -> str:
        assert cli.main(["plan", "--preset", preset, "--model", str(tmp_path), *given]) == status
        said = capsys.readouterr()
        return said.err if status else said.out

    on_16 = shown("paper-7b", "--gpus", "16")
    assert on_16.startswith(f"{tmp_path}: 7.62B parameters; a pass takes up to 1 row of 12,288")
    assert "learner: 12 GPUs, each" in on_16
    assert "s a step on H100s" in on_16
    assert "faster:" not in on_16, "no layout that is known would be by a tenth"
    on_8 = shown("paper-7b", "--gpus", "8")
    assert "learner and engine: 8 GPUs, each" in on_8
    assert "on 8 GPUs, not 16: --set compute.env_runners=8" in on_8
    own = shown("paper-7b-8")
    assert own.splitlines() == on_8.splitlines()[:-1], "that preset is what is proposed"

    found = json.loads(shown("paper-7b", "--json"))
    learner, engine = found["devices"]
    assert learner["all"] == sum(learner["holds"].values())
    assert learner["holds"]["reference"] == learner["holds"]["weights"]
    assert (engine["name"], engine["count"]) == ("engine", 4)
    assert (found["model"], found["longest_row"]) == (str(tmp_path), 4096 + 8192)

    assert "of the 20.0 GiB of its GPU" in shown("paper-7b", "--memory", "20", status=2)
    assert "use no GPU" in shown("tiny", "--gpus", "1", status=2)
    said = shown("paper-7b", "--set", "compute.sharding=ddp", status=2)
    assert "each learner needs" in said
    assert "This fits: --set compute.env_runners=" in said
    paired = ("--set", "compute.env_runners=3", "--set", "compute.gpus=shared")
    assert "cannot share GPUs one to one" in shown("paper-7b", *paired, status=2)


def test_given_questions_have_no_proposals_to_plan_for() -> None:
    alone, mixed = run(), run(learning={"questions": "q.jsonl", "given_share": 0.5})
    given = run(learning={"questions": "q.jsonl"})
    seconds = [estimate(SMALL, config, 2**30).learn for config in (alone, mixed, given)]
    assert seconds == pytest.approx([seconds[0], seconds[0] * 2.5 / 3, seconds[0] * 2 / 3])
    cache = [made(config)[1].parts["KV cache"] for config in (alone, mixed, given)]
    assert cache[0] == cache[1] > cache[2], "nothing is read to verify"

"""What a plan counts, what changes it, and that what it proposes instead fits."""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from agents.config import LearningConfig
from agents.planning.count import count_passes
from agents.planning.fit import USABLE, check_fit, gib
from agents.planning.live import LiveBytes
from agents.planning.plan import Job, Layout, Plan, Planner
from agents.scoring import TokenScorer, checkpoint_layers, token_scores
from agents.update import Update
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig

SMALL = Qwen2Config(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)
JOB = Job(
    game=GameConfig(attempts=2, max_prompt_tokens=64, max_response_tokens=64),
    learning=LearningConfig(batch_size=4, round_size=2, microbatch_tokens=512),
    layout=Layout(env_runners=2, learners=2, gpus_per_env_runner=1, gpus_per_learner=1),
)


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner(SMALL)


def learner(plan: Plan) -> dict[str, int]:
    return plan.devices[0].parts


def learning(**changes: Any) -> Job:
    return replace(JOB, learning=JOB.learning.replace(**changes))


def layout(**changes: Any) -> Job:
    return replace(JOB, layout=replace(JOB.layout, **changes))


def test_bytes_are_alive_until_the_last_tensor_is_gone() -> None:
    weight = torch.zeros(1000)
    with LiveBytes([weight]) as live:
        one = torch.ones(1000)
        view = one[:10]
        two = one + weight
        assert live.peak == 8000
        del one, two
        three = torch.ones(500)
        assert live.peak == 8000, "4,000 of a view, and 2,000"
        del view, three
        torch.ones(1500)
        assert live.peak == 8000
    assert live.copies == 0


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_plan_covers_all_that_an_update_holds(checkpointing: bool) -> None:
    config = copy.deepcopy(SMALL)
    config.vocab_size = 2048  # entropies are as large as logits: they must not be forgotten
    size = LearningConfig(microbatch_tokens=192, gradient_checkpointing=checkpointing)
    game = GameConfig(max_prompt_tokens=40, max_response_tokens=56)
    job = Job(game, size, Layout(learners=1), autocast=None, attention="eager")
    parts = learner(Planner(config).plan(job))

    lm = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    scorer = TokenScorer(lm, 1.0, config.vocab_size)
    if checkpointing:
        checkpoint_layers(scorer)
    update = Update(scorer, torch.optim.Adam(lm.parameters()), size)
    rows, length = 4, job.longest
    columns = {
        "ids": torch.arange(rows)[:, None].repeat(1, length),  # equal rows would be read once
        "loss_mask": (torch.arange(length) >= 40).float().repeat(rows, 1),
        "behaviour_logprobs": torch.full((rows, length), -math.log(config.vocab_size)),
        "lengths": torch.full((rows,), length),
        "role": torch.tensor([0, 1, 0, 1]),
        "advantages": torch.ones(rows),
        "weights": torch.ones(rows),
    }
    update(columns, 1)
    with LiveBytes(lm.parameters()) as live:
        update(columns, size.role_norms_every)  # with the gradient norm of each role

    moving = parts["gradients"] + parts["one role's gradients"] + parts["activations"]
    assert moving == pytest.approx(live.peak, rel=0.1)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_fake_tensors_take_what_real_ones_do(autocast: torch.dtype | None) -> None:
    how = {"attention": "eager", "autocast": autocast}
    counted = count_passes(
        SMALL, rows=2, length=96, own=40, checkpointing=False, reference=False, **how
    )

    lm = AutoModelForCausalLM.from_config(SMALL, attn_implementation="eager").eval()
    for parameter in lm.parameters():
        parameter.grad = torch.zeros_like(parameter)
    mask = torch.zeros(2, 96)
    mask[:, -40:] = 1
    with LiveBytes(lm.parameters()) as live:
        arithmetic = torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext()
        with arithmetic:
            ids = torch.zeros(2, 96, dtype=torch.long)
            logprobs = token_scores(lm, ids, mask, 1.0, SMALL.vocab_size).logprobs
        logprobs.sum().backward()

    assert counted.activations == pytest.approx(live.peak, rel=0.05)
    assert counted.copies == live.copies
    assert (counted.copies > 0) == (autocast is not None)


def test_what_a_learner_holds(planner: Planner) -> None:
    weights = 4 * planner.size.parameters
    held = learner(planner.plan(JOB))
    assert held["weights"] == held["gradients"] == held["reference"] == weights
    assert held["Adam's moments"] == 2 * weights
    assert "reference" not in learner(planner.plan(learning(kl_coeff=0.0)))

    adapted = learner(planner.plan(learning(lora_rank=2)))
    assert adapted["weights"] == weights
    assert adapted["Adam's moments"] == 2 * adapted["adapters"] == 2 * 4 * 2 * planner.size.adapted
    assert "reference" not in adapted, "the policy without its adapters is the reference"

    shared = learner(planner.plan(layout(sharding="fsdp2", learners=4)))
    assert shared["Adam's moments"] == 2 * weights // 4
    assert shared["gathered layers"] < 4 * weights


def test_weights_that_are_read_have_a_copy_on_either_side(planner: Planner) -> None:
    for job in (JOB, learning(lora_rank=2)):
        job = replace(job, engine_bytes=2, vllm=True)
        travelling = planner.plan(job).moved["weights to the engines"] // 2
        stored, read = planner.plan(job, 10**9), planner.plan(replace(job, direct=True), 10**9)
        for before, after in zip(stored.devices, read.devices, strict=True):
            assert after.total == before.total + travelling
        assert planner.least_share(job, 10**9) == planner.least_share(
            replace(job, direct=True), 10**9
        )


def test_activations_follow_the_settings(planner: Planner) -> None:
    activations = learner(planner.plan(JOB))["activations"]
    checkpointed = learner(planner.plan(learning(gradient_checkpointing=True)))["activations"]
    single = learner(planner.plan(learning(microbatch_tokens=128)))["activations"]
    assert checkpointed < 0.6 * activations
    assert single < 0.5 * activations


def test_an_engine_holds_the_caches_of_a_round(planner: Planner) -> None:
    engine = planner.plan(JOB).devices[1].parts
    # Two questions, two attempts each, 128 tokens; keys and values of 2 heads of 16 in 3 layers.
    assert engine["KV cache"] == 4 * 4 * 128 * (2 * 3 * 2 * 16)
    assert engine["KV cache, while rows join"] == engine["KV cache"]
    assert planner.plan(layout(env_runners=1)).devices[1].parts == engine, "rounds stay as they are"
    smaller = planner.plan(learning(round_size=1)).devices[1].parts
    assert smaller["KV cache"] == engine["KV cache"] / 2
    assert smaller["the engine's passes"] == pytest.approx(engine["the engine's passes"] / 2, abs=1)

    # 64 + 64 + 300 tokens for both verifications are more than 128 for each of four attempts.
    reading = JOB.game.replace(max_verification_tokens=300)
    verified = planner.plan(replace(JOB, game=reading)).devices[1].parts
    assert verified["KV cache"] == 2 * 4 * 428 * (2 * 3 * 2 * 16)
    nobody = reading.replace(verifier="none")
    assert planner.plan(replace(JOB, game=nobody)).devices[1].parts == engine


def test_vllm_fills_its_share_and_no_less_than_it_must(planner: Planner) -> None:
    job = replace(JOB, vllm=True, engine_memory=0.5)
    row = 4 * (64 + 64 + 128) * (2 * 3 * 2 * 16)
    weights = 4 * planner.size.parameters
    memory = 8 * weights
    assert planner.plan(job).devices[1].total == weights + row
    assert planner.plan(job, memory).devices[1].total == memory // 2
    assert check_fit(planner, job, 100 * weights, 4)

    memory *= 5
    starved = replace(job, engine_memory=0.01)
    with pytest.raises(ConfigError, match=r"set compute\.engine_memory=0\.\d+$") as refused:
        check_fit(planner, starved, memory, 4)
    assert refused.value.field == "compute.engine_memory"
    share = float(refused.value.fix.rpartition("=")[2])
    assert weights + row <= share * memory
    assert check_fit(planner, replace(job, engine_memory=share), memory, 4)


def test_one_device_for_both_holds_what_each_needs_in_its_turn(planner: Planner) -> None:
    shared = layout(env_runners=0, learners=0, gpus_per_env_runner=0.5, gpus_per_learner=0.5)
    (device,) = planner.plan(shared).devices
    learner, engine = (each.parts for each in planner.plan(layout(learners=1)).devices)
    assert device.gpu
    assert device.parts.items() <= {**learner, **engine}.items()
    assert {"weights", "reference", "engine's weights"} <= device.parts.keys()
    assert ("activations" in device.parts) != ("KV cache" in device.parts)

    # Processes of their own keep what they have.
    both = layout(env_runners=1, learners=1, gpus_per_env_runner=0.5, gpus_per_learner=0.5)
    (device,) = planner.plan(both).devices
    assert device.parts == {**learner, **engine}
    assert not planner.plan(layout(gpus_per_env_runner=0)).devices[1].gpu


def test_a_step_moves_less_where_there_is_one_learner(planner: Planner) -> None:
    weights = 4 * planner.size.parameters
    moved = planner.plan(JOB).moved
    assert moved["weights to the engines"] == 2 * weights
    assert moved["each learner, gradients"] == 2 * weights, "two updates, half of it each way"
    assert "each learner, gradients" not in planner.plan(layout(learners=1)).moved
    assert "each learner, per micro-batch" in planner.plan(layout(sharding="fsdp2")).moved


def test_what_does_not_fit_is_refused_with_settings_that_do(planner: Planner) -> None:
    need = max(device.total for device in planner.plan(JOB).devices)
    assert check_fit(planner, JOB, int(need / USABLE) + 1, 4) == planner.plan(JOB)

    better = learning(gradient_checkpointing=True)
    enough = int(max(device.total for device in planner.plan(better).devices) / USABLE) + 1
    with pytest.raises(ConfigError, match=r"set learning.gradient_checkpointing=true$") as refused:
        check_fit(planner, JOB, enough, 4)
    assert refused.value.field == "learning.gradient_checkpointing"
    assert refused.value.value is False
    assert check_fit(planner, better, enough, 4)

    weights = 4 * planner.size.parameters
    with pytest.raises(ConfigError, match=r"set compute\.learners=8, .*\.sharding=fsdp2, .*; or "):
        check_fit(planner, JOB, int(3.3 * weights / USABLE), 1000)
    with pytest.raises(ConfigError, match="take more or larger GPUs"):
        check_fit(planner, JOB, planner.size.parameters, 4)
    with pytest.raises(ConfigError, match="4 GPUs are asked for in all, and there are 3") as few:
        check_fit(planner, JOB, need * 2, 3)
    assert few.value.field == "compute.env_runners"


def test_an_engine_that_caches_too_much_gets_smaller_rounds_or_vllm(planner: Planner) -> None:
    wide = learning(
        batch_size=512, round_size=32, gradient_checkpointing=True, microbatch_tokens=128
    )
    full = planner.plan(wide).devices[1].total
    memory = int(0.7 * full / USABLE)
    told = r"set learning\.round_size=16; or compute\.engine=vllm$"
    with pytest.raises(ConfigError, match=told) as refused:
        check_fit(planner, wide, memory, 1000)
    assert refused.value.field == "learning.round_size"
    assert check_fit(planner, replace(wide, vllm=True), memory, 1000)
    smaller = replace(wide, learning=wide.learning.replace(round_size=16))
    assert check_fit(planner, smaller, memory, 1000)


def test_a_plan_refuses_what_a_run_refuses(planner: Planner) -> None:
    plenty = 10**15
    with pytest.raises(ConfigError, match="2 env runners play") as refused:
        check_fit(planner, learning(round_size=4), plenty, 4)
    assert refused.value.field == "learning.round_size"
    with pytest.raises(ConfigError, match="give two learners or more"):
        check_fit(planner, layout(learners=1, sharding="fsdp2"), plenty, 4)
    stale = replace(learning(importance_cap=None), overlap=True)
    with pytest.raises(ConfigError, match="give importance_cap"):
        check_fit(planner, stale, plenty, 4)


@pytest.mark.parametrize(
    ("gpus", "advice"),
    [
        (2, "compute.env_runners=1, compute.learners=1, compute.sharding=ddp"),
        (3, "compute.env_runners=1, compute.learners=2"),
        (12, "compute.env_runners=4, compute.learners=8"),
        (9, "compute.env_runners=4, compute.learners=5"),
    ],
)
def test_fewer_gpus_are_shared_as_a_run_takes_them(
    planner: Planner, gpus: int, advice: str
) -> None:
    # Four rounds: more than four env runners would be refused, and fsdp2 with a single learner.
    job = replace(
        learning(batch_size=4, round_size=1), layout=replace(JOB.layout, sharding="fsdp2")
    )
    job = replace(job, layout=replace(job.layout, env_runners=3, learners=100))
    with pytest.raises(ConfigError) as refused:
        check_fit(planner, job, 10**12, gpus)
    assert refused.value.fix.endswith(f"; set {advice}")
    changed = dict(part.split("=") for part in advice.split(", "))
    fewer = Layout(
        int(changed["compute.env_runners"]),
        int(changed["compute.learners"]),
        1,
        1,
        changed.get("compute.sharding", "fsdp2"),
    )
    assert fewer.gpus <= gpus
    assert check_fit(planner, replace(job, layout=fewer), 10**12, gpus)


def test_a_single_gpu_is_proposed_only_to_what_can_share_it(planner: Planner) -> None:
    with pytest.raises(ConfigError, match=r"set compute\.env_runners=0"):
        check_fit(planner, JOB, 10**12, 1)
    for job in (replace(JOB, overlap=True), replace(JOB, direct=True)):
        with pytest.raises(ConfigError, match="take more or larger GPUs"):
            check_fit(planner, job, 10**12, 1)


def test_sizes_are_readable() -> None:
    assert [gib(size) for size in (2**31, 3 * 2**19, 512)] == ["2.0 GiB", "1.5 MiB", "0.5 KiB"]

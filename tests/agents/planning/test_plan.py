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

from agents.config import LearningConfig, check_sharding
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
    learning=LearningConfig(batch_size=4, microbatch_tokens=512),
    layout=Layout(env_runners=2, learners=2, gpus_per_env_runner=1, gpus_per_learner=1),
)


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner(SMALL)


def learner(plan: Plan) -> dict[str, int]:
    return plan.devices[0].parts


def learning(**changes: Any) -> Job:
    return replace(JOB, learning=replace(JOB.learning, **changes))


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


def test_activations_follow_the_settings(planner: Planner) -> None:
    activations = learner(planner.plan(JOB))["activations"]
    checkpointed = learner(planner.plan(learning(gradient_checkpointing=True)))["activations"]
    single = learner(planner.plan(learning(microbatch_tokens=128)))["activations"]
    assert checkpointed < 0.6 * activations
    assert single < 0.5 * activations


def test_an_engine_holds_the_caches_of_all_that_it_plays(planner: Planner) -> None:
    engine = planner.plan(JOB).devices[1].parts
    # Two questions, two attempts each, 128 tokens; keys and values of 2 heads of 16 in 3 layers.
    assert engine["KV cache"] == 4 * 4 * 128 * (2 * 3 * 2 * 16)
    more = planner.plan(layout(env_runners=4)).devices[1].parts
    assert more["KV cache"] == engine["KV cache"] / 2
    patient = planner.plan(replace(JOB, waits=True)).devices[1].parts
    assert patient["KV cache"] == engine["KV cache"] / 4


def test_one_device_for_both_holds_both(planner: Planner) -> None:
    shared = layout(env_runners=0, learners=0, gpus_per_env_runner=0.5, gpus_per_learner=0.5)
    (device,) = planner.plan(shared).devices
    apart = layout(env_runners=0, learners=0)
    assert device.total == sum(each.total for each in planner.plan(apart).devices)
    assert device.gpu
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
    with pytest.raises(ConfigError, match=r"compute\.sharding=fsdp2, compute\.learners=8$"):
        check_fit(planner, JOB, int(3.3 * weights / USABLE), 1000)
    with pytest.raises(ConfigError, match="take more or larger GPUs"):
        check_fit(planner, JOB, planner.size.parameters, 4)
    with pytest.raises(ConfigError, match="4 GPUs are asked for in all, and there are 3") as few:
        check_fit(planner, JOB, need * 2, 3)
    assert few.value.field == "compute.env_runners"


@pytest.mark.parametrize(("gpus", "learners", "sharding"), [(2, 1, "ddp"), (3, 2, "fsdp2")])
def test_what_is_offered_for_few_gpus_can_run(
    planner: Planner, gpus: int, learners: int, sharding: str
) -> None:
    shared = layout(sharding="fsdp2")
    with pytest.raises(ConfigError, match=f"compute.learners={learners}") as few:
        check_fit(planner, shared, 2**40, gpus)

    offered = dict(part.split("=") for part in str(few.value).split("set ")[1].split(", "))
    assert offered.pop("compute.sharding", "fsdp2") == sharding
    counts = {name.removeprefix("compute."): int(value) for name, value in offered.items()}
    check_sharding(sharding, counts["learners"])
    assert check_fit(planner, layout(sharding=sharding, **counts), 2**40, gpus)


def test_an_engine_that_caches_too_much_gets_company(planner: Planner) -> None:
    wide = learning(batch_size=512, gradient_checkpointing=True, microbatch_tokens=128)
    full = planner.plan(wide).devices[1].total
    with pytest.raises(ConfigError, match=r"set compute.env_runners=4$") as refused:
        check_fit(planner, wide, int(0.7 * full / USABLE), 1000)
    assert refused.value.field == "compute.env_runners"


def test_sizes_are_readable() -> None:
    assert [gib(size) for size in (2**31, 3 * 2**19, 512)] == ["2.0 GiB", "1.5 MiB", "0.5 KiB"]

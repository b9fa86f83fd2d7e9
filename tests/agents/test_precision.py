"""The arithmetic of passes: what is chosen on which machine, and that updates in it are right."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning import distance, learner_for, some_rows, update, weights_of
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GptOssConfig, Qwen2Config
from two_ranks import columns as tensors

from ssp_agents import precision
from ssp_agents.config import LearningConfig
from ssp_agents.models import adapt, load_model, meta_model
from ssp_agents.precision import is_small, passes_dtype, round_frozen
from ssp_agents.rllib.module import MODULE_ID
from ssp_agents.rows import Row
from ssp_agents.scoring import TokenScorer, checkpoint_layers
from ssp_agents.update import Update, adam

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
AMX, AVX512, NONE = {"amx_bf16": True, "avx512_bf16": True}, {"avx512_bf16": True}, {"avx2": True}
FLOAT, HALF = None, torch.bfloat16
VOCABULARY = 300


@pytest.mark.parametrize(
    ("units", "small", "expected"),
    [
        (AMX, False, {"auto": HALF, "float32": FLOAT, "bfloat16": HALF}),
        (AMX, True, {"auto": FLOAT, "float32": FLOAT, "bfloat16": HALF}),
        (AVX512, False, {"auto": HALF, "float32": FLOAT, "bfloat16": HALF}),
        ({"bf16": True}, False, {"auto": FLOAT, "float32": FLOAT, "bfloat16": HALF}),
        (NONE, False, {"auto": FLOAT, "float32": FLOAT, "bfloat16": FLOAT}),
    ],
)
def test_a_cpu_computes_in_what_it_is_fastest_at(
    units: dict[str, bool],
    small: bool,
    expected: dict[Any, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: units)
    found = {asked: passes_dtype(asked, CPU, small=small) for asked in expected}
    assert found == expected
    said = "learning.dtype=bfloat16: this machine does not multiply in bfloat16"
    assert (said in caplog.text) == (units is NONE)


@pytest.mark.parametrize("has", [True, False])
def test_a_gpu_computes_in_bfloat16_where_it_has_it(
    has: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return has or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    dtype = HALF if has else FLOAT
    assert [passes_dtype(asked, CUDA, small=True) for asked in ("auto", "bfloat16")] == [dtype] * 2
    assert len(caplog.records) == (not has), "what is asked for is missed"


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of random weights whose heads share keys."""
    config = Qwen2Config(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=VOCABULARY, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("qwen")
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def test_attention_is_fused_but_in_small_policies_and_where_there_is_none(
    qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kinds(folder: Path) -> set[str]:
        return {load(folder).config._attn_implementation for load in (load_model, meta_model)}

    sinks = GptOssConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, vocab_size=30, num_local_experts=2,
        num_experts_per_tok=1,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(sinks).save_pretrained(tmp_path)
    assert is_small(load_model(qwen))
    assert kinds(qwen) == {"eager"}
    monkeypatch.setattr(precision, "SMALL", 1)
    assert kinds(qwen) == {"sdpa"}
    assert kinds(tmp_path) == {"eager"}, "fused attention has no sinks"


def rows_of(count: int = 4) -> list[Row]:
    """Rows of unequal lengths, in two turns each, that nobody has sampled: their ratio is 1."""
    rng, rows = np.random.default_rng(1), []
    for game in range(count):
        length = 20 + 7 * game
        mask = np.zeros(length, dtype=np.uint8)
        mask[4:9] = mask[12 : length - 1] = 1
        ids = rng.integers(0, VOCABULARY, size=length).astype(np.int32)
        nobody = np.full(length, np.nan, dtype=np.float32)
        rows.append(Row(ids, mask, nobody, "solver", game, float(rng.normal()), 0.1))
    return rows


def bare_gradients(lm: Any, rows: list[Row], dtype: torch.dtype | None) -> list[torch.Tensor]:
    """Gradients of sum_i w_i A_i sum_t -log pi(t), by the whole model, one row at a time."""
    trained = [weight for weight in lm.parameters() if weight.requires_grad]
    for row in rows:
        ids = torch.as_tensor(row.ids, dtype=torch.int64)[None]
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            logits = lm(input_ids=ids).logits[0, :-1]
        every = logits.float() - logits.float().logsumexp(-1, keepdim=True)
        own = torch.as_tensor(row.mask[1:], dtype=torch.bool)
        chosen = every.gather(1, ids[0, 1:, None])[own]
        (-row.weight * row.advantage * chosen.sum()).backward()
    return [weight.grad for weight in trained if weight.grad is not None]


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_an_update_is_that_of_a_bare_loop_in_its_dtype(
    attention: str, dtype: torch.dtype | None, rank: int, qwen: Path
) -> None:
    """The oracle, in whichever kind of attention, dtype, adapters and checkpointing; bfloat16 is as
    near to the exact gradients as the bare loop in bfloat16."""
    learning = LearningConfig(
        warmup_steps=0, kl_coeff=0.0, solver_algorithm="reinforce", importance_cap=None,
        learning_roles=("solver",), solver_aggregation="sum", lora_rank=rank,
    )  # fmt: skip
    rows = rows_of()

    def made(kind: str = attention) -> Any:
        lm = load_model(qwen)
        lm.set_attn_implementation(kind)
        if rank:
            adapt(lm, rank, seed=0)
            # New adapters change nothing, and their first half would have no gradients.
            for name, weight in lm.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(weight, std=0.1, generator=torch.manual_seed(3))
        return lm

    exact = bare_gradients(made("eager"), rows, FLOAT)
    bare = bare_gradients(made(), rows, dtype)
    norm = torch.cat([g.flatten() for g in exact]).norm()

    def apart(some: list[torch.Tensor], other: list[torch.Tensor]) -> float:
        each = [(a - b).flatten() for a, b in zip(some, other, strict=True)]
        return float(torch.cat(each).norm() / norm)

    found = []
    for checkpointed, chunk in ((False, 10**6), (True, 10**6), (False, 60)):
        lm = made()
        if rank and dtype is not None:
            round_frozen(lm, dtype)
        if checkpointed:
            checkpoint_layers(lm)
        scorer = TokenScorer(lm, 1.0, VOCABULARY)
        trained = [weight for weight in lm.parameters() if weight.requires_grad]
        optimizer = adam(trained, learning)
        given = learning.replace(microbatch_tokens=chunk)
        figures = Update(scorer, optimizer, given, autocast=dtype)(tensors(rows), 0)
        scale = 10 * max(1.0, figures["grad_norm"])  # a tenth is new in Adam's moment; clipping
        found.append([optimizer.state[weight]["exp_avg"] * scale for weight in trained])

    within = 1e-5 if dtype is None else 0.02
    for gradients in found:
        assert apart(gradients, exact) < within
        assert apart(gradients, exact) < 1.5 * apart(bare, exact) + 1e-6
    assert apart(found[0], found[1]) == 0.0, "what is computed again is the same"


def test_frozen_weights_are_rounded_once_to_the_same_results(qwen: Path) -> None:
    learning = LearningConfig(warmup_steps=0, kl_coeff=0.0, lora_rank=4, lr=1e-2)

    def learnt(rounded: bool) -> tuple[list[Any], dict[str, torch.Tensor]]:
        lm = load_model(qwen)
        lm.set_attn_implementation("sdpa")
        adapt(lm, 4, seed=0)
        if rounded:
            round_frozen(lm, HALF)
        trained = {name: w for name, w in lm.named_parameters() if w.requires_grad}
        optimizer = adam(trained.values(), learning)
        given = Update(TokenScorer(lm, 1.0, VOCABULARY), optimizer, learning, autocast=HALF)
        figures = [given(tensors(rows_of()), step)["grad_norm"] for step in range(3)]
        if rounded:
            held = {str(w.dtype): n for n, w in lm.named_parameters() if not w.requires_grad}
            assert held.keys() == {"torch.bfloat16", "torch.float32"}
            assert lm.lm_head.weight is lm.model.embed_tokens.weight
            assert lm.lm_head.weight.dtype == torch.float32
        return figures, trained

    once, each = learnt(True), learnt(False)
    assert once[0] == each[0]
    assert distance(once[1], each[1]) == 0.0


@pytest.mark.skipif(passes_dtype("bfloat16", CPU, small=True) is None, reason="no bfloat16 here")
@pytest.mark.parametrize("rank", [0, 2])
def test_a_learner_says_its_dtype_and_gives_its_weights_in_float32(
    rank: int, model_dir: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"lora_rank": rank, "lr": 1e-2, "kl_coeff": 0.1}
    rows = some_rows(model_dir)
    learner = learner_for(model_dir, dtype="bfloat16", **given)
    other = learner_for(model_dir, **given)
    start = weights_of(learner)
    figures, exact = update(learner, rows), update(other, rows)
    assert (figures["bfloat16"], exact["bfloat16"]) == (1.0, 0.0), "small ones have float32"
    assert figures["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.05)
    assert figures["grad_norm"] != exact["grad_norm"]
    assert distance(weights_of(learner), start) > 0

    state = learner.get_state()["rl_module"][MODULE_ID]
    assert {weight.dtype.name for weight in state.values()} == {"float32"}
    columns = tensors(rows)
    logits = learner.module[MODULE_ID].forward_inference(columns)["action_dist_inputs"]
    assert len(logits) == len(rows)
    learner.save_policy(str(tmp_path))
    saved = load_file(tmp_path / "model.safetensors")
    assert {weight.dtype for weight in saved.values()} == {torch.float32}, "as it is played"


def test_the_default_leaves_no_word_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for small in (True, False):
        passes_dtype("auto", CPU, small=small)
    assert not caplog.records

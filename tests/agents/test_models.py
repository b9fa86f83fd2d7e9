"""Model directories: what is saved is what was trained. Optimizer steps of a learner, of which
examples/test_self_play.py tests that they are the paper's. Adapters: they alone are trained, sent
and saved; without them, the policy is what it was."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning import distance, exact_logprobs, learner_for, some_rows, update, weights_of
from playful import damage, playful_model, small_config
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer
from two_ranks import columns as tensors

from ssp_agents.engines.base import StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import adapt, is_adapter, load_model, save_policy, state_of
from ssp_agents.rllib.learner import SSPLearner
from ssp_agents.rllib.module import MODULE_ID, to_batch
from ssp_agents.rows import ROLE_IDS, Row
from ssp_agents.scoring import Scores, TokenScorer
from ssp_agents.tiny.bootstrap import save_policy as save_tiny
from ssp_agents.tiny.bootstrap import tiny_config, tiny_tokenizer
from ssp_env.errors import ModelError, UsageError
from ssp_env.tokenizers import HuggingFaceTokenizer


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_policy_gives_identical_logits_in_transformers(tied: bool, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "a" / "policy"
    words = tiny_tokenizer()
    config = tiny_config(len(words)) if tied else small_config(len(words))
    made = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    save_tiny(made, source)
    (source / "pytorch_model.bin.index.json").write_text("{}")

    model, generator = load_model(source), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1e-3 * torch.randn(parameter.shape, generator=generator)
    save_policy({n: w.numpy() for n, w in model.state_dict().items()}, source, target)
    ids = torch.arange(40)[None]
    loaded = AutoModelForCausalLM.from_pretrained(target).eval()
    assert loaded.dtype == torch.float32
    with torch.inference_mode():
        assert torch.equal(loaded(ids).logits, load_model(target, attention="sdpa")(ids).logits)
        assert torch.equal(load_model(target)(ids).logits, model(ids).logits)
    text = "what is the mentor of <search>"
    assert AutoTokenizer.from_pretrained(target).encode(text) == words.encode(text)
    assert not (target / "pytorch_model.bin.index.json").exists(), "an index of other weights"
    assert (target / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_one_damaged_byte_is_noticed(model_dir: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model_dir, tmp_path / "copy"))
    file = copy / "model.safetensors"
    damage(file)
    with pytest.raises(ModelError, match=f"{file} is damaged.*restore it.*delete {copy}"):
        load_model(copy)
    file.rename(copy / "other")
    with pytest.raises(ModelError, match="No such file"):
        load_model(copy)


def test_a_model_is_loaded_without_the_attention_that_plans_each_shape(model_dir: Path) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    load_model(model_dir)
    assert not torch.backends.cuda.cudnn_sdp_enabled()


# -- updates -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows(model_dir: Path) -> list[Row]:
    return some_rows(model_dir)


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(
    model_dir: Path, rows: list[Row]
) -> None:
    learner, other = learner_for(model_dir, kl_coeff=0.1), learner_for(model_dir, kl_coeff=0.1)
    assert update(learner, rows)["skipped_updates"] == 0.0
    update(other, rows)
    before = weights_of(learner)
    figures = update(learner, [replace(rows[0], advantage=float("nan")), *rows[1:]])
    assert figures["skipped_updates"] == 1.0
    assert distance(weights_of(learner), before) == 0.0
    update(learner, rows)
    update(other, rows)
    # Adam's moments have not seen it.
    assert distance(weights_of(learner), weights_of(other)) == 0.0
    state = learner.get_state()["rl_module"][MODULE_ID]
    assert {name.removeprefix("lm.") for name in state} == set(before), "the reference is no part"


def test_the_learner_leaves_out_the_logits_that_are_never_sampled(tmp_path: Path) -> None:
    """A model with room for more tokens than the tokenizer has."""
    model = playful_model(0)
    model.resize_token_embeddings(model.config.vocab_size + 16, mean_resizing=False)
    with torch.no_grad():
        model.lm_head.weight[-16:] = model.lm_head.weight[:16] + 0.5
    save_tiny(model, tmp_path)
    tokens = len(tiny_tokenizer())
    learner = learner_for(tmp_path, kl_coeff=0.1)
    rows = [replace(row, ids=row.ids % tokens) for row in some_rows(tmp_path)]
    exact = []
    for row in rows:
        own = exact_logprobs(model, row.ids, tokens).detach().numpy()
        exact.append(replace(row, logprobs=np.insert(own, 0, 0.0) * row.mask))
    assert update(learner, exact)["logprob_gap"] < 1e-5
    columns = {k: torch.as_tensor(v) for k, v in to_batch(rows).policy_batches[MODULE_ID].items()}
    out = learner.module[MODULE_ID].forward_inference(columns)
    assert out["action_dist_inputs"].shape == (len(rows), tokens)


class Halved(SSPLearner):
    """Overrides RLlib's hook of losses: the solver's share alone, and half of it."""

    def compute_loss_for_module(self, *, batch: Any, **kwargs: Any) -> torch.Tensor:
        batch = {**batch, "weights": batch["weights"] * (batch["role"] == ROLE_IDS["solver"]) / 2}
        return super().compute_loss_for_module(batch=batch, **kwargs)


def test_a_learner_of_ones_own_has_its_loss_minimised(model_dir: Path, rows: list[Row]) -> None:
    halved, other = learner_for(model_dir, cls=Halved), learner_for(model_dir)
    start = weights_of(halved)
    update(halved, rows)
    update(other, [replace(r, weight=r.weight / 2 if r.role == "solver" else 0.0) for r in rows])
    assert distance(weights_of(halved), weights_of(other)) < 1e-6
    assert distance(weights_of(halved), start) > 1e-4


# -- adapters ----------------------------------------------------------------------------------

RANK = 2


@pytest.fixture(scope="module")
def trained(model_dir: Path) -> SSPLearner:
    """A learner after two updates."""
    learner = learner_for(model_dir, lora_rank=RANK, kl_coeff=0.1, lr=1e-2)
    for seed in (1, 2):
        update(learner, some_rows(model_dir, seed=seed))
    return learner


def scored(model_dir: Path, lm: torch.nn.Module) -> torch.Tensor:
    """Log-probabilities of some rows under a model."""
    with torch.no_grad():
        found: Scores = TokenScorer(lm, 1.0, lm.config.vocab_size)(tensors(some_rows(model_dir)))
    return found.logprobs


def test_new_adapters_change_nothing_and_are_the_same_everywhere(model_dir: Path) -> None:
    base, lm, other = load_model(model_dir), load_model(model_dir), load_model(model_dir)
    adapt(lm, RANK, seed=3)
    assert torch.equal(scored(model_dir, lm), scored(model_dir, base))
    trainable = {name for name, p in lm.named_parameters() if p.requires_grad}
    assert trainable == {name for name, _ in lm.named_parameters() if is_adapter(name)}
    linear = [m for m in base.model.layers.modules() if isinstance(m, torch.nn.Linear)]
    assert len(trainable) == 2 * len(linear), "every linear map of the layers, nothing else"

    adapt(other, RANK, seed=3)
    assert distance(state_of(lm), state_of(other)) == 0.0


def test_the_reference_is_the_policy_without_adapters(trained: SSPLearner, model_dir: Path) -> None:
    assert trained.update_step.reference is not None
    with torch.no_grad():
        reference = trained.update_step.reference(tensors(some_rows(model_dir))).logprobs
    assert torch.equal(reference, scored(model_dir, load_model(model_dir)))

    # It has to be the policy again afterwards, with gradients.
    lm = trained.module[MODULE_ID].lm
    assert all(p.requires_grad == is_adapter(name) for name, p in lm.named_parameters())
    assert not torch.equal(reference, scored(model_dir, lm))


def test_only_adapters_travel_to_an_engine(
    trained: SSPLearner, model_dir: Path, tokenizer: HuggingFaceTokenizer, stop: StopRule
) -> None:
    published = trained.publish(half=False)
    sent = {name.removeprefix("lm."): t for name, t in published.items()}
    assert sent
    assert all(is_adapter(name) for name in sent)

    lm = load_model(model_dir)
    adapt(lm, RANK, seed=0)
    engine = TransformersEngine(lm, tokenizer, stop)
    engine.update_weights(sent, 1)
    learner = trained.module[MODULE_ID].lm
    assert torch.equal(scored(model_dir, engine.model), scored(model_dir, learner))

    with pytest.raises(UsageError, match="they lack"):
        engine.update_weights(dict(list(sent.items())[1:]), 2)


def test_a_checkpoint_holds_adapters_and_goes_on(
    trained: SSPLearner, model_dir: Path, tmp_path: Path
) -> None:
    trained.save(str(tmp_path))
    (file,) = tmp_path.iterdir()
    with safe_open(file, framework="pt") as tensors:
        kept = list(tensors.keys())
    assert len(kept) == 4 * len(state_of(trained.module[MODULE_ID]))
    assert all(is_adapter(name) for name in kept)

    other = learner_for(model_dir, lora_rank=RANK, kl_coeff=0.1, lr=1e-2)
    other.load(str(tmp_path))
    rows = some_rows(model_dir, seed=5)
    assert update(other, rows) == update(trained, rows)
    ours, theirs = (state_of(learner.module[MODULE_ID]) for learner in (other, trained))
    assert distance(ours, theirs) == 0.0

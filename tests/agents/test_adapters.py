"""Adapters: they alone are trained, sent and saved; without them, the policy is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learning import distance, learner_for, some_rows, update
from peft import PeftModel
from safetensors import safe_open
from two_ranks import columns as tensors

from ssp_agents.engines.base import StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import adapt, is_adapter, load_model, save_adapters, state_of
from ssp_agents.rllib.learner import SSPLearner
from ssp_agents.rllib.module import MODULE_ID
from ssp_agents.scoring import Scores, TokenScorer
from ssp_env.errors import UsageError
from ssp_env.tokenizers import HuggingFaceTokenizer

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
    assert trained.updates[MODULE_ID].reference is not None
    with torch.no_grad():
        reference = trained.updates[MODULE_ID].reference(tensors(some_rows(model_dir))).logprobs
    assert torch.equal(reference, scored(model_dir, load_model(model_dir)))

    # It has to be the policy again afterwards, with gradients.
    lm = trained.module[MODULE_ID].lm
    assert all(p.requires_grad == is_adapter(name) for name, p in lm.named_parameters())
    assert not torch.equal(reference, scored(model_dir, lm))


def test_only_adapters_travel_to_an_engine(
    trained: SSPLearner, model_dir: Path, tokenizer: HuggingFaceTokenizer, stop: StopRule
) -> None:
    published = trained.publish(half=False)[MODULE_ID]
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


def test_saved_adapters_are_what_peft_reads(
    trained: SSPLearner, model_dir: Path, tmp_path: Path
) -> None:
    lm = trained.module[MODULE_ID].lm
    save_adapters(state_of(lm), tmp_path)
    read = PeftModel.from_pretrained(load_model(model_dir), str(tmp_path))
    ours, theirs = scored(model_dir, lm), scored(model_dir, read.base_model.model)
    assert (ours - theirs).abs().max() < 1e-6
    assert (ours - scored(model_dir, load_model(model_dir))).abs().max() > 1e-4

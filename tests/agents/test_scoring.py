"""Log-probabilities in chunks and with checkpointed layers: same numbers, same gradients."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from learning import some_rows

from agents.models import load_model
from agents.rows import columns_of
from agents.scoring import checkpoint_layers, token_scores


def scored(model: torch.nn.Module, model_dir: Path, tokens: int = 10**6) -> list[torch.Tensor]:
    """Log-probabilities, and the gradient of a weighted sum of them for every parameter."""
    columns = {k: torch.as_tensor(v) for k, v in columns_of(some_rows(model_dir, 4)).items()}
    vocab = model.config.vocab_size
    ids, mask = columns["ids"], columns["loss_mask"]
    logprobs = token_scores(model, ids, mask, 0.8, vocab, tokens * vocab).logprobs
    model.zero_grad()
    (logprobs * torch.linspace(-1, 1, len(logprobs))).sum().backward()
    return [logprobs.detach()] + [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_chunks_of_logits_change_nothing(model_dir: Path) -> None:
    model = load_model(model_dir)
    for one, other in zip(scored(model, model_dir), scored(model, model_dir, 7), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_checkpointed_layers_give_the_same_gradients_without_dropout(model_dir: Path) -> None:
    model = load_model(model_dir)
    before = scored(model, model_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint_layers(model)
    passes: list[int] = []
    model.model.layers[0].feed_forward.register_forward_pre_hook(lambda *_: passes.append(1))

    after = scored(model, model_dir)
    assert len(passes) == 2, "once forward, once more in the backward pass"
    assert not model.model.layers[0].feed_forward.training
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)

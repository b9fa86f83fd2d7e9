"""How likely a model finds the tokens that a policy wrote, without a full tensor of logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOGITS_PER_CHUNK = 2**25
"""Logits that exist at a time (128 MiB in float32): 220 tokens of a vocabulary of 152,000."""


def token_logprobs(
    lm: Any,
    ids: Tensor,
    mask: Tensor,
    temperature: float,
    vocab_size: int,
    logits_per_chunk: int = LOGITS_PER_CHUNK,
) -> Tensor:
    """Log-probabilities of the masked tokens under a model, at their sampling temperature.

    Right padding needs no attention mask: every layer is causal, and padding is masked. Logits are
    computed only for the masked tokens, a fraction of all, and chunk by chunk. Chunks are
    computed again in the backward pass, so that only one of them is in memory at any time.

    Args:
        lm: a causal LM of `transformers`.
        ids: int64 (rows, length), right-padded.
        mask: (rows, length), above 0 on the tokens that count; never at position 0.
        temperature: logits are divided by it.
        vocab_size: logits from this id on are left out, as in sampling.
        logits_per_chunk: how many logits may exist at a time; memory, not results, depends on it.

    Returns:
        float32 (tokens,), row by row.
    """
    hidden = lm.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    own = mask[:, 1:] > 0
    states, targets = hidden[own], ids[:, 1:][own]
    head = lm.get_output_embeddings()

    def score(states: Tensor, targets: Tensor) -> Tensor:
        logits = head(states)[:, :vocab_size].float() / temperature
        return torch.log_softmax(logits, dim=-1).gather(1, targets[:, None]).squeeze(1)

    size = max(1, logits_per_chunk // vocab_size)
    if len(targets) <= size:
        return score(states, targets)

    chunks = zip(torch.split(states, size), torch.split(targets, size), strict=True)
    return torch.cat([checkpoint(score, *chunk, use_reentrant=False) for chunk in chunks])


def checkpoint_layers(lm: torch.nn.Module) -> None:
    """Keeps only each layer's input for the backward pass, and computes the rest again there.

    The layers alone are put in training mode, which is what `transformers` asks for; what they
    are made of stays in evaluation mode, so that no dropout comes between engine and learner.

    Raises:
        ValueError: this architecture has no layers that can be checkpointed.
    """
    lm.gradient_checkpointing_enable(  # type: ignore[operator]
        gradient_checkpointing_kwargs={"use_reentrant": False}
    )
    for module in lm.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.training = True

"""Log-probabilities of the tokens that a policy wrote, without a full tensor of logits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ssp_agents.batches import Columns
from ssp_agents.causal_lm import head_logits, states, states_after_prefix

LOGITS_PER_CHUNK = 2**25
"""Logits that exist at a time (128 MiB in float32): 220 tokens of a vocabulary of 152,000."""


class Scores(NamedTuple):
    """Log-probabilities of tokens that a policy wrote, and entropies of the distributions that they
    are from, in nats and without gradients: both float32 (tokens,)."""

    logprobs: Tensor
    entropies: Tensor | None = None


def token_scores(
    lm: Any,
    ids: Tensor,
    mask: Tensor,
    temperature: float,
    vocab_size: int,
    logits_per_chunk: int = LOGITS_PER_CHUNK,
    *,
    entropies: bool = True,
    share_prefix: bool = False,
) -> Scores:
    """Log-probabilities of the masked tokens under a model, at their sampling temperature, row by
    row.

    Right padding needs no attention mask: every layer is causal, and padding is masked. Logits are
    computed only for the masked tokens, a fraction of all, and chunk by chunk. Chunks are
    computed again in the backward pass, so that only one of them is in memory at any time.

    ``ids`` are int64 (rows, length), right-padded; ``mask`` (rows, length) is above 0 on the tokens
    that count, never at position 0. Logits from ``vocab_size`` on are left out, as in sampling.
    With ``share_prefix``, a common prefix of the rows is read once, by models that can, see
    :func:`ssp_agents.architecture.can_share_prefix`.
    """
    # The state at position t predicts the token at t + 1: (rows, length - 1, width).
    prefix = common_prefix(ids, mask) if share_prefix else 0
    read = states_after_prefix(lm, ids[:, :-1], prefix) if prefix else states(lm, ids[:, :-1])
    # Where a prefix is shared, states begin at its last token. So do ids and mask.
    ids, mask = (x[:, max(0, prefix - 1) :] for x in (ids, mask))
    by_policy = mask[:, 1:] > 0  # (rows, length - 1)
    written, targets = read[by_policy], ids[:, 1:][by_policy]  # (tokens, width), (tokens,)

    def score(written: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        # log softmax(logits / T), the distribution that was sampled from: (chunk, vocabulary).
        logits = head_logits(lm, written)[:, :vocab_size].float() / temperature
        every = torch.log_softmax(logits, dim=-1)
        chosen = every.gather(1, targets[:, None]).squeeze(1)
        # Last, because what is computed again for the backward pass ends with what that needs.
        return chosen, _entropies(every) if entropies else chosen.detach()

    # A chunk is size x vocabulary logits.
    size = max(1, logits_per_chunk // vocab_size)
    # What fits into one chunk need not be computed twice.
    if len(targets) <= size:
        logprobs, entropy = score(written, targets)
    else:
        chunks = zip(torch.split(written, size), torch.split(targets, size), strict=True)
        scored = [checkpoint(score, *chunk, use_reentrant=False) for chunk in chunks]
        logprobs, entropy = (torch.cat(parts) for parts in zip(*scored, strict=True))

    return Scores(logprobs, entropy if entropies else None)


def common_prefix(ids: Tensor, mask: Tensor) -> int:
    """Tokens that all rows (rows, length) begin with, none of which the policy wrote; 0 for a
    single row, of which nothing is read twice.

    >>> ids = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 9]])
    >>> common_prefix(ids, torch.tensor([[0, 0, 1, 1], [0, 0, 0, 1]]))
    2
    """
    if len(ids) == 1:
        return 0
    # The prefix ends at the first column in which rows differ, or in which the policy wrote in one
    # of them. argmax gives the first of equal values.
    ends = ((ids != ids[:1]) | (mask > 0)).any(dim=0)  # (length,)
    return int(ends.int().argmax()) if bool(ends.any()) else 0


@torch.no_grad()
def _entropies(logprobs: Tensor) -> Tensor:
    """Entropy -sum p log p of each row of log-probabilities (tokens, vocabulary): (tokens,)."""
    # A token that is impossible has no part in it; 0 x -inf would be NaN.
    finite = logprobs.clamp(min=torch.finfo(logprobs.dtype).min)
    # In place: each of these is as large as all logits of a chunk.
    return -finite.mul_(logprobs.exp()).sum(dim=-1)


class TokenScorer(torch.nn.Module):
    """A causal LM as the scorer that :class:`ssp_agents.update.Update` takes."""

    def __init__(
        self,
        lm: Any,
        temperature: float,
        vocab_size: int,
        *,
        entropies: bool = True,
        share_prefix: bool = False,
    ) -> None:
        super().__init__()
        self.lm, self._temperature, self._vocab_size = lm, temperature, vocab_size
        self._options = {"entropies": entropies, "share_prefix": share_prefix}

    def forward(self, columns: Columns) -> Scores:
        ids, mask = columns["ids"], columns["loss_mask"]
        at, size = self._temperature, self._vocab_size
        return token_scores(self.lm, ids, mask, at, size, **self._options)


def checkpoint_layers(module: torch.nn.Module) -> None:
    """Keeps only each layer's input for the backward pass, and computes the rest again there.

    The layers alone are put in training mode, which is what `transformers` asks for; what they
    are made of stays in evaluation mode, so that no dropout comes between engine and learner.
    """
    from transformers import PreTrainedModel

    # The first one holds the others, such as the layers without the output layer.
    model = next((part for part in module.modules() if isinstance(part, PreTrainedModel)), None)
    if model is None:
        raise ValueError(f"{type(module).__name__} holds no model of transformers")
    # What transformers 5.23 calls activation checkpointing, 5.19 knows by its old name.
    newer = hasattr(model, "activation_checkpointing_enable")
    enable = model.activation_checkpointing_enable if newer else model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    for part in model.modules():
        if getattr(part, "gradient_checkpointing", False):
            part.training = True

"""What passes of the learner keep in memory: the real code, over fake tensors.

Those have sizes and no numbers, so a 32B model is counted on a laptop in seconds.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from agents.planning.live import LiveBytes
from agents.scoring import checkpoint_layers, in_chunks
from agents.sharding import layers_of

_FUSED = "ssp_counted_sdpa"


@dataclass(frozen=True)
class Size:
    """Parameters of a causal LM, and what its engine keeps of each token."""

    parameters: int
    """All of them; tied ones once."""
    layer: int
    """Those of the largest layer."""
    outside: int
    """Those that are in no layer: embedding, output layer, last norm."""
    cached: int
    """Numbers that the KV cache keeps of one token."""
    spread: int
    """Keys and values of one token in one layer, copied for each of its query heads: what a pass
    over several tokens of a row makes of the cache, layer by layer."""
    vocabulary: int
    """Logits of a token."""
    adapted: int
    """Rows and columns of all linear maps in the layers, added up: a low-rank adapter has this many
    parameters per rank."""


@dataclass(frozen=True)
class Passes:
    """Bytes that the passes over one micro-batch hold at their peak, beside weights, gradients and
    optimizer."""

    activations: int
    """What is kept for the backward pass, and what is alive for a moment."""
    copies: int
    """The weights in lower precision, which autocast keeps until the micro-batch is done."""


def size_of(config: Any) -> Size:
    """Reads a `transformers` config; no weights are needed."""
    with torch.device("meta"):
        lm = _skeleton(config, "sdpa")

    layers = layers_of(lm)
    inside = {id(p) for layer in layers for p in layer.parameters()}
    maps = [m for layer in layers for m in layer.modules() if isinstance(m, torch.nn.Linear)]
    per_layer = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    everything = sum(p.numel() for p in lm.parameters())

    return Size(
        parameters=everything,
        layer=max(per_layer),
        outside=sum(p.numel() for p in lm.parameters() if id(p) not in inside),
        cached=_cached(config),
        spread=2 * config.num_attention_heads * _head_size(config),
        vocabulary=int(config.vocab_size),
        adapted=sum(m.in_features + m.out_features for m in maps),
    )


def count_passes(
    config: Any,
    *,
    rows: int,
    length: int,
    own: int,
    autocast: torch.dtype | None,
    attention: str,
    checkpointing: bool,
    reference: bool,
    sharded: bool = False,
) -> Passes:
    """Runs the learner's forward and backward passes over one micro-batch of fake tensors.

    Args:
        config: the policy's `transformers` config.
        rows: rows of the micro-batch.
        length: tokens of each.
        own: tokens of each that the policy wrote.
        autocast: what passes are computed in; ``None`` for float32.
        attention: the implementation, by its `transformers` name.
        checkpointing: whether layers are computed again in the backward pass.
        reference: whether a frozen reference reads the rows as well.
        sharded: whether weights arrive in the precision of the passes, so that none is copied.
    """
    with FakeTensorMode():
        lm = _skeleton(config, attention, autocast if sharded else None)
        if checkpointing:
            checkpoint_layers(lm)

        # A second micro-batch finds gradients to add to; it needs the most.
        for parameter in lm.parameters():
            parameter.grad = torch.zeros_like(parameter)

        ids = torch.zeros(rows, length, dtype=torch.long)
        with LiveBytes(lm.parameters()) as live:
            logprobs = _score(lm, ids, own, autocast, entropies=True)
            if reference:
                with torch.no_grad():
                    _score(lm, ids, own, autocast, entropies=False)
            logprobs.sum().backward()  # type: ignore[no-untyped-call]

    return Passes(live.peak, live.copies)


def count_reading(config: Any, tokens: int, dtype: torch.dtype) -> int:
    """Bytes that an engine's pass over so many tokens holds at its peak, beside weights and cache.

    Args:
        config: the policy's `transformers` config.
        tokens: how many.
        dtype: what the engine computes in.
    """
    with FakeTensorMode(), torch.no_grad():
        lm = _skeleton(config, "sdpa", dtype)
        ids = torch.zeros(1, tokens, dtype=torch.long)
        with LiveBytes(lm.parameters()) as live:
            lm.base_model(input_ids=ids, use_cache=False)
    return int(live.peak)


def _score(
    lm: Any, ids: Tensor, own: int, autocast: torch.dtype | None, *, entropies: bool
) -> Tensor:
    """As ``agents/scoring.py``; the tokens to score are the last ones of each row."""
    with torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext():
        hidden = lm.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        states = hidden[:, -own:].reshape(-1, hidden.shape[-1])
        targets = ids[:, -own:].reshape(-1)
        head, size = lm.get_output_embeddings(), lm.config.vocab_size
        return in_chunks(head, states, targets, 1.0, size, entropies=entropies).logprobs


def _skeleton(config: Any, attention: str, dtype: torch.dtype | None = None) -> Any:
    """The model as it trains, its weights as the mode around it makes them."""
    from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM

    AttentionInterface.register(_FUSED, _fused_attention)
    AttentionMaskInterface.register(_FUSED, lambda *_, **__: None)

    name = _FUSED if attention == "sdpa" else attention
    lm = AutoModelForCausalLM.from_config(
        config, attn_implementation=name, dtype=dtype or torch.float32
    )
    return lm.eval()


def _fused_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, None]:
    """Attention as fused kernels have it: no mask, and no scores in memory.

    `transformers` makes a mask of (rows, 1, length, length) where it believes that it is traced,
    as it does over fake tensors."""
    out: Tensor = _Fused.apply(query, key, value)  # type: ignore[no-untyped-call]
    return out.transpose(1, 2).contiguous(), None


class _Fused(torch.autograd.Function):
    """Keeps what a flash kernel keeps: its inputs, its output, and a number per query."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, out, query.new_empty(query.shape[:3]).float())
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        query, key, value, *_ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _cached(config: Any) -> int:
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    attending = sum(kind != "conv" for kind in kinds)
    return int(2 * attending * heads * _head_size(config))


def _head_size(config: Any) -> int:
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(size)

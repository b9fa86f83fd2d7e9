"""A causal LM of `transformers` in two halves: the states that its layers give, and the logits that
its own output layer makes of them.

What a pass needs of the inside of `transformers` is in this file; the canaries in
`tests/agents/engines/test_architectures.py` name what an upgrade took away.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.masking_utils import (
    AttentionMaskInterface,
    create_causal_mask,
    eager_mask,
    sdpa_mask,
)
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.modeling_utils import PreTrainedModel

from ssp_env.errors import ModelError

CACHE = (
    "cache" if "cache" in inspect.signature(create_causal_mask).parameters else "past_key_values"
)
"""What this release of `transformers` calls a cache of keys and values: ``cache`` since 5.24."""
CACHE_NAMES = (CACHE, "cache_params")
"""What models call the cache that they are given."""
_POSITIONS: ContextVar[Tensor | None] = ContextVar("positions", default=None)
"""Positions, int64 (rows, width), of the tokens that this thread's engine has a model read."""


def states(lm: Any, ids: Tensor) -> Tensor:
    """States (rows, length, width) behind the layers of a causal LM, without a cache, from ids
    (rows, length)."""
    hidden: Tensor = _base(lm)(input_ids=ids, **_uncached(_base(lm))).last_hidden_state
    return hidden


def keeps_every_token(lm: Any) -> bool:
    """True where the library's cache for a causal LM has keys and values of every token in each
    layer. Whether the model keeps nothing else of a text, a comparison tells."""
    layers = DynamicCache(config=lm.config).layers
    takes = CACHE in _arguments(_base(lm).__class__)
    return takes and bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


def states_after_prefix(lm: Any, ids: Tensor, prefix: int) -> Tensor:
    """States (rows, length - prefix + 1, width) from the last token of a common prefix on, the
    first ``prefix`` ids of all rows (rows, length), which is read once. Gradients are those of
    :func:`states`, up to rounding, where :func:`ssp_agents.architecture.can_share_prefix` says so.

    >>> import torch, transformers as t
    >>> lm = t.LlamaForCausalLM(t.LlamaConfig(
    ...     vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    ...     num_attention_heads=1, num_key_value_heads=1)).eval()
    >>> ids = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 6, 7]])
    >>> torch.allclose(states_after_prefix(lm, ids, 3), states(lm, ids)[:, 2:], atol=1e-6)
    True
    """
    layers, rows = _base(lm), len(ids)
    # Read by one row, whose keys and values are then repeated: their gradients add up over rows.
    kept = DynamicCache(config=lm.config)
    given = {CACHE: kept, "use_cache": True}
    first = layers(input_ids=ids[:1, :prefix], **given)
    kept.batch_repeat_interleave(rows)
    # (rows, length - prefix, width), behind the prefix's last state, (rows, 1, width).
    rest = layers(input_ids=ids[:, prefix:], **given)
    last = first.last_hidden_state[:, -1:].expand(rows, -1, -1)
    return torch.cat([last, rest.last_hidden_state], dim=1)


def is_eager(lm: Any) -> bool:
    """True if a causal LM computes attention step by step, without a fused kernel."""
    return bool(lm.config._attn_implementation == "eager")


def plain_logits(lm: Any, ids: Tensor) -> Tensor:
    """Logits (rows, length, vocabulary) by a causal LM's own forward pass, without a cache."""
    made: Tensor = lm(input_ids=ids, **_uncached(lm)).logits
    return made


def head_logits(lm: Any, hidden: Tensor) -> Tensor:
    """Logits (tokens, vocabulary) of some states (tokens, width), by the model's own forward pass:
    with whatever it does behind its layers, be it a transform, a scale or a softcap.

    In that pass, the given states stand in for what the layers would compute. It may be called as
    part of any other pass, and again when that is computed anew for the backward pass.

    >>> import torch, transformers as t
    >>> lm = t.GraniteForCausalLM(t.GraniteConfig(
    ...     vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    ...     num_attention_heads=1, num_key_value_heads=1, logits_scaling=4.0)).eval()
    >>> ids = torch.tensor([[1, 2, 3]])
    >>> torch.equal(head_logits(lm, states(lm, ids)[0]), lm(ids).logits[0])
    True
    """
    layers, name = lm._modules, _name_of_base(lm)
    original = layers[name]
    layers[name] = _Given(original, hidden[None])
    try:
        # Ids (1, tokens) of no meaning: what stands for the layers does not read them.
        nothing = torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device)
        made: Tensor = lm(input_ids=nothing).logits
    finally:
        layers[name] = original
    return made[0]


def _base(lm: Any) -> Any:
    """The layers of a causal LM, without its output layer."""
    return lm._modules[_name_of_base(lm)]


def _name_of_base(lm: Any) -> str:
    if (name := lm.base_model_prefix) in lm._modules:
        return str(name)
    inner = [name for name, part in lm.named_children() if isinstance(part, PreTrainedModel)]
    if len(inner) != 1:
        what = f"{type(lm).__name__} does not keep its layers apart from its output layer"
        raise ModelError(f"{what}: neither engine nor learner can take its states")
    return str(inner[0])


class _Given:
    """Stands for a model's layers, and for a decoder inside of them that it may call itself; it
    gives the same states whatever it is called with."""

    def __init__(self, original: Any, hidden: Tensor) -> None:
        self._original, self._hidden = original, hidden

    def __call__(self, *_: Any, **__: Any) -> BaseModelOutputWithPast:
        return _Output(last_hidden_state=self._hidden)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._original, name)
        return self if isinstance(value, PreTrainedModel) else value


class _Output(BaseModelOutputWithPast):  # type: ignore[misc]
    """Output of layers of which nothing is known but the states."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


# -- passes with a cache -----------------------------------------------------------------------


def cached_states(lm: Any, ids: Tensor, positions: Tensor | None, kept: Any) -> Tensor:
    """States (rows, width, size) of ids (rows, width) at their own positions (rows, width), which
    may differ between rows, behind what the cache ``kept`` has of them. Without positions, a model
    counts them itself, for all rows alike.

    The model's own masks decide what a token sees: of the columns of the cache, which are
    positions, those that its windows and chunks let it look at."""
    layers = _base(lm)
    takes = _arguments(layers.__class__)
    name = next((name for name in (*CACHE_NAMES, "kwargs") if name in takes), None)
    if name is None:
        raise ModelError(f"{type(lm).__name__} takes no cache")
    name = CACHE if name == "kwargs" else name  # a wrapper hands all on
    given: dict[str, Any] = {name: kept}
    if "use_cache" in takes:
        given["use_cache"] = True
    if "position_ids" in takes and positions is not None:
        given["position_ids"] = positions
    with _masks_by(positions):
        hidden: Tensor = layers(input_ids=ids, **given).last_hidden_state
        return hidden


def _uncached(model: Any) -> dict[str, bool]:
    return {"use_cache": False} if "use_cache" in _arguments(model.__class__) else {}


@cache
def _arguments(model: Hashable) -> frozenset[str]:
    """Names of what a model of this class can be given."""
    return frozenset(inspect.signature(model.forward).parameters)  # type: ignore[attr-defined]


@contextmanager
def _masks_by(positions: Tensor | None) -> Iterator[None]:
    """Context in which models make masks for tokens at these positions."""
    token = _POSITIONS.set(positions)
    try:
        yield
    finally:
        _POSITIONS.reset(token)


def _mask(original: Callable[..., Any], **arguments: Any) -> Any:
    """The mask that ``original``, of `transformers`, makes; within :func:`cached_states`, one
    (rows, 1, width, columns) by the positions of each row."""
    positions = _POSITIONS.get()
    if positions is None or positions.shape != (arguments["batch_size"], arguments["q_length"]):
        return original(**arguments)

    # Query j of row i is at positions[i, j], and column k of the cache at position k.
    rows = torch.arange(len(positions), device=positions.device)[:, None, None, None]
    heads = rows.new_zeros(1, 1, 1, 1)
    columns = torch.arange(arguments["kv_length"], device=positions.device) + arguments["kv_offset"]
    sees = arguments["mask_function"]
    # All four broadcast to (rows, 1, width, columns); heads see the same.
    visible = sees(rows, heads, positions[:, None, :, None], columns[None, None, None, :])
    visible = visible.expand(len(rows), 1, positions.shape[1], len(columns))
    if original is sdpa_mask:
        return visible

    # Eager attention adds its mask to the scores: 0 for what is seen, else the least number.
    mask = torch.zeros(visible.shape, dtype=arguments["dtype"], device=positions.device)
    return mask.masked_fill_(~visible, torch.finfo(arguments["dtype"]).min)


# Outside of an engine's pass, these do what the originals do.
for _name, _original in (("eager", eager_mask), ("sdpa", sdpa_mask)):
    AttentionMaskInterface.register(_name, partial(_mask, _original))

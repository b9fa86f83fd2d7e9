"""Sampling from a causal LM of `transformers`, with a KV cache across a trajectory's turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.engines.base import Generation, Request, StopRule
from agents.engines.ragged_cache import RaggedCache
from ssp_env.errors import ModelError, UsageError
from ssp_env.tokenizers.base import Tokenizer

SERVED_LAYERS = frozenset({"full_attention", "conv"})
"""Layer types that the cache can hold; others, such as sliding windows, would be silently wrong."""
_LOGIT_SETTINGS = ("logits_scaling", "logit_scale", "final_logit_softcapping", "lm_head_multiplier")
"""Settings by which some architectures change the logits after the output layer."""
_COMPACT_BELOW = 0.6


class TransformersEngine:
    """Lock-step batched sampling: all requests of a call are decoded together.

    The cache holds the sequences of the last call. A request whose key was part of it, and whose
    tokens go on from there, is continued; any other is computed from its first token. Rows that
    have stopped are dropped from the decoding batch once they are many, so that one long turn does
    not cost the whole batch."""

    def __init__(self, model: Any, tokenizer: Tokenizer, stop: StopRule) -> None:
        """
        Args:
            model: a `transformers` causal LM, in evaluation mode, on its device.
            tokenizer: for the bytes behind ids, where closing tags have several tokens.
            stop: where turns end.

        Raises:
            ModelError: an architecture whose state the cache cannot keep, or a vocabulary smaller
                than the tokenizer's.
        """
        check_architecture(model)
        known = model.get_input_embeddings().num_embeddings
        if known < tokenizer.vocab_size:
            raise ModelError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the model only {known}: "
                f"resize its embeddings"
            )

        self.model, self.weights_version = model, 0
        self._tokenizer, self._stop = tokenizer, stop
        self._device = next(model.parameters()).device
        self._mapping = "conv" in (getattr(model.config, "layer_types", None) or ())
        self._forget()

    def update_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Takes a state dict of the whole model; see :class:`~agents.engines.base.Engine`."""
        # Arrays that come from Ray's object store are read-only.
        writable = {
            n: v if isinstance(v, Tensor) else np.require(v, requirements="W")
            for n, v in state.items()
        }
        self.model.load_state_dict(
            {name: torch.as_tensor(value) for name, value in writable.items()}
        )
        self.weights_version = version
        self._forget()

    @torch.inference_mode()
    def generate(
        self, requests: Sequence[Request], *, temperature: float, generator: torch.Generator
    ) -> list[Generation]:
        """See :class:`~agents.engines.base.Engine`.

        Raises:
            UsageError: two requests have the same key.
        """
        if not requests:
            return []

        try:
            return self._generate(requests, temperature, _on(self._device, generator))
        except BaseException:
            # A cache that was left in the middle of a step would continue rows wrongly, and
            # silently.
            self._forget()
            raise

    def _generate(
        self, requests: Sequence[Request], temperature: float, generator: torch.Generator
    ) -> list[Generation]:
        turns = [_Turn(request, self._stop, self._tokenizer) for request in requests]
        logits = self._read(requests)
        cache = self._cache
        rows = torch.arange(len(requests), device=self._device)
        live = turns

        while True:
            tokens, logprobs = _sample(logits, temperature, generator)
            pairs = zip(live, tokens.tolist(), logprobs.tolist(), strict=True)
            going = torch.tensor(
                [turn.take(token, logprob) for turn, token, logprob in pairs], device=self._device
            )
            if not bool(going.any()):
                break

            if float(going.float().mean()) < _COMPACT_BELOW:
                if cache is not self._cache:
                    self._cache.put_back(rows, cache)

                rows, tokens, going = rows[going], tokens[going], going[going]
                live = [turn for turn in live if not turn.stopped]
                cache = self._cache.select(rows)

            logits = self._forward(cache, tokens[:, None], going.long())

        if cache is not self._cache:
            self._cache.put_back(rows, cache)

        for request, turn in zip(requests, turns, strict=True):
            # The last sampled token was never fed: it belongs to the next call's prefill.
            self._seen[request.key] = [*request.ids, *turn.ids[:-1]]

        return [Generation(turn.ids, turn.logprobs) for turn in turns]

    def _forget(self) -> None:
        self._cache = RaggedCache(0, self._device)
        self._rows: dict[int, int] = {}
        self._seen: dict[int, list[int]] = {}

    def _read(self, requests: Sequence[Request]) -> Tensor:
        """Makes the cache hold exactly the requested rows, in order.

        Attempts at one question often begin alike, down to what their searches found. Equal
        sequences are fed once and their rows copied.

        Returns:
            Logits (rows, vocabulary) at the last token of each request.
        """
        self._drop_changed(requests)
        owners: dict[tuple[int, ...], int] = {}
        owner = [owners.setdefault(tuple(request.ids), len(owners)) for request in requests]
        distinct = [requests[owner.index(i)] for i in range(len(owners))]
        old = [self._rows.get(request.key, -1) for request in distinct]

        if not self._rows:
            self._cache = RaggedCache(len(distinct), self._device)
        elif old != list(range(len(self._cache.lengths))):
            self._cache = self._cache.select(torch.tensor(old, device=self._device))

        logits = self._prefill(distinct)
        if len(distinct) < len(requests):
            copies = torch.tensor(owner, device=self._device)
            self._cache, logits = self._cache.select(copies), logits[copies]

        self._rows = {request.key: row for row, request in enumerate(requests)}
        self._seen = {}

        return logits

    def _drop_changed(self, requests: Sequence[Request]) -> None:
        """Forgets rows whose tokens do not go on from what they were."""
        if len({request.key for request in requests}) != len(requests):
            raise UsageError("two requests of one call have the same key")

        for request in requests:
            seen = self._seen.get(request.key, [])
            if len(request.ids) <= len(seen) or list(request.ids[: len(seen)]) != seen:
                self._rows.pop(request.key, None)
                self._seen.pop(request.key, None)

    def _prefill(self, requests: Sequence[Request]) -> Tensor:
        """Feeds the new tokens of each request; returns logits (rows, vocabulary) at the last."""
        new = [request.ids[len(self._seen.get(request.key, ())) :] for request in requests]
        lengths = torch.tensor([len(ids) for ids in new], device=self._device)
        width = int(lengths.max())
        padded = torch.zeros(len(new), width, dtype=torch.long)
        for row, ids in enumerate(new):
            padded[row, : len(ids)] = torch.tensor(ids, dtype=torch.long)

        return self._forward(self._cache, padded.to(self._device), lengths)

    def _forward(self, cache: RaggedCache, ids: Tensor, new: Tensor) -> Tensor:
        positions, visible = cache.expect(new, ids.shape[1])
        dtype = self.model.dtype
        mask: Any = torch.zeros(visible.shape, dtype=dtype, device=self._device)
        mask.masked_fill_(~visible, torch.finfo(dtype).min)
        if self._mapping:
            mask = {"full_attention": mask, "conv": None}

        hidden = self.model.base_model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache
        ).last_hidden_state
        cache.commit()
        last = hidden[torch.arange(len(ids), device=self._device), (new - 1).clamp(min=0)]
        logits: Tensor = self.model.get_output_embeddings()(last)

        # Some models have more logits than the tokenizer has tokens.
        return logits.float()[:, : self._tokenizer.vocab_size]


class _Turn:
    """One request's sampled tokens, and whether they have come to an end."""

    def __init__(self, request: Request, stop: StopRule, tokenizer: Tokenizer) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.stopped = False
        self._room, self._stop, self._tokenizer = request.max_new_tokens, stop, tokenizer
        self._reach = max(map(len, stop.strings), default=1) - 1
        # A tag may have begun in an earlier generation of the same turn.
        before = (
            b"".join(tokenizer.pieces[i] for i in request.ids[-self._reach :])
            if self._reach
            else b""
        )
        self._tail = before[-self._reach :]

    def take(self, token: int, logprob: float) -> bool:
        """Notes a token, unless the turn is over; true while it goes on."""
        if self.stopped:
            return False

        self.ids.append(token)
        self.logprobs.append(logprob)
        self.stopped = (
            len(self.ids) >= self._room or token in self._stop.token_ids or self._spelled(token)
        )

        return not self.stopped

    def _spelled(self, token: int) -> bool:
        if not self._stop.strings:
            return False

        before, text = len(self._tail), self._tail + self._tokenizer.pieces[token]
        self._tail = text[-self._reach :] if self._reach else b""

        # Only what this token completes counts.
        return any(
            text.find(string, max(0, before - len(string) + 1)) >= 0
            for string in self._stop.strings
        )


def _on(device: torch.device, generator: torch.Generator) -> torch.Generator:
    """The generator itself, or, where it lives on another device, one that is seeded from it."""
    if generator.device.type == device.type:
        return generator
    seed = int(torch.randint(1 << 62, (), generator=generator, device=generator.device))
    return torch.Generator(device).manual_seed(seed)


def _sample(
    logits: Tensor, temperature: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Tokens (rows,) and their log-probabilities (rows,) from logits (rows, vocabulary)."""
    if temperature > 0:
        logits = logits / temperature

    logprobs = torch.log_softmax(logits, dim=-1)

    if temperature > 0:
        tokens = torch.multinomial(logprobs.exp(), 1, generator=generator).squeeze(1)
    else:
        tokens = logprobs.argmax(dim=-1)

    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)


def check_architecture(model: Any) -> None:
    """Checks that every layer's state can be cached, and that the output layer gives the logits.

    Raises:
        ModelError: names the layer type, or the setting, that cannot be served.
    """
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or _implied_layers(model))
    unserved = sorted(kinds - SERVED_LAYERS)

    if unserved or getattr(config, "is_encoder_decoder", False):
        what = ", ".join(unserved) or "an encoder"
        raise ModelError(
            f"the transformers engine cannot keep the state of {config.model_type} ({what}); "
            f"it serves decoder-only models whose layers are {' or '.join(sorted(SERVED_LAYERS))}"
        )

    for name in _LOGIT_SETTINGS:
        if getattr(config, name, None) not in (None, 1.0):
            raise ModelError(
                f"the transformers engine cannot serve {config.model_type} with {name} = "
                f"{getattr(config, name)}: "
                "it takes logits from the output layer as they are"
            )


def _implied_layers(model: Any) -> list[str]:
    """What the layers of a model are whose config does not say it."""
    if getattr(model, "_is_stateful", False):
        return ["recurrent"]

    return [
        "full_attention"
        if getattr(model.config, "sliding_window", None) is None
        else "sliding_attention"
    ]

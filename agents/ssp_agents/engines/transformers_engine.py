"""Sampling from a causal LM of `transformers`, with a KV cache across a trajectory's turns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ssp_agents.engines.base import Generation, Request, StopRule, Turn
from ssp_agents.engines.ragged_cache import RaggedCache
from ssp_agents.engines.reading import Beginnings, Piece, passes, pieces
from ssp_agents.engines.sampling import sample
from ssp_agents.models import load_state
from ssp_env.errors import ModelError, ServiceError, UsageError
from ssp_env.tokenizers.base import Tokenizer

SERVED_LAYERS = frozenset({"full_attention", "conv"})
"""Layer types that the cache can hold; others, such as sliding windows, would be silently wrong."""
_LOGIT_SETTINGS = ("logits_scaling", "logit_scale", "final_logit_softcapping", "lm_head_multiplier")
"""Settings by which some architectures change the logits after the output layer."""
_COMPACT_BELOW = 0.6
"""Share of rows that still go on, below which those that have stopped leave the batch."""
_JOIN_FROM = 0.5
"""Waiting requests per running one, from which on they are let in: each entry costs a pass of its
own, and a copy of the cache."""
_PASS_COSTS = {"cpu": 64, "cuda": 1024}
"""Tokens that could be read in the time that a pass of the model takes beside its tokens."""
_WORTH_A_COPY = 16
"""Tokens that another row has to have in common, beyond what a turn has itself, to be copied."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Cache of a turn that is over."""

    cache: RaggedCache
    row: int
    seen: list[int]
    """The tokens that the row has read."""


class TransformersEngine:
    """Continuous batching: rows join the running batch, and leave it when their turn is over.

    A request whose key has been here before, and whose tokens go on from there, is continued. Any
    other goes on from what it has in common with another row, if there is one. The random numbers
    of a row are its request's own.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, stop: StopRule) -> None:
        """``model`` is a `transformers` causal LM, in evaluation mode, on its device; the tokenizer
        gives the bytes behind ids, where closing tags have several tokens."""
        check_architecture(model)
        known, tokens = model.get_input_embeddings().num_embeddings, tokenizer.vocab_size
        if known < tokens:
            what = f"the tokenizer has {tokens} tokens, the model only {known}"
            raise ModelError(f"{what}: resize its embeddings")

        self.model, self.weights_version = model, 0
        self._tokenizer, self._stop = tokenizer, stop
        self._device = next(model.parameters()).device
        self._mapping = "conv" in (getattr(model.config, "layer_types", None) or ())
        # Eager attention is there for the bits of published results: all is read in one pass.
        self._at_once = model.config._attn_implementation == "eager"
        self._most_rows: int | None = None
        self._tried = 0
        self._forget()

    @property
    def running(self) -> int:
        return len(self._turns)

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.key in self._turns:
                raise UsageError("two requests that run at once have the same key")
            turn = Turn(request, self._stop, self._tokenizer)
            self._turns[turn.key] = self._waiting[turn.key] = turn

    def release(self, keys: Iterable[int]) -> None:
        for key in keys:
            self._kept.pop(key, None)
            self._waiting.pop(key, None)
            turn = self._turns.pop(key, None)
            if turn is not None:
                turn.stopped = True  # its row idles until the batch is made anew

    def update_weights(self, state: Mapping[str, Any], version: int) -> None:
        if self._turns:
            raise UsageError(f"{len(self._turns)} requests still run with the old weights")

        load_state(self.model, state)
        self.weights_version = version
        self._forget()

    def sleep(self) -> None:
        """Drops what was computed; the weights stay where they are."""
        self._forget()
        torch.cuda.empty_cache()  # does nothing without a GPU

    def wake(self) -> None:
        """Does nothing: the weights never left."""

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Generation]]:
        """One pass of the model: over the requests that join, or one token for all that run.

        Where memory runs out, fewer rows run side by side from then on, to the same tokens.
        """
        try:
            live = len(self._live())
            full = self._most_rows is not None and live >= self._most_rows
            joins = bool(self._waiting) and not full and len(self._waiting) >= _JOIN_FROM * live
            turns = self._join() if joins else self._go_on()
        except BaseException as error:
            unfinished = self._turns
            self._forget()  # a half-written cache would continue rows wrongly, and silently
            if not _is_out_of_memory(error):
                raise
            self._halve(unfinished, error)
            return []

        for turn in turns:
            del self._turns[turn.key]
        return [(turn.key, turn.generation) for turn in turns]

    # -- which rows run ------------------------------------------------------------------------

    def _forget(self) -> None:
        self._turns: dict[int, Turn] = {}
        self._waiting: dict[int, Turn] = {}
        self._kept: dict[int, _Kept] = {}
        self._rows: list[Turn] = []
        self._cache = RaggedCache(0, self._device)

    def _live(self) -> list[int]:
        """The rows of the batch whose turns go on."""
        return [row for row, turn in enumerate(self._rows) if not turn.stopped]

    def _join(self) -> list[Turn]:
        """Lets waiting requests in and samples a token for each; returns those that it finished."""
        live = self._live()
        room = len(self._waiting) if self._most_rows is None else self._most_rows - len(live)
        joining = list(self._waiting.values())[:room]
        self._tried = len(live) + len(joining)
        parts, logits, joined = self._read(joining)
        for turn in joined:
            del self._waiting[turn.key]
            self._kept.pop(turn.key, None)

        first = len(live)
        self._set_apart()
        if live:
            parts = [(self._cache, live), *parts]
        cache, rows = parts[0]
        if len(parts) > 1 or rows != [*range(len(cache.lengths))]:
            spent = [part for part, _ in parts]
            whole = [(part, self._tensor(rows)) for part, rows in parts]
            cache = RaggedCache.gathered(whole, spent=spent)
        self._rows, self._cache = [self._rows[row] for row in live] + joined, cache
        return self._take(first, *sample(logits, joined))

    def _go_on(self) -> list[Turn]:
        """One more token for each row that runs; returns those that it has finished."""
        live = self._live()
        if not live:
            return []
        if len(live) < _COMPACT_BELOW * len(self._rows):
            self._set_apart()
            self._cache = self._cache.select(self._tensor(live), spent=True)
            self._rows = [self._rows[i] for i in live]

        self._tried = len(self._rows)
        last = self._tensor([turn.ids[-1] for turn in self._rows])
        going = self._tensor([not turn.stopped for turn in self._rows])
        logits = self._forward(self._cache, last[:, None], going)  # (rows, vocabulary)
        return self._take(0, *sample(logits, self._rows))

    def _set_apart(self) -> None:
        """Gives what is kept a cache of its own, so that it holds no batch in memory.

        All caches together then have a row per trajectory, and twice as many while rows join."""
        shared: dict[int, list[tuple[int, _Kept]]] = {}
        for key, kept in self._kept.items():
            shared.setdefault(id(kept.cache), []).append((key, kept))

        for part in shared.values():
            cache = part[0][1].cache
            if len(part) == len(cache.lengths) and cache is not self._cache:
                continue
            own = cache.select(self._tensor([kept.row for _, kept in part]))
            for row, (key, kept) in enumerate(part):
                self._kept[key] = _Kept(own, row, kept.seen)

    def _take(self, first: int, tokens: Tensor, logprobs: Tensor) -> list[Turn]:
        """Hands the rows from ``first`` on their tokens; returns the turns that these finish."""
        values: list[float] = logprobs.tolist()
        if math.isnan(sum(values)):
            what = f"the weights (version {self.weights_version}) give logits that are no numbers"
            raise ServiceError("engine", what)

        finished = []
        for row, (token, value) in enumerate(zip(tokens.tolist(), values, strict=True), first):
            turn = self._rows[row]
            if turn.stopped:
                continue
            if turn.take(token, value):
                continue  # it goes on

            # The last token was never read: it belongs to the next turn's prefill.
            self._kept[turn.key] = _Kept(self._cache, row, turn.read[:-1])
            finished.append(turn)
        return finished

    def _halve(self, turns: dict[int, Turn], error: BaseException) -> None:
        """Starts requests again where they are, half as many side by side."""
        torch.cuda.empty_cache()
        if self._tried <= 1:
            longest = max(len(turn.read) for turn in turns.values())
            what = f"the engine has no memory for a sequence of up to {longest} tokens, even alone"
            fix = "lower game.max_prompt_tokens and game.max_response_tokens"
            raise ModelError(f"{what}: {fix} ({error or type(error).__name__})") from error

        self._most_rows = self._tried // 2
        self._turns, self._waiting = turns, dict(turns)

    # -- what the model computes ---------------------------------------------------------------

    def _read(
        self, joining: Sequence[Turn]
    ) -> tuple[list[tuple[RaggedCache, list[int]]], Tensor, list[Turn]]:
        """Computes what the model has not yet read of these turns.

        Returns caches and which rows of each go on; and, in the order of these rows, logits (rows,
        vocabulary) at the last token of each, and turns.

        Attempts at one question often begin alike, down to what their searches found. Common
        beginnings are computed once and their rows copied.
        """
        equal: dict[tuple[int, ...], list[Turn]] = {}
        for turn in joining:
            equal.setdefault(tuple(turn.read), []).append(turn)

        known = self._known(equal)
        sizes = {ids: len(kept.seen) for ids, kept in known.items()}
        if self._at_once:
            groups = [[Piece(ids, size, len(ids)) for ids, size in sizes.items()]]
        else:
            cost = _PASS_COSTS.get(self._device.type, _PASS_COSTS["cuda"])
            groups = passes(pieces(sizes, cost), cost)

        read: dict[Piece, _Kept] = {}
        parts, logits, turns = [], [], []
        for group in groups:
            before = [
                known[piece.ids] if piece.behind is None else read[piece.behind] for piece in group
            ]
            cache, order, found = self._feed(group, before)
            copies = []
            for row, piece in enumerate(order):
                if piece.end < len(piece.ids):
                    read[piece] = _Kept(cache, row, [*piece.ids[: piece.end]])
                    continue
                copies += [row] * len(equal[piece.ids])
                turns += equal[piece.ids]
            if copies:
                parts.append((cache, copies))
                logits.append(found[self._tensor(copies)])
        return parts, torch.cat(logits), turns

    def _known(
        self, sequences: Mapping[tuple[int, ...], Sequence[Turn]]
    ) -> dict[tuple[int, ...], _Kept]:
        """What has been computed of each sequence: under the key of one of its turns, or under
        another one that begins alike for longer."""
        fresh = _Kept(RaggedCache(1, self._device), 0, [])
        known = {}
        for ids, turns in sequences.items():
            own = (self._kept[turn.key] for turn in turns if turn.key in self._kept)
            fits = (kept for kept in own if ids[: len(kept.seen)] == (*kept.seen,))
            known[ids] = next((kept for kept in fits if len(kept.seen) < len(ids)), fresh)
        if self._at_once:
            return known

        others = [_Kept(self._cache, row, self._rows[row].read[:-1]) for row in self._live()]
        others = [kept for kept in (*self._kept.values(), *others) if kept.cache.can_be_cut]
        beginnings = Beginnings([kept.seen for kept in others])
        for ids, kept in known.items():
            number, size = beginnings.closest(ids)
            size = min(size, len(ids) - 1)  # logits are those at a token that is read now
            if size >= len(kept.seen) + _WORTH_A_COPY:
                other = others[number]
                known[ids] = _Kept(other.cache, other.row, other.seen[:size])
        return known

    def _feed(
        self, group: Sequence[Piece], before: Sequence[_Kept]
    ) -> tuple[RaggedCache, list[Piece], Tensor]:
        """One pass over pieces, each behind what is kept: a cache of their rows, the pieces in the
        order of the rows, and logits (rows, vocabulary) at the last token of each."""
        # Rows that come from one cache are copied together.
        places: dict[int, list[tuple[_Kept, Piece]]] = {}
        for kept, piece in zip(before, group, strict=True):
            places.setdefault(id(kept.cache), []).append((kept, piece))
        rows = [place for part in places.values() for place in part]
        width = max(piece.width for piece in group)
        cache = RaggedCache.gathered(
            [
                (part[0][0].cache, self._tensor([kept.row for kept, _ in part]))
                for part in places.values()
            ],
            room=width,
        )
        # A row may be kept for longer than what is common.
        cache.lengths = self._tensor([piece.start for _, piece in rows])

        padded = torch.zeros(len(rows), width, dtype=torch.long)
        for row, (_, piece) in enumerate(rows):
            fed = piece.ids[piece.start : piece.end]
            padded[row, : len(fed)] = torch.tensor(fed, dtype=torch.long)
        lengths = self._tensor([piece.width for _, piece in rows])
        logits = self._forward(cache, padded.to(self._device), lengths)
        return cache, [piece for _, piece in rows], logits

    def _forward(self, cache: RaggedCache, ids: Tensor, new: Tensor) -> Tensor:
        # ids: (rows, width), of which row i has new[i] real ones; logits at the last of these.
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
        return logits[:, : self._tokenizer.vocab_size]

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._device)


def _is_out_of_memory(error: BaseException) -> bool:
    """True if an allocation failed: on a GPU, on the CPU (which has no type for it), or in C++."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    texts = ("can't allocate memory", "std::bad_alloc")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)


def check_architecture(model: Any) -> None:
    """Checks that every layer's state can be cached, and that the output layer gives the logits."""
    config = model.config
    # Configs without the list have layers of one kind.
    implied = "recurrent" if getattr(model, "_is_stateful", False) else "full_attention"
    if getattr(config, "sliding_window", None) is not None and implied != "recurrent":
        implied = "sliding_attention"
    kinds = set(getattr(config, "layer_types", None) or [implied])
    unserved = sorted(kinds - SERVED_LAYERS)

    if unserved or getattr(config, "is_encoder_decoder", False):
        what = ", ".join(unserved) or "an encoder"
        raise ModelError(
            f"the transformers engine cannot keep the state of {config.model_type} ({what}); "
            f"it serves decoder-only models whose layers are {' or '.join(sorted(SERVED_LAYERS))}"
        )

    for name in _LOGIT_SETTINGS:
        if (value := getattr(config, name, None)) not in (None, 1.0):
            what = f"the transformers engine cannot serve {config.model_type} with {name} = {value}"
            raise ModelError(f"{what}: it takes logits from the output layer as they are")

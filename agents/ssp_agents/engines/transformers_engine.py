"""Sampling from a causal LM of `transformers`, with a KV cache across a trajectory's turns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ssp_agents.engines.base import Generation, Request, StopRule, Turn
from ssp_agents.engines.passes import Kept, Passes, is_out_of_memory
from ssp_agents.engines.ragged_cache import RaggedCache
from ssp_agents.engines.reading import Beginnings
from ssp_agents.engines.sampling import sample
from ssp_agents.models import load_state
from ssp_env.errors import ModelError, ServiceError, UsageError
from ssp_env.tokenizers.base import Tokenizer

_COMPACT_BELOW = 0.6
"""Share of rows that still go on, below which those that have stopped leave the batch."""
_JOIN_FROM = 0.5
"""Waiting requests per running one, from which on they are let in: each entry costs a pass of its
own, and a copy of the cache."""
_WORTH_A_COPY = 16
"""Tokens that another row has to have in common, beyond what a turn has itself, to be copied."""


class TransformersEngine:
    """Continuous batching: rows join the running batch, and leave it when their turn is over.

    A request whose key has been here before, and whose tokens go on from there, is continued. Any
    other goes on from what it has in common with another row, if there is one. The random numbers
    of a row are its request's own.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, stop: StopRule) -> None:
        """``model`` is a `transformers` causal LM, in evaluation mode, on its device; the tokenizer
        gives the bytes behind ids, where closing tags have several tokens."""
        known, tokens = model.get_input_embeddings().num_embeddings, tokenizer.vocab_size
        if known < tokens:
            what = f"the tokenizer has {tokens} tokens, the model only {known}"
            raise ModelError(f"{what}: resize its embeddings")

        self.model, self.weights_version = model, 0
        self._tokenizer, self._stop = tokenizer, stop
        self._device = next(model.parameters()).device
        self.passes = Passes(model, tokenizer.vocab_size)
        # Rows that may run side by side, set when memory has run out, and rows of the latest pass,
        # which is what did not fit then.
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
            # Requests join where there is room, and as soon as they are many beside those that run.
            live = len(self._live())
            full = self._most_rows is not None and live >= self._most_rows
            joins = bool(self._waiting) and not full and len(self._waiting) >= _JOIN_FROM * live
            turns = self._join() if joins else self._go_on()
        except BaseException as error:
            unfinished = self._turns
            self._forget()  # a half-written cache would continue rows wrongly, and silently
            if not is_out_of_memory(error):
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
        self._kept: dict[int, Kept] = {}
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

        # Rows that run come first and those that join behind them. What is kept of ended turns
        # leaves the old batch before that is taken apart.
        first = len(live)
        self._set_apart()
        if live:
            parts = [(self._cache, live), *parts]
        cache, rows = parts[0]
        # A single cache whose rows all go on, in its order, is the batch as it is.
        if len(parts) > 1 or rows != [*range(len(cache.lengths))]:
            spent = [part for part, _ in parts]
            whole = [(part, self.passes.tensor(rows)) for part, rows in parts]
            cache = RaggedCache.gathered(whole, spent=spent)
        self._rows, self._cache = [self._rows[row] for row in live] + joined, cache
        return self._record(first, *sample(logits, joined))

    def _go_on(self) -> list[Turn]:
        """One more token for each row that runs; returns those that it has finished."""
        live = self._live()
        if not live:
            return []
        if len(live) < _COMPACT_BELOW * len(self._rows):
            self._set_apart()
            self._cache = self._cache.select(self.passes.tensor(live), spent=True)
            self._rows = [self._rows[i] for i in live]

        self._tried = len(self._rows)
        last = self.passes.tensor([turn.ids[-1] for turn in self._rows])
        # 1 for a row that goes on, 0 for one that idles.
        going = self.passes.tensor([not turn.stopped for turn in self._rows])
        logits = self.passes.forward(self._cache, last[:, None], going)  # (rows, vocabulary)
        return self._record(0, *sample(logits, self._rows))

    def _set_apart(self) -> None:
        """Gives what is kept a cache of its own, so that it holds no batch in memory.

        All caches together then have a row per trajectory, and twice as many while rows join."""
        shared: dict[int, list[tuple[int, Kept]]] = {}
        for key, kept in self._kept.items():
            shared.setdefault(id(kept.cache), []).append((key, kept))

        for part in shared.values():
            cache = part[0][1].cache
            # A cache apart from the batch, of which every row is kept, stays as it is.
            if len(part) == len(cache.lengths) and cache is not self._cache:
                continue
            copy = cache.select(self.passes.tensor([kept.row for _, kept in part]))
            for row, (key, kept) in enumerate(part):
                self._kept[key] = Kept(copy, row, kept.seen)

    def _record(self, first: int, tokens: Tensor, logprobs: Tensor) -> list[Turn]:
        """Hands the rows from ``first`` on their tokens; returns the turns that these finish."""
        values: list[float] = logprobs.tolist()
        if math.isnan(sum(values)):
            what = f"the weights (version {self.weights_version}) give logits that are no numbers"
            raise ServiceError("engine", what)

        finished = []
        for row, (token, value) in enumerate(zip(tokens.tolist(), values, strict=True), first):
            turn = self._rows[row]
            # It idles in the batch, so what was drawn for it is nobody's.
            if turn.stopped:
                continue
            if turn.take(token, value):
                continue  # it goes on

            # The last token was never read: it belongs to the next turn's prefill.
            self._kept[turn.key] = Kept(self._cache, row, turn.read[:-1])
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

        # What was sampled stays: turns wait with their tokens, and are read anew.
        self._most_rows = self._tried // 2
        self._turns, self._waiting = turns, dict(turns)

    # -- what is read --------------------------------------------------------------------------

    def _read(
        self, joining: Sequence[Turn]
    ) -> tuple[list[tuple[RaggedCache, list[int]]], Tensor, list[Turn]]:
        """Computes what the model has not yet read of these turns.

        Returns caches and which rows of each go on; and, in the order of these rows, logits (rows,
        vocabulary) at the last token of each, and turns. Equal sequences are read once.
        """
        equal: dict[tuple[int, ...], list[Turn]] = {}
        for turn in joining:
            equal.setdefault(tuple(turn.read), []).append(turn)

        parts, logits, turns = [], [], []
        for read in self.passes.read(self._known(equal)):
            counts = [len(equal[ids]) for ids in read.sequences]
            rows = [row for row, n in zip(read.rows, counts, strict=True) for _ in range(n)]
            parts.append((read.cache, rows))
            # (sequences, vocabulary) -> (turns, vocabulary): equal turns share their logits.
            logits.append(read.logits.repeat_interleave(self.passes.tensor(counts), dim=0))
            turns += [turn for ids in read.sequences for turn in equal[ids]]
        return parts, torch.cat(logits), turns

    def _known(
        self, sequences: Mapping[tuple[int, ...], Sequence[Turn]]
    ) -> dict[tuple[int, ...], Kept]:
        """What has been computed of each sequence: under the key of one of its turns, or under
        another one that begins alike for longer."""
        fresh = self.passes.nothing()
        known = {}
        for ids, turns in sequences.items():
            cached = (self._kept[turn.key] for turn in turns if turn.key in self._kept)
            known[ids] = next((kept for kept in cached if self.passes.continues(kept, ids)), fresh)
        if not self.passes.shares:
            return known

        # A row that runs has read all but the token that it sampled last.
        others = [Kept(self._cache, row, self._rows[row].read[:-1]) for row in self._live()]
        others = [kept for kept in (*self._kept.values(), *others) if kept.cache.can_be_cut]
        beginnings = Beginnings([kept.seen for kept in others])
        for ids, kept in known.items():
            number, size = beginnings.closest(ids)
            size = min(size, len(ids) - 1)  # logits are those at a token that is read now
            if size >= len(kept.seen) + _WORTH_A_COPY:
                other = others[number]
                known[ids] = Kept(other.cache, other.row, other.seen[:size])
        return known

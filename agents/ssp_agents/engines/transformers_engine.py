"""Sampling from a causal LM of `transformers`, with a KV cache across a trajectory's turns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ssp_agents.architecture import TOKENS, Plain
from ssp_agents.causal_lm import cached_states, head_logits
from ssp_agents.engines.base import Generation, Request, StopRule, Turn
from ssp_agents.engines.ragged_cache import RaggedCache
from ssp_agents.models import load_state
from ssp_env.errors import ModelError, ServiceError, UsageError
from ssp_env.tokenizers.base import Tokenizer

_COMPACT_BELOW = 0.6
"""Share of rows that still go on, below which those that have stopped leave the batch."""
_JOIN_FROM = 0.5
"""Waiting requests per running one, from which on they are let in: each entry costs a pass of its
own, and a copy of the cache."""


class Way(NamedTuple):
    """How a model is to be fed, so that what it keeps is right."""

    even: bool = False
    """Every row gets as many tokens in a pass: padding would move recurrent states on."""
    apart: bool = False
    """Rows of different lengths get passes of their own: the model counts positions for all rows of
    a pass alike."""
    anew: bool = False
    """Each turn is read from its first token: the model goes on from a state by one token only."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Cache of a turn that is over."""

    cache: RaggedCache
    row: int
    seen: list[int]
    """The tokens that the row has read."""


class TransformersEngine:
    """Continuous batching: rows join the running batch, and leave it when their turn is over.

    A request whose key has been here before, and whose tokens go on from there, is continued; any
    other is computed from its first token. The random numbers of a row are its request's own.
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
        self.way = Way()
        self.checked = math.inf
        self._most_rows: int | None = None
        self._tried = 0
        self._forget()
        self._check()

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

        Where memory runs out, fewer rows run side by side from then on; their tokens stay the same.
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
        cache, logits, joined = self._read(joining)
        for turn in joined:
            del self._waiting[turn.key]
            self._kept.pop(turn.key, None)

        first = len(live)
        self._set_apart()
        if live:
            here, all_new = self._tensor(live), torch.arange(len(joined), device=self._device)
            parts = [(self._cache, here), (cache, all_new)]
            cache = RaggedCache.gathered(parts, spent=[self._cache, cache])
        self._rows, self._cache = [self._rows[row] for row in live] + joined, cache
        return self._take(first, *_sample(logits, joined))

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
        return self._take(0, *_sample(logits, self._rows))

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

    def _read(self, joining: Sequence[Turn]) -> tuple[RaggedCache, Tensor, list[Turn]]:
        """Computes what the model has not yet read of these turns: a cache of their rows, logits
        (rows, vocabulary) at the last token of each, and the turns in the order of the rows.

        Attempts at one question often begin alike, down to what their searches found. Equal
        sequences are fed once and their rows copied.
        """
        equal: dict[tuple[int, ...], list[Turn]] = {}
        for turn in joining:
            equal.setdefault(tuple(turn.read), []).append(turn)

        # Rows that come from one cache are copied together.
        fresh = _Kept(RaggedCache(1, self._device), 0, [])
        places: dict[int, list[tuple[_Kept, tuple[int, ...]]]] = {}
        for ids, turns in equal.items():
            kept = fresh
            for known in (self._kept[turn.key] for turn in turns if turn.key in self._kept):
                size = len(known.seen)
                if size < len(ids) and known.seen == [*ids[:size]] and not self.way.anew:
                    kept = known  # these tokens go on from what was computed under the key
                    break
            places.setdefault(id(kept.cache), []).append((kept, ids))

        rows = [place for part in places.values() for place in part]
        groups = [rows]
        if self.way.even or self.way.apart:
            rows = sorted(rows, key=self._alike)
            groups = [[*group] for _, group in groupby(rows, self._alike)]
        fed = [self._feed(group) for group in groups]
        cache, logits = fed[0]
        if len(fed) > 1:
            whole = [
                (part, torch.arange(len(part.lengths), device=self._device)) for part, _ in fed
            ]
            cache = RaggedCache.gathered(whole, spent=[part for part, _ in fed])
            logits = torch.cat([part for _, part in fed])

        if len(rows) < len(joining):
            copies = self._tensor([row for row, (_, ids) in enumerate(rows) for _ in equal[ids]])
            cache, logits = cache.select(copies, spent=True), logits[copies]
        return cache, logits, [turn for _, ids in rows for turn in equal[ids]]

    def _feed(self, rows: Sequence[tuple[_Kept, tuple[int, ...]]]) -> tuple[RaggedCache, Tensor]:
        """One pass over what these sequences go on with behind what is kept of them: a cache of
        their rows, and logits (rows, vocabulary) at the last token of each."""
        new = [ids[len(kept.seen) :] for kept, ids in rows]
        # Rows that come from one cache are copied together.
        parts = [[*part] for _, part in groupby((kept for kept, _ in rows), lambda k: id(k.cache))]
        cache = RaggedCache.gathered(
            [(part[0].cache, self._tensor([kept.row for kept in part])) for part in parts],
            room=max(map(len, new)),
        )
        padded = torch.zeros(len(new), max(map(len, new)), dtype=torch.long)  # (rows, width)
        for row, fed in enumerate(new):
            padded[row, : len(fed)] = torch.tensor(fed, dtype=torch.long)
        lengths = self._tensor([len(fed) for fed in new])
        return cache, self._forward(cache, padded.to(self._device), lengths)

    def _alike(self, row: tuple[_Kept, tuple[int, ...]]) -> tuple[int, int]:
        """What rows of one pass have in common: how much is new, and how much was read before."""
        before, length = len(row[0].seen), len(row[1])
        return length - before, before if self.way.apart else 0

    def _forward(self, cache: RaggedCache, ids: Tensor, new: Tensor) -> Tensor:
        # ids: (rows, width), of which row i has new[i] real ones; logits at the last of these.
        if not self.way.apart:
            return self._pass(cache, ids, new)

        found = torch.zeros(len(ids), self._tokenizer.vocab_size, device=self._device)
        lengths = cache.lengths  # as they are now: passes make them longer
        for length in lengths[new > 0].unique():
            rows = ((lengths == length) & (new > 0)).nonzero().flatten()
            part = cache.select(rows)
            found[rows] = self._pass(part, ids[rows], new[rows])
            cache.put(rows, part)
        return found

    def _pass(self, cache: RaggedCache, ids: Tensor, new: Tensor) -> Tensor:
        positions = cache.expect(new, ids.shape[1])
        alike = None if self.way.apart else positions
        hidden = cached_states(self.model, ids, alike, cache)
        cache.commit()
        last = hidden[torch.arange(len(ids), device=self._device), (new - 1).clamp(min=0)]

        # Some models have more logits than the tokenizer has tokens.
        return head_logits(self.model, last).float()[:, : self._tokenizer.vocab_size]

    def _check(self) -> None:
        """Finds the way in which two turns of two rows give what the model's own forward pass does;
        see :mod:`ssp_agents.architecture`.

        The rows are of unequal length, read unequally much in each turn, and one idles while the
        other goes on."""
        plain = Plain.of(self.model, self._tokenizer.vocab_size)
        nearest, cause = math.inf, ""
        for way in (Way(), Way(anew=True), Way(apart=True), Way(apart=True, anew=True)):
            self.way = way
            try:
                apart = self._distance(plain)
            except Exception as error:
                if _is_out_of_memory(error):
                    raise
                cause = f": {error or type(error).__name__}"
                continue
            finally:
                self._forget()
            if apart <= plain.bound:
                self.checked = apart
                return
            nearest = min(nearest, apart)
        raise plain.refusal(nearest, cause)

    @torch.no_grad()
    def _distance(self, plain: Plain) -> float:
        """Largest distance of the engine's passes from those texts, in nats."""
        texts: list[list[int]] = plain.ids.tolist()
        one, _ = self._feed([(_Kept(RaggedCache(1, self._device), 0, []), (texts[0][0],))])
        self.way = self.way._replace(even=one.recurrent)

        apart = [0.0]
        # How much has been read of each text at the end of a turn's prompt, and the text that then
        # goes on by a token.
        for read, going in (((4, 2), 0), ((TOKENS - 1, TOKENS - 3), 1)):
            asked = [Request(key, texts[key][:size], 1, 1.0, 0) for key, size in enumerate(read)]
            turns = [Turn(request, self._stop, self._tokenizer) for request in asked]
            cache, logits, turns = self._read(turns)
            keys = [turn.key for turn in turns]
            own = torch.stack([plain.logprobs[key, read[key] - 1] for key in keys])
            apart.append(plain.distance(logits.log_softmax(-1), own))

            ids = self._tensor([texts[key][read[key]] for key in keys])
            more = self._tensor([key == going for key in keys])
            logits = self._forward(cache, ids[:, None], more)[keys.index(going)]
            own = plain.logprobs[going, read[going]]
            apart.append(plain.distance(logits.log_softmax(-1), own))
            for row, key in enumerate(keys):
                seen = texts[key][: read[key] + (key == going)]
                self._kept[key] = _Kept(cache, row, seen)
        return max(apart)

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._device)


def _is_out_of_memory(error: BaseException) -> bool:
    """True if an allocation failed: on a GPU, on the CPU (which has no type for it), or in C++."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    texts = ("can't allocate memory", "std::bad_alloc")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)


def _sample(logits: Tensor, turns: Sequence[Turn]) -> tuple[Tensor, Tensor]:
    """Tokens (rows,) and their log-probabilities (rows,) from logits (rows, vocabulary).

    Each row has a random number of its own, which says how far into its cumulated distribution the
    token lies; so no row's token depends on another row.
    """
    # p = softmax(logits / T), the distribution whose log-probabilities are given out.
    temperatures = [turn.temperature for turn in turns]
    if set(temperatures) - {0.0, 1.0}:
        scale = torch.tensor([t or 1.0 for t in temperatures], device=logits.device)
        logits = logits / scale[:, None]
    logprobs = torch.log_softmax(logits, dim=-1)

    if not any(temperatures):
        tokens = logprobs.argmax(dim=-1)
    else:
        # Token = the first whose cumulated probability exceeds u: (rows,). In double precision: in
        # single, the likely tokens of a large vocabulary would swallow the unlikely ones.
        reached = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
        numbers = [0.0 if turn.stopped else next(turn.numbers) for turn in turns]
        aims = torch.tensor(numbers, dtype=torch.float64, device=logits.device)[:, None]
        tokens = torch.searchsorted(reached, aims * reached[:, -1:], right=True).squeeze(1)
        tokens = tokens.clamp(max=logits.shape[1] - 1)
        if not all(temperatures):
            greedy = torch.tensor([not t for t in temperatures], device=logits.device)
            tokens = torch.where(greedy, logprobs.argmax(dim=-1), tokens)

    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)

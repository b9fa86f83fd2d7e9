"""Passes of a causal LM over rows of a cache, fed in the way that keeps its state right.

Which way that is, a comparison with the model's own forward pass decides when the model is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ssp_agents.architecture import TOKENS, Plain
from ssp_agents.causal_lm import cached_states, head_logits, is_eager
from ssp_agents.engines.ragged_cache import RaggedCache
from ssp_agents.engines.reading import Piece, passes, pieces

_PASS_COSTS = {"cpu": 64, "cuda": 1024}
"""Tokens that could be read in the time that a pass of the model takes beside its tokens."""


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
class Kept:
    """What has been computed of a sequence: a row of a cache."""

    cache: RaggedCache
    row: int
    seen: list[int]
    """The tokens that the row has read; the cache may hold later ones of that row."""


class Read(NamedTuple):
    """Sequences that one pass has read to their ends."""

    cache: RaggedCache
    rows: list[int]
    sequences: list[tuple[int, ...]]
    """The sequence of each of these rows."""
    logits: Tensor
    """(rows, vocabulary), at the last token of each."""


class Passes:
    """Feeds a causal LM of `transformers`, in evaluation mode, on its device."""

    def __init__(self, model: Any, vocab_size: int) -> None:
        """Logits beyond ``vocab_size``, the tokenizer's, are left out.

        Raises :class:`~ssp_env.errors.ModelError` where no way of feeding the model gives what its
        own forward pass does.
        """
        self.model, self._vocab_size = model, vocab_size
        self.device = next(model.parameters()).device
        # Small policies keep the bits of published results: all is read in one pass.
        self._at_once = is_eager(model)
        self.way = Way()
        self.checked = math.inf
        """Distance from the model's own forward pass that was found, in nats."""
        self._choose_way()

    @property
    def shares(self) -> bool:
        """True if a sequence may go on from a row that has read another one's beginning."""
        return not (self._at_once or self.way.anew)

    def nothing(self) -> Kept:
        """What is known of a sequence that has not been read."""
        return Kept(RaggedCache(1, self.device), 0, [])

    def continues(self, kept: Kept, ids: tuple[int, ...]) -> bool:
        """True if a sequence can go on from what is kept of its beginning."""
        size = len(kept.seen)
        return not self.way.anew and size < len(ids) and ids[:size] == (*kept.seen,)

    def read(self, known: Mapping[tuple[int, ...], Kept]) -> list[Read]:
        """Reads sequences to their ends, from what is known of each.

        Sequences often begin alike, down to what their searches found: common beginnings are
        computed once and their rows copied.
        """
        done: dict[Piece, Kept] = {}
        finished = []
        for group in self._groups({ids: len(kept.seen) for ids, kept in known.items()}):
            before = [known[p.ids] if p.behind is None else done[p.behind] for p in group]
            cache, order, logits = self._feed(group, before)
            rows = []
            for row, piece in enumerate(order):
                # A piece that ends before its sequence is a beginning: others go on from it.
                if piece.end < len(piece.ids):
                    done[piece] = Kept(cache, row, [*piece.ids[: piece.end]])
                else:
                    rows.append(row)
            if rows:
                # (pieces, vocabulary) -> (rows, vocabulary), of sequences that are all read.
                logits_of = logits[self.tensor(rows)]
                finished.append(Read(cache, rows, [order[row].ids for row in rows], logits_of))
        return finished

    def forward(self, cache: RaggedCache, ids: Tensor, new: Tensor) -> Tensor:
        """Logits (rows, vocabulary) at the last of the ``new`` (rows,) real ones among ids (rows,
        width), behind what the cache has of each row; a row without new ones idles."""
        if not self.way.apart:
            return self._pass(cache, ids, new)

        # (rows, vocabulary); rows that idle keep 0, which nobody reads.
        logits_of = torch.zeros(len(ids), self._vocab_size, device=self.device)
        lengths = cache.lengths  # as they are now: passes make them longer
        for length in torch.unique(lengths[new > 0]):
            rows = ((lengths == length) & (new > 0)).nonzero().flatten()
            # A copy of these rows, which are written back when they have been read.
            part = cache.select(rows)
            logits_of[rows] = self._pass(part, ids[rows], new[rows]).float()
            cache.put(rows, part)
        return logits_of

    def tensor(self, values: Sequence[int]) -> Tensor:
        """Numbers as int64, on the model's device."""
        return torch.tensor(values, dtype=torch.long, device=self.device)

    # -- what is read together -----------------------------------------------------------------

    def _groups(self, known: Mapping[tuple[int, ...], int]) -> list[list[Piece]]:
        """What is read in each pass, beginnings first, of sequences of which so many tokens are
        known."""
        if self._at_once:
            groups = [[Piece(ids, size, len(ids)) for ids, size in known.items()]]
        else:
            cost = _PASS_COSTS.get(self.device.type, _PASS_COSTS["cuda"])
            longest = sum(map(len, known))
            # No common beginning saves as many tokens as all sequences have. So nothing is shared
            # where no sequence can go on from another one's row.
            groups = passes(pieces(known, longest if self.way.anew else cost), cost)
        if not (self.way.even or self.way.apart):
            return groups
        return [
            [*part]
            for group in groups
            for _, part in groupby(sorted(group, key=self._alike), key=self._alike)
        ]

    def _alike(self, piece: Piece) -> tuple[int, int]:
        """What rows of one pass have in common: how much is new, and how much was read before."""
        return piece.width, piece.start if self.way.apart else 0

    def _feed(
        self, group: Sequence[Piece], before: Sequence[Kept]
    ) -> tuple[RaggedCache, list[Piece], Tensor]:
        """One pass over pieces, each behind what is kept: a cache of their rows, the pieces in the
        order of the rows, and logits (rows, vocabulary) at the last token of each."""
        # Rows that come from one cache are copied together.
        places: dict[int, list[tuple[Kept, Piece]]] = {}
        for kept, piece in zip(before, group, strict=True):
            places.setdefault(id(kept.cache), []).append((kept, piece))
        rows = [place for part in places.values() for place in part]
        width = max(piece.width for piece in group)
        cache = RaggedCache.gathered(
            [
                (part[0][0].cache, self.tensor([kept.row for kept, _ in part]))
                for part in places.values()
            ],
            room=width,
        )
        # A row may be kept for longer than what is common.
        cache.lengths = self.tensor([piece.start for _, piece in rows])

        # Ids (rows, width), right-padded with 0; the first ``lengths`` of each row are real.
        padded = torch.zeros(len(rows), width, dtype=torch.long)
        for row, (_, piece) in enumerate(rows):
            fed = piece.ids[piece.start : piece.end]
            padded[row, : len(fed)] = torch.tensor(fed, dtype=torch.long)
        lengths = self.tensor([piece.width for _, piece in rows])
        logits = self.forward(cache, padded.to(self.device), lengths)
        return cache, [piece for _, piece in rows], logits

    def _pass(self, cache: RaggedCache, ids: Tensor, new: Tensor) -> Tensor:
        positions = cache.expect(new, ids.shape[1])  # (rows, width)
        alike = None if self.way.apart else positions
        hidden = cached_states(self.model, ids, alike, cache)
        cache.commit()
        # (rows, width, size) -> (rows, size): each row's last real token. Of rows that idle, the
        # first, whose logits nobody reads.
        last = hidden[torch.arange(len(ids), device=self.device), (new - 1).clamp(min=0)]
        # Some models have more logits than the tokenizer has tokens.
        return head_logits(self.model, last)[:, : self._vocab_size]

    # -- the way that is right -----------------------------------------------------------------

    def _choose_way(self) -> None:
        """Finds the way in which two turns of two rows give what the model's own forward pass does;
        see :mod:`ssp_agents.architecture`."""
        plain = Plain.of(self.model, self._vocab_size)
        nearest, cause = math.inf, ""
        for way in (Way(), Way(anew=True), Way(apart=True), Way(apart=True, anew=True)):
            self.way = way
            try:
                apart = self._distance(plain)
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                cause = f": {error or type(error).__name__}"
                continue
            if apart <= plain.bound:
                self.checked = apart
                return
            nearest = min(nearest, apart)
        raise plain.refusal(nearest, cause)

    @torch.no_grad()
    def _distance(self, plain: Plain) -> float:
        """Largest distance of two turns of two texts from the model's own forward pass, in nats.

        The rows are of unequal length, read unequally much in each turn, and one idles while the
        other goes on."""
        texts: list[tuple[int, ...]] = [tuple(ids) for ids in plain.ids.tolist()]
        (one,) = self.read({texts[0][:1]: self.nothing()})
        # A model shows whether it keeps recurrent states when it first writes to a cache.
        self.way = self.way._replace(even=one.cache.recurrent)

        apart = [0.0]
        kept = [self.nothing(), self.nothing()]
        # How much has been read of each text at the end of a turn's prompt, and the text that then
        # goes on by a token.
        for read, going in (((4, 2), 0), ((TOKENS - 1, TOKENS - 3), 1)):
            prompts = [text[:size] for text, size in zip(texts, read, strict=True)]
            known = {
                ids: row if self.continues(row, ids) else self.nothing()
                for ids, row in zip(prompts, kept, strict=True)
            }
            parts = self.read(known)
            cache = RaggedCache.gathered([(part.cache, self.tensor(part.rows)) for part in parts])
            order = [prompts.index(ids) for part in parts for ids in part.sequences]
            logits = torch.cat([part.logits for part in parts]).float()
            # (texts, vocabulary), at the last token that was read of each.
            expected = torch.stack([plain.logprobs[text, read[text] - 1] for text in order])
            apart.append(plain.distance(logits.log_softmax(-1), expected))

            ids = self.tensor([texts[text][read[text]] for text in order])
            # 1 for the text that goes on, 0 for the one that idles.
            more = self.tensor([text == going for text in order])
            logits = self.forward(cache, ids[:, None], more)[order.index(going)].float()
            expected = plain.logprobs[going, read[going]]
            apart.append(plain.distance(logits.log_softmax(-1), expected))
            for row, text in enumerate(order):
                kept[text] = Kept(cache, row, [*texts[text][: read[text] + (text == going)]])
        return max(apart)


def is_out_of_memory(error: BaseException) -> bool:
    """True if an allocation failed: on a GPU, on the CPU (which has no type for it), or in C++."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    texts = ("can't allocate memory", "std::bad_alloc")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)

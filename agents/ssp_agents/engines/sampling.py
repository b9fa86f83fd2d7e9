"""Tokens from logits: each row's by random numbers of its own.

Two ways draw from the same distribution. A small vocabulary is *walked*: one number says how far
into the cumulated distribution the token lies. That carries rounding over: where a likely token
gains 1e-6, all tokens behind it move. In a large vocabulary these are many, so it is *raced*: the
token wins whose log-probability plus own Gumbel noise is largest, and only near ties can change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ssp_agents.engines.base import Turn

WALKED = 8192
"""Vocabularies of up to so many tokens are walked, as the policies that ship always were."""
_BLOCK = 1024
"""Tokens that a race in a large vocabulary takes together: block first, then token in it."""


def sample(logits: Tensor, turns: Sequence[Turn]) -> tuple[Tensor, Tensor]:
    """Tokens (rows,), and their log-probabilities (rows,) in float32, from logits (rows,
    vocabulary) of any floating dtype.

    A row's turn gives temperature (at 0 the likeliest token is taken, and its log-probability is
    that at 1) and random numbers; no row's token depends on another row, and a row whose turn has
    stopped draws nothing.
    """
    return (_walked if logits.shape[1] <= WALKED else _raced)(logits, turns)


def _walked(logits: Tensor, turns: Sequence[Turn]) -> tuple[Tensor, Tensor]:
    # p = softmax(logits / T), the distribution whose log-probabilities are given out.
    logits, temperatures = logits.float(), [turn.temperature for turn in turns]
    # At temperatures 0 and 1 the scale is 1.
    if set(temperatures) - {0.0, 1.0}:
        logits = logits / _scales(turns, logits.device)
    # (rows, vocabulary), float32.
    logprobs = torch.log_softmax(logits, dim=-1)

    if not any(temperatures):
        tokens = logprobs.argmax(dim=-1)
    else:
        # Token = the first whose cumulated probability exceeds u: (rows,). In double precision: in
        # single, the likely tokens would swallow the unlikely ones.
        reached = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
        numbers = [0.0 if turn.stopped else turn.numbers.uniform() for turn in turns]
        aims = torch.tensor(numbers, dtype=torch.float64, device=logits.device)[:, None]
        # The last sum is 1 up to rounding, so numbers from [0, 1) are scaled to it. A product may
        # still round up to that sum, which is one place too far.
        tokens = torch.searchsorted(reached, aims * reached[:, -1:], right=True).squeeze(1)
        tokens = tokens.clamp(max=logits.shape[1] - 1)
        if not all(temperatures):
            greedy = torch.tensor([not t for t in temperatures], device=logits.device)
            tokens = torch.where(greedy, logprobs.argmax(dim=-1), tokens)

    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)


def _raced(logits: Tensor, turns: Sequence[Turn]) -> tuple[Tensor, Tensor]:
    """With independent Gumbel noise G, argmax_i (log p_i + G_i) is distributed as p. A block b of
    tokens has p_b = sum of its p_i; the token in it, p_i / p_b. Two races, over blocks and in the
    block that wins, need some thousand noises a row in place of one for each token."""
    vocabulary, device = logits.shape[1], logits.device
    scales, greedy = _scales(turns, device), [not turn.temperature for turn in turns]
    sums, best = _summed(logits, scales, any(greedy))  # (rows, blocks), (rows,)
    # (rows, blocks + _BLOCK): the noise of the race of blocks, then that of the race inside of one.
    noise = _noises(turns, sums.shape[1] + _BLOCK).to(device)
    is_greedy = torch.tensor(greedy, device=device)

    # A greedy row's block is that of its likeliest token; its sum need not be the largest.
    # Sums are log p_b up to a constant of the row, which changes no argmax.
    block = (sums + noise[:, : sums.shape[1]]).argmax(dim=1)
    block = torch.where(is_greedy, best // _BLOCK, block)

    # Inside the block: (rows, _BLOCK), where the last block may be cut short.
    columns = block[:, None] * _BLOCK + torch.arange(_BLOCK, device=device)
    inside = logits.gather(1, columns.clamp(max=vocabulary - 1)).float() / scales
    # log (p_i / p_b) of the block's tokens; columns behind the vocabulary hold none.
    inside = torch.log_softmax(inside.masked_fill(columns >= vocabulary, -torch.inf), dim=1)
    place = (inside + noise[:, sums.shape[1] :]).argmax(dim=1)
    place = torch.where(is_greedy, best % _BLOCK, place)

    # log p_i = log p_b + log (p_i / p_b)
    of_block = torch.log_softmax(sums, dim=1).gather(1, block[:, None])
    logprobs = of_block + inside.gather(1, place[:, None])
    return block * _BLOCK + place, logprobs.squeeze(1)


def _summed(logits: Tensor, scales: Tensor, greedy: bool) -> tuple[Tensor, Tensor]:
    """Logarithms (rows, blocks) of the blocks' sums of exp(logits / scales), and the likeliest
    tokens (rows,), or zeros if nobody asks for them."""
    # A CPU is three times as fast with one row at a time, which its cache holds.
    step = 1 if logits.device.type == "cpu" else len(logits)
    # The tokens beyond the last whole block are one of their own, maybe empty: log 0 = -inf.
    whole, sums, best = logits.shape[1] // _BLOCK * _BLOCK, [], []
    for row in range(0, len(logits), step):
        part = logits[row : row + step].float()
        if greedy:
            best.append(part.argmax(dim=1))
        part = part / scales[row : row + step]
        # (rows, blocks, _BLOCK) -> (rows, blocks).
        blocks = part[:, :whole].view(len(part), -1, _BLOCK).logsumexp(dim=2)
        sums.append(torch.cat([blocks, part[:, whole:].logsumexp(dim=1, keepdim=True)], dim=1))

    none = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
    return torch.cat(sums), torch.cat(best) if greedy else none


def _noises(turns: Sequence[Turn], count: int) -> Tensor:
    """Gumbel noise (rows, count) of the rows that draw, in float64; zeros for the others."""
    noise = np.zeros((len(turns), count))
    for row, turn in enumerate(turns):
        if turn.temperature and not turn.stopped:
            noise[row] = turn.numbers.gumbel(count)
    return torch.from_numpy(noise)


def _scales(turns: Sequence[Turn], device: torch.device) -> Tensor:
    """Temperatures (rows, 1); 1 for rows that take the likeliest token."""
    return torch.tensor([turn.temperature or 1.0 for turn in turns], device=device)[:, None]

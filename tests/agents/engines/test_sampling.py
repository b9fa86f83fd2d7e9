"""Tokens from logits: the distribution they are drawn from, and what changes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_tests import words
from torch import Tensor

from ssp_agents.engines.base import RandomNumbers, Request, StopRule, Turn
from ssp_agents.engines.sampling import WALKED, sample

LARGE = WALKED + 1101
TOKENIZER = words()


def turns(count: int, temperature: float = 1.0, first: int = 0) -> list[Turn]:
    asked = [Request(key, [5], 99, temperature, first + key) for key in range(count)]
    return [Turn(request, StopRule(frozenset(), ()), TOKENIZER) for request in asked]


def logits(rows: int, vocabulary: int, scale: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, vocabulary, generator=generator) * scale


@pytest.mark.parametrize(("vocabulary", "temperature"), [(60, 1.0), (LARGE, 1.0), (LARGE, 0.6)])
def test_tokens_are_drawn_with_their_probabilities(vocabulary: int, temperature: float) -> None:
    """Likely ones by themselves, all of them by blocks that are none of the sampler's."""
    row, draws = logits(1, vocabulary, 1.5), 3_000
    row[0, vocabulary // 2] += 8.0
    row[0, -1] += 8.0  # the last block is cut short
    drawn = [
        sample(row.expand(1000, -1), turns(1000, temperature, first))[0]
        for first in range(0, draws, 1000)
    ]
    p = (row[0].double() / temperature).softmax(0).numpy()
    places = np.linspace(0, vocabulary, 31).astype(int)
    counts = np.bincount(torch.cat(drawn).numpy(), minlength=vocabulary)
    for found, share in (
        (np.add.reduceat(counts, places[:-1]), np.add.reduceat(p, places[:-1])),
        (counts[p > 0.01], p[p > 0.01]),
    ):
        assert (np.abs(found - draws * share) < 5 * np.sqrt(draws * share) + 1).all()


@pytest.mark.parametrize("vocabulary", [60, LARGE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probabilities_are_those_of_the_tokens_and_0_takes_the_likeliest(
    vocabulary: int, dtype: torch.dtype
) -> None:
    row = logits(40, vocabulary).to(dtype)
    asked = [turn for t in (0.0, 0.5, 1.0, 2.0) for turn in turns(10, t)]
    tokens, found = sample(row, asked)
    scales = torch.tensor([turn.temperature or 1.0 for turn in asked], dtype=torch.float64)
    exact = (row.double() / scales[:, None]).log_softmax(1)
    torch.testing.assert_close(
        found.double(), exact.gather(1, tokens[:, None])[:, 0], atol=3e-6, rtol=0
    )
    assert tokens[:10].tolist() == row[:10].argmax(1).tolist()
    assert tokens[10:].tolist() != row[10:].argmax(1).tolist()


def test_a_small_vocabulary_is_walked_through_as_it_always_was() -> None:
    """To the last bit: the results of the policies that ship hang on it."""
    row = logits(200, WALKED)
    tokens, found = sample(row, turns(200))
    reached = row.log_softmax(1).exp().cumsum(1, dtype=torch.float64)
    for i in range(200):
        number = np.random.Generator(np.random.Philox(key=i)).random()
        aim = np.float64(number) * reached[i, -1].item()
        assert tokens[i] == np.searchsorted(reached[i].numpy(), aim, side="right")
    assert found.tolist() == row.log_softmax(1).gather(1, tokens[:, None])[:, 0].tolist()


def test_rounding_changes_hardly_a_token_of_a_large_vocabulary() -> None:
    """Where 1e-3 nats on each logit would end one walk in 23 elsewhere."""
    row, rng = logits(500, LARGE, 1.0), torch.Generator().manual_seed(1)
    rounded = row + 1e-3 * torch.randn(row.shape, generator=rng)
    same = sample(row, turns(500))[0] == sample(rounded, turns(500))[0]
    assert same.float().mean() > 0.99


@pytest.mark.parametrize("vocabulary", [60, LARGE])
def test_a_row_draws_by_its_own_numbers_and_none_once_it_has_stopped(vocabulary: int) -> None:
    row = logits(6, vocabulary)
    alone = [sample(row[i : i + 1], [turn])[0].item() for i, turn in enumerate(turns(6))]
    together = turns(6)
    together[2].stopped = True
    found = sample(row, together)[0].tolist()
    assert [*found[:2], *found[3:]] == [*alone[:2], *alone[3:]]
    together[2].stopped = False
    assert sample(row[2:3], together[2:3])[0].item() == alone[2]


def test_random_numbers_are_those_of_their_seed() -> None:
    numbers, again = RandomNumbers(7), np.random.Generator(np.random.Philox(key=7))
    drawn = []
    for _ in range(40):
        drawn.append(numbers.uniform())
        noise = numbers.gumbel(3)
        # A token that is sampled twice, because memory ran out, has the same numbers.
        assert numbers.uniform() == drawn[-1]
        assert (numbers.gumbel(3) == noise).all()
        numbers.advance()
        assert (numbers.gumbel(3) != noise).all()
    assert drawn == [*again.random(32), *again.random(8)]
    assert (RandomNumbers(8).gumbel(5) != RandomNumbers(7).gumbel(5)).all()

"""What a model reads: all that it has to, and next to nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from engine_tests import VOCABULARY, check, finish, made, words
from torch import Tensor

from ssp_agents.engines.base import Generation, Request, StopRule
from ssp_agents.engines.ragged_cache import RaggedCache
from ssp_agents.engines.reading import Beginnings, Piece, common, passes, pieces
from ssp_agents.engines.transformers_engine import TransformersEngine


def beginnings(sequences: Sequence[Sequence[int]]) -> set[tuple[int, ...]]:
    """Each is a token that some sequence needs, behind all that is before it."""
    return {tuple(ids[:end]) for ids in sequences for end in range(1, 1 + len(ids))}


def some_sequences(rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    """Of few different tokens, so that many begin alike; some of them begin others."""
    drawn = [rng.integers(0, 2, rng.integers(1, 12)).tolist() for _ in range(count)]
    return [*{tuple(ids) for ids in drawn}]


def test_nothing_is_read_twice_and_all_of_it_once() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        known = some_sequences(rng, 3)
        asked = some_sequences(rng, int(rng.integers(1, 9)))
        # The last token is read in any case.
        sizes = {ids: min(max(common(ids, k) for k in known), len(ids) - 1) for ids in asked}
        found = [piece for part in passes(pieces(sizes, 1), cost=3) for piece in part]
        for piece in found:
            before = piece.behind
            assert piece.start == (sizes[piece.ids] if before is None else before.end)
            assert before is None or piece.ids[: piece.start] == before.ids[: piece.start]
            assert before is None or found.index(before) < found.index(piece)
        assert sorted(piece.ids for piece in found if piece.end == len(piece.ids)) == sorted(asked)

        read = sum(piece.width for piece in found)
        needed = len(beginnings(asked) - beginnings(known))
        assert needed <= read <= needed + len(asked)


def test_the_closest_beginning_is_found() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        known, ids = [[*k] for k in some_sequences(rng, 6)], some_sequences(rng, 1)[0]
        number, size = Beginnings(known).closest(ids)
        assert (
            size == max(common(ids, k) for k in known) == (number >= 0) * common(ids, known[number])
        )
    assert Beginnings([]).closest((1, 2)) == (-1, 0)


def test_rows_are_not_padded_to_the_widest() -> None:
    """62 rows of 190 to 400 tokens beside ten of 850 once took a pass of 2.5 times the tokens."""
    widths = [*np.random.default_rng(0).integers(190, 400, 62).tolist(), *[850] * 10]
    parts = passes([Piece((0,) * width, 0, width) for width in widths], cost=64)
    padded = sum(len(part) * max(piece.width for piece in part) for part in parts)
    assert sorted(piece.width for part in parts for piece in part) == sorted(widths)
    assert padded < 1.1 * sum(widths)
    assert len(parts) < 20


class Counting(TransformersEngine):
    """Counts what it reads, padding included, before it samples."""

    read = 0

    def _feed(
        self, group: Sequence[Piece], before: Sequence[object]
    ) -> tuple[RaggedCache, list[Piece], Tensor]:
        self.read += len(group) * max(piece.width for piece in group)
        return super()._feed(group, before)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "most"), [("qwen2", 1.1), ("lfm2", 1.3)])
def test_a_group_of_attempts_is_read_once(name: str, most: float) -> None:
    """Three turns each; some attempts write and find the same, some come later than others, and a
    second question begins with the same instruction. A convolution's state cannot be cut, so what
    others have read already is of no use to it."""
    lm, rng = made(name), np.random.default_rng(0)
    lm.set_attn_implementation("sdpa")
    engine = Counting(lm, words(), StopRule(frozenset(), ()))

    def text(size: int) -> list[int]:
        return rng.integers(5, VOCABULARY, size).tolist()

    instruction = text(60)
    questions, documents = [instruction + text(20), instruction + text(24)], [text(50), text(43)]
    rows = {key: questions[key // 8] for key in range(16)}
    asked: list[list[int]] = []
    sampled: set[tuple[int, ...]] = set()
    for turn in range(3):
        requests = {
            # Two in three take the likeliest tokens, and so the same.
            key: Request(key, ids, 5 + turn, float(key % 3 == 0), 100 * turn + key)
            for key, ids in rows.items()
        }
        engine.submit([requests[key] for key in range(11)])
        found: dict[int, Generation] = {}
        for _ in range(2 if turn == 0 else 0):
            found |= engine.step()
        engine.submit([requests[key] for key in range(11, 16)])
        while engine.running:
            found |= engine.step()
        for key, request in requests.items():
            check(lm, request, found[key])
            asked.append([*request.ids])
            written = [*request.ids, *found[key].ids[:-1]]
            sampled |= beginnings([written]) - beginnings([request.ids])
            rows[key] = [*request.ids, *found[key].ids, *documents[turn % 2]]

    needed = len(beginnings(asked) - sampled)
    assert engine.read <= most * needed
    assert finish(engine) == {}

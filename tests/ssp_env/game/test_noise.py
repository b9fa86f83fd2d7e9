"""Noise documents: whose they are, whose they are not, and that a seed decides them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.game.verification import NoiseDocument, draw_noise
from ssp_env.types import Document

CORPUS = [Document(str(i), f"title {i}", f"text {i}") for i in range(30)]


def draw(
    count: int,
    own: list[int],
    others: list[tuple[int, int]],
    corpus: list[Document] | None = None,
    seed: int = 0,
) -> tuple[NoiseDocument, ...]:
    return draw_noise(
        np.random.default_rng(seed),
        count,
        [CORPUS[i] for i in own],
        [(slot, CORPUS[i]) for slot, i in others],
        CORPUS if corpus is None else corpus,
    )


def test_other_games_come_first() -> None:
    noise = draw(2, [0], [(1, 3), (2, 4), (3, 5)])
    assert {item.origin for item in noise} < {"game 1", "game 2", "game 3"}
    assert all(
        int(item.document.id) == int(item.origin.removeprefix("game ")) + 2 for item in noise
    )


def test_the_corpus_fills_up() -> None:
    noise = draw(5, [0], [(1, 3), (2, 4)])
    assert [item.origin for item in noise[2:]] == ["corpus"] * 3
    assert {item.origin for item in noise[:2]} == {"game 1", "game 2"}


@given(
    count=st.integers(0, 12),
    own=st.lists(st.integers(0, 29), max_size=8),
    others=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 29)), max_size=12),
    size=st.integers(1, 30),
    seed=st.integers(0, 9),
)
def test_what_always_holds(
    count: int, own: list[int], others: list[tuple[int, int]], size: int, seed: int
) -> None:
    corpus = CORPUS[:size]
    noise = draw(count, own, others, corpus, seed)
    ids = [int(item.document.id) for item in noise]
    from_games = {i for _, i in others} - set(own)
    assert not set(ids) & set(own), "nothing of one's own"
    assert len(set(ids)) == len(ids), "nothing twice"
    free = from_games | (set(range(size)) - set(own))
    taken = [i for item, i in zip(noise, ids, strict=True) if item.origin != "corpus"]
    assert len(taken) == min(count, len(from_games)), "other games first"
    # What games do not give comes from the corpus, until it runs out.
    left = set(range(size)) - set(own) - set(taken)
    assert len(ids) == min(count, len(taken) + len(left))
    assert set(ids) <= free
    for item, i in zip(noise, ids, strict=True):
        if item.origin == "corpus":
            assert i < size
        else:
            assert (int(item.origin.removeprefix("game ")), i) in others

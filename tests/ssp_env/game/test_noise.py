"""Noise documents: whose they are, whose they are not, and that a seed decides them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.game.noise import NoiseDocument, draw_noise
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


def test_a_document_of_several_games_belongs_to_the_first() -> None:
    (item,) = draw(1, [0], [(4, 3), (7, 3), (9, 0)])
    assert (item.document.id, item.origin) == ("3", "game 4")


def test_none_at_all() -> None:
    assert draw(0, [0], [(1, 3)]) == ()


def test_all_of_a_small_corpus() -> None:
    noise = draw(10, [0, 1], [(1, 2)], CORPUS[:5])
    assert {item.document.id for item in noise} == {"2", "3", "4"}


def test_foreign_documents_do_not_count_against_the_corpus() -> None:
    """A retriever may search in more than the world's corpus."""
    noise = draw(3, [10, 11, 12, 13], [], CORPUS[:3])
    assert {item.document.id for item in noise} == {"0", "1", "2"}


@pytest.mark.parametrize("size", [5, 30])
def test_seeds_decide(size: int) -> None:
    drawn = [draw(3, [0], [(1, 2)], CORPUS[:size], seed) for seed in (0, 0, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_every_document_of_the_corpus_may_come() -> None:
    seen = {item.document.id for seed in range(200) for item in draw(2, [0], [], seed=seed)}
    assert seen == {document.id for document in CORPUS[1:]}


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

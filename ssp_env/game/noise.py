"""Noise documents: passages that verification has to see through (the paper's Section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ssp_env.types import Document


@dataclass(frozen=True, slots=True)
class NoiseDocument:
    """A document that this game's proposer did not retrieve, and where it came from."""

    document: Document
    origin: str
    """``game <slot>`` whose proposer retrieved it, or ``corpus``."""


class NoiseSource(Protocol):
    """Draws noise documents; :func:`draw_noise` is the one that ships."""

    def __call__(
        self,
        rng: np.random.Generator,
        count: int,
        own: Sequence[Document],
        others: Sequence[tuple[int, Document]],
        corpus: Sequence[Document],
    ) -> tuple[NoiseDocument, ...]:
        """At most ``count`` documents, none of them among ``own``; draws from ``rng`` alone."""
        ...


def draw_noise(
    rng: np.random.Generator,
    count: int,
    own: Sequence[Document],
    others: Sequence[tuple[int, Document]],
    corpus: Sequence[Document],
) -> tuple[NoiseDocument, ...]:
    """Draws noise from the other games of the batch, then from the corpus if they have too few.

    Args:
        rng: source of all randomness.
        count: how many documents; fewer only if the corpus runs out.
        own: what this game's proposer retrieved; none of it is drawn.
        others: ``(slot, document)`` retrieved by the other games' proposers, in slot order.
        corpus: every passage there is.
    """
    taken = {document.id for document in own}

    # A document that several games retrieved counts for the first of them.
    pool: dict[str, tuple[int, Document]] = {}
    for slot, document in others:
        if document.id not in taken:
            pool.setdefault(document.id, (slot, document))

    candidates = list(pool.values())
    chosen: list[int] = rng.permutation(len(candidates))[:count].tolist() if count else []
    noise = [NoiseDocument(candidates[i][1], f"game {candidates[i][0]}") for i in chosen]

    taken.update(item.document.id for item in noise)
    return (*noise, *_from_corpus(rng, count - len(noise), taken, corpus))


def _from_corpus(
    rng: np.random.Generator, count: int, taken: set[str], corpus: Sequence[Document]
) -> list[NoiseDocument]:
    """``count`` documents outside ``taken``, or as many as there are.

    ``taken`` may hold ids of another corpus.
    """
    if count <= 0:
        return []

    # Most of a small corpus may be taken, so the free passages are listed first.
    if len(corpus) < 2 * (len(taken) + count):
        free = [document for document in corpus if document.id not in taken]
        return [
            NoiseDocument(free[i], "corpus") for i in rng.permutation(len(free))[:count].tolist()
        ]

    # At least half of a large corpus is free: drawing until something is costs two draws on
    # average.
    drawn: dict[str, NoiseDocument] = {}
    while len(drawn) < count:
        document = corpus[int(rng.integers(len(corpus)))]
        if document.id not in taken:
            drawn.setdefault(document.id, NoiseDocument(document, "corpus"))
    return list(drawn.values())

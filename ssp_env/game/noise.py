"""Noise documents: passages that verification has to see through (the paper's Section 4.4).

Three kinds ship: from the batch's other games (the paper's), from the corpus, and *near*: what the
retriever finds for the question and the proposer did not see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ssp_env.errors import ServiceError
from ssp_env.types import Document, Immutable


@dataclass(frozen=True, slots=True)
class NoiseDocument(Immutable):
    """A document that this game's proposer did not retrieve, and where it came from."""

    document: Document
    origin: str
    """``game <slot>`` whose proposer retrieved it, ``near`` the question, or ``corpus``."""


@dataclass(frozen=True)
class NoiseRequest:
    """Facts by which the noise of one game is chosen."""

    rng: np.random.Generator
    """Source of all randomness."""
    question: str
    own: Sequence[Document]
    """Documents of this game's proposer; none of them is noise."""
    others: Sequence[tuple[int, Document]]
    """``(slot, document)`` retrieved by the other games' proposers, in slot order."""


class NoiseSource(Protocol):
    """Draws noise documents; :func:`draw_noise` is the default."""

    def __call__(
        self,
        rng: np.random.Generator,
        count: int,
        own: Sequence[Document],
        others: Sequence[tuple[int, Document]],
        corpus: Sequence[Document],
    ) -> tuple[NoiseDocument, ...]:
        """At most ``count`` documents, none of them among ``own``; draws from ``rng`` alone.

        Raises:
            ServiceError: the source asks a service that is down; this game is void.
        """
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
    # A document that several games retrieved counts for the first of them.
    pool: dict[str, tuple[int, Document]] = {}
    for retrieved in others:
        pool.setdefault(retrieved[1].id, retrieved)
    for document in own:
        pool.pop(document.id, None)

    candidates = list(pool.values())
    chosen: list[int] = rng.permutation(len(candidates))[:count].tolist() if count else []
    noise = [NoiseDocument(candidates[i][1], f"game {candidates[i][0]}") for i in chosen]
    return _filled_up(rng, count, noise, own, corpus)


def draw_from_corpus(
    rng: np.random.Generator,
    count: int,
    own: Sequence[Document],
    others: Sequence[tuple[int, Document]],
    corpus: Sequence[Document],
) -> tuple[NoiseDocument, ...]:
    """Draws noise from all of the corpus; arguments as in :func:`draw_noise`."""
    return _filled_up(rng, count, [], own, corpus)


class NearNoise:
    """The best of what the retriever finds for the question and the proposer did not see.

    The game asks its own retriever, for all questions of a wave at once; an outage voids the games
    that it hits.
    """

    def draw(
        self,
        requests: Sequence[NoiseRequest],
        count: int,
        search: Callable[[Sequence[str], int], list[list[Document] | ServiceError]],
        corpus: Sequence[Document],
    ) -> list[tuple[NoiseDocument, ...] | ServiceError]:
        """At most ``count`` documents per game: what is found and new, then the corpus.

        Args:
            requests: one per game.
            count: how many documents.
            search: one ranking or error per query, of as many documents as its second argument.
            corpus: every passage there is.
        """
        if not count or not requests:
            return [() for _ in requests]

        # Deep enough that ``count`` are left without those of the proposer.
        depth = count + max(len({d.id for d in request.own}) for request in requests)
        noise: list[tuple[NoiseDocument, ...] | ServiceError] = []
        results = search([request.question for request in requests], depth)
        for request, found in zip(requests, results, strict=True):
            if isinstance(found, ServiceError):
                noise.append(found)
                continue
            taken = {document.id for document in request.own}
            fresh = {document.id: document for document in found if document.id not in taken}
            near = [NoiseDocument(document, "near") for document in [*fresh.values()][:count]]
            noise.append(_filled_up(request.rng, count, near, request.own, corpus))
        return noise


NOISE: Mapping[str, NoiseSource | NearNoise] = {
    "batch": draw_noise,
    "corpus": draw_from_corpus,
    "near": NearNoise(),
}
"""The kinds of noise that ship, by the name that ``game.noise_kind`` has for them."""


def _filled_up(
    rng: np.random.Generator,
    count: int,
    noise: list[NoiseDocument],
    own: Sequence[Document],
    corpus: Sequence[Document],
) -> tuple[NoiseDocument, ...]:
    """This noise, and as much of the corpus as is missing; ids may be of another corpus."""
    taken = {document.id for document in own} | {item.document.id for item in noise}
    count -= len(noise)
    if count <= 0:
        return tuple(noise)

    # Most of a small corpus may be taken, so the free passages are listed first.
    if len(corpus) < 2 * (len(taken) + count):
        free = [document for document in corpus if document.id not in taken]
        order = rng.permutation(len(free))[:count].tolist()
        return (*noise, *(NoiseDocument(free[i], "corpus") for i in order))

    # At least half of a large corpus is free: drawing until something is costs two draws on
    # average.
    drawn: dict[str, NoiseDocument] = {}
    while len(drawn) < count:
        document = corpus[int(rng.integers(len(corpus)))]
        if document.id not in taken:
            drawn.setdefault(document.id, NoiseDocument(document, "corpus"))
    return (*noise, *drawn.values())

"""Rules of the sweep ``retrievers``: searches that find nothing of use."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from ssp_env.game.config import GameConfig
from ssp_env.game.rules import Rules
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Document, Passages, World


class RandomDocuments:
    """Finds passages of the corpus at random; the same query finds the same ones."""

    def __init__(self, corpus: Passages) -> None:
        self._corpus = corpus

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        return [self._drawn(query, min(k, len(self._corpus))) for query in queries]

    def _drawn(self, query: str, k: int) -> list[Document]:
        # A hash that is the same in every process.
        rng = np.random.default_rng(zlib.crc32(query.encode()))
        places = rng.choice(len(self._corpus), k, replace=False)
        return [self._corpus[int(place)] for place in places]


class NoDocuments:
    """Finds nothing."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        return [[] for _ in queries]


def random_documents(world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
    return Rules.build(world, tokenizer, game, retriever=RandomDocuments(world.corpus))


def no_documents(world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
    return Rules.build(world, tokenizer, game, retriever=NoDocuments())

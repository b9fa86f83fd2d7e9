"""Pages: the passages of one title, in the order of their corpus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ssp_env.search.base import Retriever, check_request
from ssp_env.types import Document, Passages
from ssp_env.wording.normal import fold

LONGEST = 100
"""Passages of a page that can be read."""
_AROUND = " \t\n[]\"'"
"""What prompts, and models, put around titles."""


class Pages:
    """Finds the passages of the page that a query names, by any case and spacing of its title.

    >>> from ssp_env.search.base import Corpus
    >>> corpus = Corpus([Document("1", "Graz", "A city."), Document("2", "Graz", "On the Mur.")])
    >>> [[passage.text for passage in page] for page in Pages(corpus).search(["graz", "Linz"], 2)]
    [['A city.', 'On the Mur.'], []]
    """

    reads_on = True

    def __init__(self, corpus: Passages) -> None:
        """All titles are read when the first page is asked for: 12 bytes a passage stay."""
        self.corpus = corpus

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        check_request(queries, k)
        return [self._page(_key(query))[:k] for query in queries]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.corpus,)

    @cached_property
    def _by_title(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Digests of titles in their order, and where each has its passage."""
        digests = (crc32(_key(passage.title).encode()) for passage in self.corpus)
        titles = np.fromiter(digests, np.uint32, len(self.corpus))
        # Stable, so that the passages of a page keep the order of the corpus.
        places = np.argsort(titles, kind="stable")
        return titles[places], places

    def _page(self, title: str) -> list[Document]:
        titles, places = self._by_title
        digest = np.uint32(crc32(title.encode()))
        first, last = (titles.searchsorted(digest, side) for side in ("left", "right"))
        same = (self.corpus[int(place)] for place in places[first:last])
        # Two titles may have one digest; passages without a title are no page.
        return [passage for passage in same if title and _key(passage.title) == title]


def _key(title: str) -> str:
    return " ".join(fold(title.strip(_AROUND)).split()).encode("utf-8", "replace").decode()


def pages_of(retriever: Retriever) -> Retriever | None:
    """What reads the pages that a retriever finds: its attribute ``pages``, or its corpus, or that
    of the first one that it wraps; ``None`` if it has none of these."""
    part: Any = retriever
    if getattr(part, "pages", None) is not None:
        return cast(Retriever, part.pages)
    if isinstance(corpus := getattr(part, "corpus", None), Passages):
        return Pages(corpus)
    wrapped = [getattr(part, "retriever", None), *getattr(part, "retrievers", ())]
    return next((pages_of(each) for each in wrapped if each is not None), None)

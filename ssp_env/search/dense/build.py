"""Builds dense indexes on disk. What takes days, the encoding, is journalled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ssp_env.errors import DataError
from ssp_env.search.corpus import passage_text
from ssp_env.search.dense.neighbours import FLAT, INDEX, approximate, tune
from ssp_env.search.dense.vectors import FlatWriter, Vectors, faiss, read_faiss, write_faiss
from ssp_env.search.index.directory import Encoder
from ssp_env.search.index.manifest import read_manifest
from ssp_env.search.index.store import PassageStore
from ssp_env.search.index.workplace import Progress, Workplace
from ssp_env.types import Document, Passages

BLOCK = 256
"""Passages that are encoded between two entries of a build's journal."""
VECTORS = "vectors.faiss"
"""Scratch of an approximate index: the exact one that it is built from."""
_ASKED = 512
"""Queries that an approximate index is measured with."""
_QUERY_BLOCK = 64
"""Of these, how many are encoded at once."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def build(
    kind: str, place: Workplace, store: PassageStore, encoder: Encoder, progress: Progress
) -> dict[str, Any]:
    """Writes a dense index; see :meth:`ssp_env.search.index.directory.IndexKind.build`.

    Vectors are written in blocks of 256 passages; a build that was killed goes on after the last
    block. Where the directory holds a ``dense-flat`` index by the same encoder, its vectors are
    used. Memory: the encoder's, a block of passages, and an approximate index as a whole."""
    faiss()
    if kind == FLAT:
        _encode(place, INDEX, store, encoder, progress)
        return {}

    vectors = _vectors_of_sibling(place.target.parent / FLAT, store, encoder)
    if vectors is None:
        vectors = _encode(place, VECTORS, store, encoder, progress)
    exact = read_faiss(vectors)
    queries = likely_queries(store, encoder, progress)
    index = approximate(kind, exact, progress)
    parameters = tune(kind, index, exact, queries, progress)

    write_faiss(index, place.path / INDEX)
    (place.path / VECTORS).unlink(missing_ok=True)
    return parameters


def likely_queries(passages: Passages, encoder: Encoder, progress: Progress) -> Vectors:
    """Vectors of queries such as may be asked, of shape ``(up to 512, dimension)``.

    They are sentences of some passages (the inverse cloze task of Lee et al. 2019)."""
    rng = np.random.default_rng(0)
    queries = []
    for position in np.sort(rng.permutation(len(passages))[:_ASKED]).tolist():
        sentences = _SENTENCE_END.split(passages[position].text.strip())
        queries.append(sentences[rng.integers(len(sentences))] or passages[position].title)

    stage, blocks = "encoding queries to measure with", []
    progress(stage, 0, len(queries))
    for first in range(0, len(queries), _QUERY_BLOCK):
        blocks.append(encoder.encode_queries(queries[first : first + _QUERY_BLOCK]))
        progress(stage, min(first + _QUERY_BLOCK, len(queries)), len(queries))
    return np.concatenate(blocks)


def encoded(passages: Iterable[Document], encoder: Encoder) -> Iterator[Vectors]:
    """The vectors of passages, :data:`BLOCK` at a time."""
    texts = map(passage_text, passages)
    while block := list(islice(texts, BLOCK)):
        yield encoder.encode_passages(block)


def _encode(
    place: Workplace, name: str, store: PassageStore, encoder: Encoder, progress: Progress
) -> Path:
    """Writes the vectors of all passages as an exact index, from the journal's point on.

    Raises:
        DataError: what is there was begun with other passages or another encoder.
    """
    begun = {"corpus": store.digest(), "encoder": asdict(encoder.info)}
    state = place.state()
    if not state:
        place.clear()
    elif {key: state.get(key) for key in begun} != begun:
        what = "was begun with other passages or another encoder"
        raise DataError(place.path, f"{what}; delete it to start afresh")

    path, rows = place.path / name, int(state.get("vectors", 0))
    stage = "encoding passages"
    if rows:
        stage += f" (resuming at {rows:,} of {len(store):,})"
    progress(stage, rows, len(store))
    writer = FlatWriter(path, encoder.info.dimension, rows)
    with closing(writer):
        for vectors in encoded(store.read_from(rows), encoder):
            writer.append(vectors)
            place.checkpoint({**begun, "vectors": writer.rows})
            progress(stage, writer.rows, len(store))
        writer.finish()
    return path


def _vectors_of_sibling(folder: Path, store: PassageStore, encoder: Encoder) -> Path | None:
    """The vectors of a whole ``dense-flat`` index over the same passages by the same encoder."""
    try:
        read_manifest(folder, FLAT, corpus=store.digest(), encoder=encoder.info)
    except DataError:
        return None
    return folder / INDEX

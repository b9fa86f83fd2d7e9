"""Builds dense indexes on disk. What takes days, the encoding, is journalled."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ssp_env.errors import DataError
from ssp_env.search.corpus import Progress, passage_text
from ssp_env.search.dense.neighbours import (
    FLAT,
    INDEX,
    Vectors,
    approximate,
    flat_header,
    read_faiss,
    tune,
    write_faiss,
)
from ssp_env.search.dense.retriever import DenseRetriever
from ssp_env.search.index.directory import Encoder
from ssp_env.search.index.manifest import read_manifest
from ssp_env.search.index.store import PassageStore
from ssp_env.search.index.workplace import Workplace
from ssp_env.types import Passages

BLOCK = 256
"""Passages that are encoded between two entries of a build's journal."""
VECTORS = "vectors.faiss"
"""Scratch of an approximate index: the exact one that it is built from."""
load = DenseRetriever
"""Opens an index that was found to fit its passages and encoder."""
_ASKED = 512
"""Queries that an approximate index is measured with."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def build(
    place: Workplace, store: PassageStore, encoder: Encoder, progress: Progress
) -> dict[str, Any]:
    """Writes a dense index, of the kind that its folder is named by, and returns its parameters.

    Vectors are written in blocks of 256 passages; a build that was killed goes on after the last
    block. Where the directory holds a ``dense-flat`` index by the same encoder, its vectors are
    used. Memory: the encoder's, a block of passages, and an approximate index as a whole."""
    kind = place.target.name
    if kind == FLAT:
        _encode(place, INDEX, store, encoder, progress)
        return {}

    vectors = _vectors_of_sibling(place.target.parent / FLAT, store, encoder)
    if vectors is None:
        vectors = _encode(place, VECTORS, store, encoder, progress)
    exact = read_faiss(vectors)
    index = approximate(kind, exact, progress)
    parameters = tune(kind, index, exact, likely_queries(store, encoder))

    write_faiss(index, place.path / INDEX)
    (place.path / VECTORS).unlink(missing_ok=True)
    return parameters


def likely_queries(passages: Passages, encoder: Encoder) -> Vectors:
    """Vectors of queries such as may be asked, of shape ``(up to 512, dimension)``.

    They are sentences of some passages (the inverse cloze task of Lee et al. 2019)."""
    rng = np.random.default_rng(0)
    queries = []
    for position in np.sort(rng.permutation(len(passages))[:_ASKED]).tolist():
        sentences = _SENTENCE_END.split(passages[position].text.strip())
        queries.append(sentences[rng.integers(len(sentences))] or passages[position].title)
    return encoder.encode_queries(queries)


def _encode(
    place: Workplace, name: str, store: PassageStore, encoder: Encoder, progress: Progress
) -> Path:
    """Writes the vectors of all passages as an exact index, from the journal's point on.

    FAISS itself would have to hold all of them in memory, and could not go on with a file that a
    killed build left. Its format is a header, with two counts, before the vectors.

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

    path, rows, dimension = place.path / name, int(state.get("vectors", 0)), encoder.info.dimension
    header = flat_header(dimension)
    kept = len(header) + 4 * dimension * rows
    path.touch()
    if rows and path.stat().st_size < kept:
        what = f"holds fewer than the {rows} vectors that its journal names"
        raise DataError(path, f"{what}; delete {path.parent}")

    stage = "encoding passages"
    if rows:
        stage += f" (resuming at {rows:,} of {len(store):,})"
    progress(stage, rows, len(store))
    texts = map(passage_text, store.read_from(rows))
    with open(path, "r+b") as file:
        file.truncate(kept)
        file.seek(kept)
        while block := list(islice(texts, BLOCK)):
            file.write(np.ascontiguousarray(encoder.encode_passages(block), "<f4").data.cast("B"))
            file.flush()
            os.fsync(file.fileno())
            rows += len(block)
            place.checkpoint({**begun, "vectors": rows})
            progress(stage, rows, len(store))

        # How many vectors there are, and how many numbers: from here on FAISS reads the file.
        header[8:16] = rows.to_bytes(8, "little")
        header[-8:] = (rows * dimension).to_bytes(8, "little")
        file.seek(0)
        file.write(header)
    return path


def _vectors_of_sibling(folder: Path, store: PassageStore, encoder: Encoder) -> Path | None:
    """The vectors of a whole ``dense-flat`` index over the same passages by the same encoder."""
    try:
        read_manifest(folder, FLAT, corpus=store.digest(), encoder=encoder.info)
    except DataError:
        return None
    return folder / INDEX

"""Adopts a FAISS file with the corpus that it was made of, without encoding again.

That is how trainers of search agents pass indexes on: Search-R1's ``e5_Flat.index`` beside
``wiki-18.jsonl``, the vectors in the order of the lines."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ssp_env.errors import DataError
from ssp_env.search.corpus import Progress, no_progress, passage_text
from ssp_env.search.dense.build import likely_queries
from ssp_env.search.dense.neighbours import FLAT, INDEX, IVF, kind_of, read_faiss, tune
from ssp_env.search.index.directory import PASSAGES, Encoder
from ssp_env.search.index.manifest import Manifest, write_manifest
from ssp_env.search.index.store import build_store
from ssp_env.search.index.workplace import Workplace
from ssp_env.types import Passages

CHECKED = 8
"""Passages that are encoded and compared with their vectors."""
LEAST_COSINE = 0.8
"""Of a passage's vector with the stored one: compression and half precision cost less than that."""


def adopt_index(
    source: str | Path,
    directory: str | Path,
    index_file: str | Path,
    encoder: Encoder,
    progress: Progress = no_progress,
) -> Path:
    """Makes an index directory of a corpus and a FAISS file with the vectors of its passages.

    The file gets a second name in the directory (a hard link, which takes no room); it is copied
    where the directory is on another file system.

    Args:
        source: Search-R1's JSONL, plain or gzip; passage ``n`` is vector ``n``.
        directory: the index directory; created if need be.
        index_file: of a flat, HNSW or IVF index by inner product.
        encoder: the one that the vectors were made with, with its prefixes.
        progress: told how far it is.

    Returns:
        The index's folder.

    Raises:
        DataError: a corpus or file that cannot be read, another kind of index, other counts or
            dimensions; vectors in another order or by another encoder; an index that is there.
    """
    path = Path(index_file)
    index = read_faiss(path)
    kind = kind_of(index)
    if kind is None:
        what = f"holds a {type(index).__name__}"
        raise DataError(path, f"{what}; a flat, HNSW or IVF index by inner product is wanted")
    if index.d != encoder.info.dimension:
        what = f"has vectors of {index.d} numbers, {encoder.info.name} of {encoder.info.dimension}"
        raise DataError(path, f"{what}; give the encoder that it was made with")

    store = build_store(source, Path(directory) / PASSAGES, progress)
    if index.ntotal != len(store):
        what = f"holds {index.ntotal:,} vectors, {source} {len(store):,} passages"
        raise DataError(path, f"{what}; give the corpus that it was made of")
    lowest = _spot_check(path, index, store, encoder)

    parameters: dict[str, Any] = {"adopted": path.name, "lowest_cosine_checked": round(lowest, 4)}
    if kind != FLAT:
        parameters |= tune(kind, index, None, likely_queries(store, encoder))
    place = Workplace(Path(directory) / kind)
    with place.open():
        place.clear()
        try:
            os.link(path.resolve(), place.path / INDEX)
        except OSError:
            shutil.copyfile(path, place.path / INDEX)
        manifest = Manifest(kind, store.digest(), len(store), encoder.info, parameters)
        write_manifest(place.path, manifest)
        place.publish()
    return place.target


def _spot_check(path: Path, index: Any, store: Passages, encoder: Encoder) -> float:
    """The lowest cosine of some passages with their vectors.

    Raises:
        DataError: a passage is nearer to another's vector, or not near its own.
    """
    count = len(store)
    checked = np.unique(np.linspace(0, count - 1, CHECKED).round().astype(np.int64))
    # The neighbours too: a file that is off by one passage is nearly right.
    others = np.unique(np.clip(np.concatenate([checked - 1, checked, checked + 1]), 0, count - 1))
    try:
        if kind_of(index) == IVF:
            index.make_direct_map()
        stored = np.stack([index.reconstruct(position) for position in others.tolist()])
    except RuntimeError as error:
        what = f"does not give its vectors by position ({error})"
        raise DataError(path, f"{what}; vectors numbered from 0 on are wanted") from error

    lengths = np.linalg.norm(stored, axis=1)
    if np.abs(lengths - 1).max() > 0.05:
        what = f"holds vectors of length {lengths.max():.3g}"
        raise DataError(path, f"{what}; those of unit length are wanted")

    texts = [passage_text(store[int(position)]) for position in checked]
    cosines = encoder.encode_passages(texts) @ stored.T
    own = cosines[np.arange(len(checked)), np.searchsorted(others, checked)]
    wrong = np.flatnonzero((own < LEAST_COSINE) | (own < cosines.max(axis=1) - 0.02))
    if len(wrong):
        row = int(wrong[0])
        nearest = int(others[cosines[row].argmax()])
        what = (
            f"vector {checked[row]} is not that of passage {checked[row]} by {encoder.info.name} "
            f"(cosine {own[row]:.3f}; vector {nearest} has {cosines[row].max():.3f})"
        )
        fix = "give the corpus in the file's order, and its encoder with its prefixes"
        raise DataError(path, f"{what}; {fix}")
    return float(own.min())

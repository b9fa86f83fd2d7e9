"""Builds a BM25 index on disk in bounded memory.

bm25s itself needs all words of all passages at once, as lists. So the words are counted in blocks
of passages, each of which is spilled, and the blocks are then sorted into bm25s's arrays. The
scores are those of bm25s, bit for bit. Memory: a block (about 60 bytes per word of it), 16 bytes
per distinct word of each block, and 4 bytes per passage."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.bm25.index import (
    COLUMNS,
    K1,
    KIND,
    PARAMETERS,
    PASSAGES,
    SCORES,
    WORDS,
    B,
    BM25Index,
    words_of,
)
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.index.arrays import hash_text
from ssp_env.search.index.directory import Encoder
from ssp_env.search.index.manifest import EncoderInfo, Manifest
from ssp_env.search.index.store import PassageStore
from ssp_env.search.index.workplace import Progress, Workplace

BLOCK_WORDS = 4_000_000
"""Running words of a block."""
_EVERY = 2048
"""Passages between two reports of progress."""

_Block = dict[str, NDArray[Any]]
"""The words of some passages: ``words`` uint64 (w), rising hashes; ``sizes`` int64 (w), how many
passages have each; ``passages`` and ``counts`` int32, the passages of one word after the other and
how often each has it; ``lengths`` int32, the running words of each passage of the block."""


class BM25Kind:
    """The ``"bm25"`` kind; see :class:`ssp_env.search.index.directory.IndexKind`."""

    packages = ("numpy", "bm25s")
    needs_encoder = False

    def __init__(self, name: str = KIND) -> None:
        self.name = name

    def load_encoder(
        self, directory: str | Path, recorded: EncoderInfo | None, device: str | None = None
    ) -> Encoder:
        """Not called: this kind needs none."""
        raise NotImplementedError

    def build(
        self, place: Workplace, store: PassageStore, encoder: Encoder | None, progress: Progress
    ) -> dict[str, Any]:
        """Starts over where a killed build left something.

        Raises:
            DataError: more passages than 32-bit positions can name.
        """
        if len(store) >= 2**31:
            what = f"holds {len(store):,} passages; an index takes up to {2**31 - 1:,}"
            raise DataError(store.folder, what)
        place.clear()
        scratch = place.path / "scratch"
        scratch.mkdir()

        paths = []
        for number, block in enumerate(_blocks(store, progress)):
            paths.append(scratch / f"{number}.npz")
            np.savez(paths[-1], allow_pickle=False, **block)
        _merge(place.path, paths, len(store), progress)
        shutil.rmtree(scratch)
        return PARAMETERS

    def open(
        self, folder: Path, store: PassageStore, encoder: Encoder | None, manifest: Manifest
    ) -> BM25Retriever:
        """See :meth:`ssp_env.search.bm25.index.BM25Index.open`."""
        return BM25Retriever(store, BM25Index.open(folder, store.digest()))


def _blocks(store: PassageStore, progress: Progress) -> Iterator[_Block]:
    vocabulary: defaultdict[str, int] = defaultdict()
    vocabulary.default_factory = vocabulary.__len__
    text: list[int] = []
    lengths: list[int] = []
    for position, document in enumerate(store, start=1):
        words = words_of(document)
        text += [vocabulary[word] for word in words]
        lengths.append(len(words))

        last = position == len(store)
        if last or position % _EVERY == 0:
            progress("counting words", position, len(store))
        if last or len(text) >= BLOCK_WORDS:
            yield _block(list(vocabulary), text, lengths, position - len(lengths))
            vocabulary.clear()
            text, lengths = [], []


def _block(vocabulary: list[str], text: list[int], lengths: list[int], first: int) -> _Block:
    """Sorts the running words of passages, from position ``first`` on, by word, then passage."""
    hashes = np.array([hash_text(word) for word in vocabulary], np.uint64)
    words, ranks = np.unique(hashes, return_inverse=True)
    passages = np.repeat(np.arange(first, first + len(lengths)), lengths)

    # Word and passage as one number each, so that one sort does for both.
    occurrences = ranks[np.array(text, np.int64)] << 32 | passages
    pairs, counts = np.unique(occurrences, return_counts=True)
    return {
        "words": words,
        "sizes": np.bincount(pairs >> 32, minlength=len(words)),
        "passages": (pairs & 0xFFFFFFFF).astype(np.int32),
        "counts": counts.astype(np.int32),
        "lengths": np.array(lengths, np.int32),
    }


def _merge(folder: Path, paths: list[Path], passages: int, progress: Progress) -> None:
    """Writes the index. A block's postings go behind those of the blocks before it, by word."""
    parts = [_parts(path, "words", "sizes", "lengths") for path in paths]
    words = np.unique(np.concatenate([part[0] for part in parts]))
    lengths = np.concatenate([part[2] for part in parts])
    sizes = np.zeros(len(words), np.int64)
    for some, theirs, _ in parts:
        sizes[np.searchsorted(words, some)] += theirs
    columns = np.concatenate([[0], np.cumsum(sizes)])
    np.save(folder / WORDS, words)
    np.save(folder / COLUMNS, columns)

    idf = np.log(1 + (passages - sizes + 0.5) / (sizes + 0.5)).astype(np.float32)
    mean = lengths.mean(dtype=np.float64)
    total, done, ends = int(columns[-1]), 0, columns[:-1].copy()
    all_passages = _reserved(folder / PASSAGES, np.int32, total)
    all_scores = _reserved(folder / SCORES, np.float32, total)
    for path, (some, theirs, _) in zip(paths, parts, strict=True):
        who, counts = _parts(path, "passages", "counts")
        rows = np.searchsorted(words, some)
        starts = ends[rows] - (np.cumsum(theirs) - theirs)
        places = np.repeat(starts, theirs) + np.arange(len(who))
        ends[rows] += theirs

        # As bm25s does it: idf in float32, the rest in float64.
        share = counts / (K1 * (1 - B + B * lengths[who] / mean) + counts)
        all_scores[places] = share * np.repeat(idf[rows], theirs)
        all_passages[places] = who
        done += len(who)
        progress("merging postings", done, total)


def _parts(path: Path, *names: str) -> list[NDArray[Any]]:
    with np.load(path, allow_pickle=False) as block:
        return [block[name] for name in names]


def _reserved(path: Path, dtype: Any, rows: int) -> Any:
    """An array on disk to write to, memory-mapped.

    Its room is reserved first: where the disk is full, writing to a mapping kills the process."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(rows,))
    with open(path, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array

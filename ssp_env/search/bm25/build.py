"""Builds a BM25 index on disk in bounded memory: sorted runs of postings, then one merge over them.

The index is a folder of five arrays and a manifest:

================ =================================================================================
``words.npy``    uint64 (w), rising: 8-byte BLAKE2b of each word; its row is the word's index
``starts.npy``   int64 (w + 1): where the list of each word begins
``passages.npy`` int32 (postings): the passages of each list, rising
``scores.npy``   float32 (postings): the word's BM25 score in that passage
``peaks.npy``    float32 (w): the highest score of each list
================ =================================================================================

Words are known by their hash alone. Among ten million words, two share one with a probability of
three in a million.

Pass one counts the words of each passage and spills a run, sorted by word, every :data:`RUN_WORDS`
words. Pass two takes one range of words after the other, gathers its lists from all runs and
appends them with their scores. The scores are those of bm25s, bit for bit. Memory, whichever is
more: a run (about 50 bytes a word of it), or a range of :data:`RANGE_POSTINGS` postings (or the
longest list), about 30 bytes a distinct word and 4 bytes a passage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.bm25.retriever import (
    K1,
    KIND,
    PARAMETERS,
    PASSAGES,
    PEAKS,
    SCORES,
    STARTS,
    WORDS,
    B,
    BM25Index,
    BM25Retriever,
    words_of,
)
from ssp_env.search.index.directory import Encoder
from ssp_env.search.index.store import PassageStore, hash_id
from ssp_env.search.index.workplace import SCRATCH, ArrayWriter, Progress, Workplace

RUN_WORDS = 2_000_000
"""Running words that are held in memory before they are spilled."""
RANGE_POSTINGS = 2_000_000
"""Postings that are merged at once."""
_EVERY = 2048
"""Passages between two reports of progress."""

_RUN_FILES = {
    "words": np.uint64,
    "ends": np.int64,
    "passages": np.int32,
    "counts": np.int32,
    "lengths": np.int32,
}


class BM25Kind:
    """The ``"bm25"`` kind; see :class:`ssp_env.search.index.directory.IndexKind`."""

    packages = ("numpy",)
    needs_encoder = False

    def __init__(self, name: str = KIND) -> None:
        self.name = name

    def build(
        self, place: Workplace, store: PassageStore, encoder: Encoder | None, progress: Progress
    ) -> dict[str, Any]:
        """
        Raises:
            DataError: more passages than 32-bit positions can name.
        """
        if len(store) >= 2**31:
            raise DataError(
                store.folder, f"holds {len(store):,} passages; an index takes up to {2**31 - 1:,}"
            )
        _count(place, store, progress)
        _merge(place, len(store), progress)
        return PARAMETERS

    def open(self, folder: Path, store: PassageStore, encoder: Encoder | None) -> BM25Retriever:
        """
        Raises:
            DataError: the files are not what they should be.
        """
        return BM25Retriever(store, BM25Index.open(folder, store.digest()))


def _count(place: Workplace, store: PassageStore, progress: Progress) -> None:
    """Pass one. ``scratch/`` holds five arrays, run after run; the journal says where each run
    ends.

    ``words`` (hashes, rising within a run), ``ends`` (where the word's postings end), ``passages``
    and ``counts`` (postings), ``lengths`` (words a passage)."""
    state = place.state() or {"runs": [], "passages": 0}
    if state["passages"] == len(store):
        return
    scratch = place.path / SCRATCH
    scratch.mkdir(exist_ok=True)
    words, postings = state["runs"][-1] if state["runs"] else (0, 0)
    rows = {
        "words": words,
        "ends": words,
        "passages": postings,
        "counts": postings,
        "lengths": state["passages"],
    }
    files = {
        name: ArrayWriter(scratch / f"{name}.npy", dtype, rows=rows[name])
        for name, dtype in _RUN_FILES.items()
    }
    try:
        for run in _runs(store, state["passages"], progress):
            for name, array in run.items():
                files[name].append(array + files["passages"].rows if name == "ends" else array)
            for file in files.values():
                file.sync()
            state["runs"].append((files["words"].rows, files["passages"].rows))
            state["passages"] = files["lengths"].rows
            if state["passages"] == len(store):
                for file in files.values():
                    file.finish()
            place.checkpoint(state)
    finally:
        for file in files.values():
            file.close()


def _runs(store: PassageStore, start: int, progress: Progress) -> Iterator[dict[str, NDArray[Any]]]:
    vocabulary: defaultdict[str, int] = defaultdict()
    vocabulary.default_factory = vocabulary.__len__
    text: list[int] = []
    lengths: list[int] = []
    for position, document in enumerate(store.read_from(start), start + 1):
        words = words_of(document)
        text += [vocabulary[word] for word in words]
        lengths.append(len(words))
        if position % _EVERY == 0 or position == len(store):
            progress("counting words", position, len(store))
        if len(text) >= RUN_WORDS or position == len(store):
            first = position - len(lengths)
            yield _run(vocabulary, np.array(text, np.int64), np.array(lengths, np.int32), first)
            vocabulary.clear()
            text, lengths = [], []


def _run(
    vocabulary: dict[str, int], text: NDArray[np.int64], lengths: NDArray[np.int32], first: int
) -> dict[str, NDArray[Any]]:
    """Sorts a run by word, then passage, and counts.

    Args:
        vocabulary: the run's words.
        text: its running words, as indices into the vocabulary.
        lengths: how many each passage has.
        first: position of the first passage.
    """
    hashes = [hash_id(word.encode("utf-8", "surrogatepass")) for word in vocabulary]
    words, ranks = np.unique(np.array(hashes, np.uint64), return_inverse=True)
    text = ranks[text] << 32
    text |= np.repeat(np.arange(first, first + len(lengths)), lengths)
    text.sort()
    firsts = np.flatnonzero(np.diff(text, prepend=-1))
    counts = np.diff(firsts, append=len(text)).astype(np.int32)
    text = text[firsts]
    ends = np.searchsorted(text >> 32, np.arange(len(words)), side="right")
    passages = (text & 0xFFFFFFFF).astype(np.int32)
    return {
        "words": words,
        "ends": ends,
        "passages": passages,
        "counts": counts,
        "lengths": lengths,
    }


@dataclass(frozen=True, slots=True)
class _Spilled:
    """The runs, memory-mapped, and where each ends."""

    words: NDArray[np.uint64]
    ends: NDArray[np.int64]
    bounds: list[tuple[int, int, int]]
    """A run: its first word, the one after its last, its first posting."""


def _merge(place: Workplace, passages: int, progress: Progress) -> None:
    """Pass two."""
    state, scratch = place.state(), place.path / SCRATCH
    spilled = _spilled(place)
    words, frequencies = _vocabulary(spilled)
    starts = np.zeros(len(words) + 1, np.int64)
    np.cumsum(frequencies, out=starts[1:])
    _write(place, WORDS, words)
    _write(place, STARTS, starts)
    score = _Scores(np.load(scratch / "lengths.npy", allow_pickle=False), frequencies, passages)
    done = state.get("merged", 0)
    rows = {PASSAGES: int(starts[done]), SCORES: int(starts[done]), PEAKS: done}
    types = {PASSAGES: np.int32, SCORES: np.float32, PEAKS: np.float32}
    files = {name: ArrayWriter(place.path / name, types[name], rows=rows[name]) for name in rows}
    try:
        with (
            open(scratch / "passages.npy", "rb") as who,
            open(scratch / "counts.npy", "rb") as many,
        ):
            for begin, end in _ranges(starts, done):
                lists, counts = _gather(spilled, (who, many), words, starts, begin, end)
                scores = score(lists, counts, begin, end)
                files[PASSAGES].append(lists)
                files[SCORES].append(scores)
                files[PEAKS].append(np.maximum.reduceat(scores, starts[begin:end] - starts[begin]))
                for file in files.values():
                    file.sync()
                place.checkpoint({**state, "merged": end})
                progress("merging postings", int(starts[end]), int(starts[-1]))
        for file in files.values():
            file.finish()
    finally:
        for file in files.values():
            file.close()


def _spilled(place: Workplace) -> _Spilled:
    scratch = place.path / SCRATCH
    words = np.asarray(np.load(scratch / "words.npy", mmap_mode="r", allow_pickle=False))
    ends = np.asarray(np.load(scratch / "ends.npy", mmap_mode="r", allow_pickle=False))
    bounds, first_word, first_posting = [], 0, 0
    for after_words, after_postings in place.state()["runs"]:
        bounds.append((first_word, after_words, first_posting))
        first_word, first_posting = after_words, after_postings
    return _Spilled(words, ends, bounds)


def _vocabulary(spilled: _Spilled) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """All words, rising, and how many passages have each."""
    words = np.zeros(0, np.uint64)
    waiting: list[NDArray[np.uint64]] = []
    for index, (first, after, _) in enumerate(spilled.bounds):
        waiting.append(spilled.words[first:after])
        # Joining many runs at once sorts the words so far less often.
        if (
            sum(map(len, waiting)) > max(RANGE_POSTINGS, len(words))
            or index == len(spilled.bounds) - 1
        ):
            words = np.unique(np.concatenate([words, *waiting]))
            waiting = []
    frequencies = np.zeros(len(words), np.int64)
    for first, after, posting in spilled.bounds:
        frequencies[np.searchsorted(words, spilled.words[first:after])] += np.diff(
            spilled.ends[first:after], prepend=posting
        )
    return words, frequencies


def _ranges(starts: NDArray[np.int64], done: int) -> Iterator[tuple[int, int]]:
    """Ranges of words with at most :data:`RANGE_POSTINGS` postings, or of a single word that has
    more."""
    while done < len(starts) - 1:
        end = int(np.searchsorted(starts, starts[done] + RANGE_POSTINGS, side="right")) - 1
        end = max(end, done + 1)
        yield done, end
        done = end


def _gather(
    spilled: _Spilled,
    files: tuple[Any, Any],
    words: NDArray[np.uint64],
    starts: NDArray[np.int64],
    begin: int,
    end: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The lists of the words from ``begin`` to ``end``, one behind the other: passages and
    counts."""
    free = starts[begin:end] - starts[begin]
    total = int(starts[end] - starts[begin])
    lists, counts = np.empty(total, np.int32), np.empty(total, np.int32)
    for first, after, posting in spilled.bounds:
        run = spilled.words[first:after]
        low = first + int(np.searchsorted(run, words[begin]))
        high = first + int(np.searchsorted(run, words[end - 1], side="right"))
        if low == high:
            continue
        opening = int(spilled.ends[low - 1]) if low > first else posting
        ends = spilled.ends[low:high] - opening
        sizes = np.diff(ends, prepend=0)
        rows = np.searchsorted(words[begin:end], spilled.words[low:high])
        # Runs come in the order of passages, so each goes behind what earlier ones put into the
        # list.
        to = np.repeat(free[rows] - (ends - sizes), sizes) + np.arange(ends[-1])
        lists[to] = _read(files[0], opening, int(ends[-1]))
        counts[to] = _read(files[1], opening, int(ends[-1]))
        free[rows] += sizes
    return lists, counts


def _read(file: Any, first: int, count: int) -> NDArray[np.int32]:
    # Read, not mapped: pages of a file this large would count as this process's memory.
    file.seek(_HEADER + 4 * first)
    return np.frombuffer(file.read(4 * count), np.int32)


class _Scores:
    """BM25 as bm25s computes it: idf rounded to float32, the rest in float64, the product rounded
    to float32."""

    def __init__(
        self, lengths: NDArray[np.int32], frequencies: NDArray[np.int64], passages: int
    ) -> None:
        self._lengths = lengths
        self._mean = lengths.mean(dtype=np.float64)
        self._frequencies = frequencies
        self._passages = passages

    def __call__(
        self, lists: NDArray[np.int32], counts: NDArray[np.int32], begin: int, end: int
    ) -> NDArray[np.float32]:
        frequencies = self._frequencies[begin:end]
        values, rows = np.unique(frequencies, return_inverse=True)
        n = self._passages
        idf = np.array(
            [math.log(1 + (n - df + 0.5) / (df + 0.5)) for df in values.tolist()], np.float32
        )
        tf = counts.astype(np.float64)
        share = K1 * ((1 - B) + B * self._lengths[lists] / self._mean)
        share += tf
        np.divide(tf, share, out=share)
        share *= np.repeat(idf[rows], frequencies)
        scores: NDArray[np.float32] = share.astype(np.float32)
        return scores


def _write(place: Workplace, name: str, array: NDArray[Any]) -> None:
    writer = ArrayWriter(place.path / name, array.dtype)
    writer.append(array)
    writer.finish()


_HEADER = 128
"""Bytes before the first element in a vector that
:class:`~ssp_env.search.index.workplace.ArrayWriter` wrote."""

"""Inverted lists of 8-bit vectors (IVF-SQ8), over FAISS: each vector stands in the list of the
centre nearest to it.

Its files are described in :mod:`ssp_env.search.dense.neighbours`.
"""

from __future__ import annotations

import os
from functools import partial
from math import log2, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.dense.vectors import VectorFile, Vectors, faiss, make, write_faiss
from ssp_env.search.index.workplace import ArrayWriter, Progress, again, load_array

LISTS, SIZES = "lists.bin", "list_sizes.npy"
_SAMPLE = 48
"""Vectors a list, from which the lists' centres are learnt."""


def list_count(vectors: int) -> int:
    """Lists for so many vectors: about twice the root, a power of two, at most 1 in 48 vectors."""
    return min(1 << round(log2(2 * sqrt(vectors))), max(1, vectors // _SAMPLE))


def sampled(count: int) -> NDArray[np.int64]:
    """Positions of the vectors that lists are learnt from, rising."""
    return np.sort(np.random.default_rng(0).permutation(count)[: _SAMPLE * list_count(count)])


def _sample_of(vectors: VectorFile) -> Vectors:
    positions = sampled(vectors.count)
    parts = []
    for first, shard in vectors.shards():
        begin, end = np.searchsorted(positions, (first, first + len(shard)))
        parts.append(shard[positions[begin:end] - first])
    return np.concatenate(parts)


def empty_lists(sample: Vectors, count: int) -> Any:
    """An index for so many vectors that has learnt its lists and codes from a sample, and holds
    nothing."""
    dimension = sample.shape[1]
    module = faiss()
    quantizer = module.IndexFlatIP(dimension)
    code = module.ScalarQuantizer.QT_8bit
    index = module.IndexIVFScalarQuantizer(
        quantizer, dimension, list_count(count), code, module.METRIC_INNER_PRODUCT
    )
    quantizer.this.disown()
    index.own_fields = True
    index.cp.seed, index.cp.spherical, index.cp.min_points_per_centroid = 0, True, 1
    index.train(sample)
    return index


def write_lists(vectors: VectorFile, folder: Path, scratch: Path, progress: Progress) -> Path:
    """Learns lists and fills them; what an earlier call left in ``scratch`` is used.

    Memory: the sample (48 vectors a list), twice, or a shard of the vectors.

    Args:
        vectors: of unit length.
        folder: for the lists.
        scratch: for what only the build needs.
        progress: told how many vectors are in.

    Returns:
        A file of the index without its lists, which :func:`map_lists` gives it.
    """
    trained = scratch / "trained.faiss"
    make(trained, lambda path: write_faiss(empty_lists(_sample_of(vectors), vectors.count), path))
    shards = []
    for first, shard in vectors.shards():
        shards.append(scratch / f"shard-{first:012d}.faiss")
        make(shards[-1], partial(_write_shard, trained, first, shard))
        progress("filling lists", first + len(shard), vectors.count)
    _merge(trained, shards, folder)
    return trained


def _write_shard(trained: Path, first: int, shard: Vectors, path: Path) -> None:
    index = faiss().read_index(str(trained))
    index.add_with_ids(shard, np.arange(first, first + len(shard)))
    write_faiss(index, path)


def _merge(trained: Path, shards: list[Path], folder: Path) -> None:
    """Joins the lists of all shards into one file.

    FAISS would write them through a mapping, where a full disk kills the process.
    """
    module = faiss()
    index = module.read_index(str(trained))
    # Mapped to the last: a plain mapping would hold every shard's centres in memory.
    parts = [module.read_index(str(shard), module.IO_FLAG_MMAP_IFC) for shard in shards]
    sizes = np.zeros(index.nlist, np.uint64)
    with open(folder / LISTS, "wb") as file:
        for number in range(index.nlist):
            lengths = [part.invlists.list_size(number) for part in parts]
            sizes[number] = sum(lengths)
            for part, length in zip(parts, lengths, strict=True):
                file.write(
                    module.rev_swig_ptr(part.invlists.get_codes(number), length * index.code_size)
                )
            for part, length in zip(parts, lengths, strict=True):
                file.write(module.rev_swig_ptr(part.invlists.get_ids(number), length))
        file.flush()
        os.fsync(file.fileno())
    sizes_file = ArrayWriter(folder / SIZES, np.uint64)
    sizes_file.append(sizes)
    sizes_file.finish()


def map_lists(index: Any, folder: Path, count: int) -> None:
    """Gives an empty index the lists of a folder, memory-mapped.

    Raises:
        DataError: the files do not fit each other.
    """
    sizes = load_array(folder / SIZES, np.uint64, rows=index.nlist)
    size = count * (index.code_size + 8)
    if sizes.sum() != count or index.ntotal or (folder / LISTS).stat().st_size != size:
        raise DataError(folder, f"does not hold lists of {count} vectors; {again(folder)}")
    lists = faiss().OnDiskInvertedLists(index.nlist, index.code_size, str(folder / LISTS))
    lists.read_only = True
    # FAISS would start 32 threads a search to read ahead what the page cache holds.
    lists.prefetch_nthread = 0
    lists.set_all_lists_sizes(faiss().swig_ptr(sizes))
    lists.totsize = size
    lists.do_mmap()
    index.replace_invlists(lists, True)
    lists.this.disown()
    index.ntotal = count

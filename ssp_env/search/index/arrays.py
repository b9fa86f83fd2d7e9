"""Arrays on disk, memory-mapped, and the hashes by which strings are found in them."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError
from ssp_env.search.index.workplace import again


def load_array(path: Path, dtype: Any, rows: int | None = None) -> NDArray[Any]:
    """A vector in a ``.npy`` file, memory-mapped and read-only. Nothing in it can run code.

    Raises:
        DataError: not such a file, or one of another type or number of rows than is given.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        what = f"is not an array that can be read ({error})"
        raise DataError(path, f"{what}; {again(path.parent)}") from error

    fits = array.ndim == 1 and (rows is None or len(array) == rows)
    if array.dtype != np.dtype(dtype) or not fits:
        wanted = f"{np.dtype(dtype)} of shape ({'any' if rows is None else rows},)"
        what = f"holds {array.dtype} of shape {array.shape}, not {wanted}"
        raise DataError(path, f"{what}; {again(path.parent)}")
    return np.asarray(array)  # a plain array over the same pages: np.memmap is slow to slice


def hash_text(text: str) -> int:
    """8-byte BLAKE2b of a string's UTF-8. Lone surrogates, which JSON can spell, are kept."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")

"""Memory that passes of a large policy on a CPU take and free: kept within a pass, given back after
it. Both are calls of glibc's; with other C libraries nothing happens.

    >>> keep_freed_memory()  # once, before the first pass
    >>> give_back_memory()  # after each
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Numbers of settings in glibc's ``malloc.h``."""


def keep_freed_memory() -> None:
    """Has this process keep what it frees, for what it needs next.

    By itself, glibc gives large blocks back to the system at once. Each page of the next block is
    then cleared anew, one page at a time: more than half of the time of an update of Qwen2.5-0.5B
    (docs/training.md)."""
    if (set_option := _glibc("mallopt")) is not None:
        set_option(_MMAP_MAX, 0)
        set_option(_TRIM_THRESHOLD, 2**31 - 1)


def give_back_memory() -> None:
    """Gives the system what this process has freed. Else it would lie in pieces between
    longer-lived tensors, and passes of unlike shapes would take ever more."""
    if (trim := _glibc("malloc_trim")) is not None:
        trim(0)


def _glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None

"""A map of bounded size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """A map of bounded size that forgets what was not used for longest. Safe between threads;
    copies are empty."""

    def __init__(self, size: int) -> None:
        """
        Args:
            size: most entries; 0 keeps none.
        """
        self._size = size
        self._lock = Lock()
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, which counts as used now; ``None`` where there is none."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: K, value: V) -> None:
        """Keeps a value."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)

    def __reduce__(self) -> tuple[type[LRU[K, V]], tuple[int]]:
        return type(self), (self._size,)

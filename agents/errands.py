"""Calls of services that run beside generation, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_AT_ONCE = 32
"""Calls that wait side by side; each may hold many queries or tasks."""


class Errands:
    """What is under way, and what is to be done with each result, in the caller's own thread."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        """``at_once``: how many calls wait side by side."""
        self._at_once = at_once
        self._threads: ThreadPoolExecutor | None = None
        self._open: dict[Future[Any], Callable[[Any], None]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._threads is not None:
            # After an error nobody waits for what is still under way.
            self._threads.shutdown(wait=error is None, cancel_futures=True)

    def __len__(self) -> int:
        return len(self._open)

    def send(self, call: Callable[[], T], then: Callable[[T], None]) -> None:
        """Begins a call, which must change nothing; ``then`` gets what it returns."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._at_once, thread_name_prefix="ssp-errand")
        self._open[self._threads.submit(call)] = then

    def collect(self, patience: bool) -> None:
        """Hands over the results that are there.

        Args:
            patience: wait for at least one.

        Raises:
            SSPError: whatever a call raised.
        """
        if not self._open:
            return

        done, _ = wait(self._open, None if patience else 0.0, FIRST_COMPLETED)
        for future in [future for future in self._open if future in done]:
            self._open.pop(future)(future.result())

"""Ctrl-C in the midst of long work."""

from __future__ import annotations

import atexit
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible(tell: Callable[[], object]) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C is only noted, a second one interrupts at once; yields whether one was
    noted.

    Python's own KeyboardInterrupt comes anywhere, so also in a library that swallows it, as
    happened in the first second of ``ssp bootstrap``.

    Args:
        tell: called at the first Ctrl-C, in a thread of its own: the signal may have come in the
            middle of a print.
    """
    noted = False

    def note(signum: int, frame: Any) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True
        threading.Thread(target=tell, daemon=True).start()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C is ignored: for what ends in a second or two, and leaves a mess if it is stopped in
    its midst."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ignore_at_exit() -> None:
    """Ctrl-C is ignored by what other libraries do when the process ends, if they were imported
    before.

    Else it takes the place of the exit status.
    """
    atexit.unregister(_ignore)
    atexit.register(_ignore)


def _ignore() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

"""Ctrl-C during long work."""

from __future__ import annotations

import atexit
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible(tell: Callable[[], object]) -> Iterator[Callable[[], bool]]:
    """Only notes the first Ctrl-C; a second one interrupts at once. Yields whether one was noted.

    KeyboardInterrupt can strike anywhere, even in a library that swallows it: that happened in the
    first second of ``ssp bootstrap``.

    Args:
        tell: called at the first Ctrl-C, in its own thread, because the signal may arrive in the
            middle of a print.
    """
    if not _gets_signals():
        yield lambda: False
        return

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
def telling(tell: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Ctrl-C is told at once, and does what it did before.

    For libraries that have a way of their own with it, silent for as long as their work takes.
    Yields what is to be called when one of them has put its own handler in place.

    Args:
        tell: called at each Ctrl-C, in its own thread, because the signal may arrive in the
            middle of a print.
    """
    if not _gets_signals():
        yield lambda: None
        return

    def wrap() -> None:
        inner = signal.getsignal(signal.SIGINT)

        def told(signum: int, frame: Any) -> None:
            threading.Thread(target=tell, daemon=True).start()
            if callable(inner):
                inner(signum, frame)

        signal.signal(signal.SIGINT, told)

    before = signal.getsignal(signal.SIGINT)
    wrap()
    try:
        yield wrap
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignores Ctrl-C, for work of a second or two that would leave a mess if stopped halfway."""
    if not _gets_signals():
        yield
        return

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _gets_signals() -> bool:
    """Python hands signals to its main thread, and lets no other say what becomes of them.

    A trial of a sweep runs in a thread of its own; Ctrl-C is the matter of whoever started it.
    """
    return threading.current_thread() is threading.main_thread()


def ignore_at_exit() -> None:
    """Ignores Ctrl-C while libraries that are imported already clean up at the end of the process.

    Otherwise a Ctrl-C there would replace the exit status.
    """
    atexit.unregister(_ignore)
    atexit.register(_ignore)


def _ignore() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

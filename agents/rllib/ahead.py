"""Playing the next step while the last one is learnt from (``overlap``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def meanwhile(play: Callable[[], T], *, elsewhere: bool) -> Iterator[Callable[[], T]]:
    """Has something played while the block runs.

    Args:
        play: what is done.
        elsewhere: whether other processes do it, so that this one only waits. What this process
            does itself is done before the block: the order of things is the same, so the result is.

    Yields:
        A function that waits for the result; it raises what ``play`` raised.
    """
    if not elsewhere:
        result = play()
        yield lambda: result
        return

    thread = ThreadPoolExecutor(1, thread_name_prefix="playing-ahead")
    future: Future[T] = thread.submit(play)
    try:
        yield future.result
    finally:
        # After an error in the block, nobody waits for games that nobody will learn from.
        thread.shutdown(wait=False)

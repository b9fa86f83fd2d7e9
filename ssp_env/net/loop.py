"""An event loop in its own thread, for code that blocks but whose waiting has to end on time.

A blocking socket can only be given a time-out for each single read; a server that sends a byte now
and then outlasts any of them. A task on an event loop can be cancelled wherever it waits, name
look-ups included."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ssp_env.errors import UsageError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads and event loops; its thread starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def owns(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this is the thread's loop; starts nothing and waits for nothing."""
        return self._loop is loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Blocks until a coroutine is done. Interrupted while it waits, it cancels the coroutine.

        Raises:
            UsageError: called on this very loop, which would wait for itself for ever.
        """
        running = _running_loop()
        if running is not None and self.owns(running):
            work.close()
            what = "a blocking call on the event loop that is to serve it"
            raise UsageError(f"{what}; make it in another thread, as asyncio.to_thread does")

        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_run, args=(self._loop,), name=self._name, daemon=True
                ).start()

            return asyncio.run_coroutine_threadsafe(work, self._loop)


def shared() -> LoopThread:
    """The one loop that all HTTP clients of this process share."""
    return _shared


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _forget() -> None:
    # Threads do not survive a fork: the child needs its own loop.
    global _shared
    _shared = LoopThread("ssp-http")


_shared = LoopThread("ssp-http")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

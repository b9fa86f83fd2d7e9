"""Parts of all HTTP clients: an event loop, retries with back-off, addresses and keys."""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from ssp_env.errors import ConfigError, ServiceError, TransientServiceError, UsageError

T = TypeVar("T")

OVERLOADED = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that is away or has too much to do."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
"""Seconds before the second call, which double each time, and their bound; jitter adds to them."""

_sleep = asyncio.sleep
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_lock = threading.Lock()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Blocks until a coroutine is done, which runs on a loop that all clients of a process share.

    A blocking socket can only be given a time-out for each single read, which a server that sends a
    byte now and then outlasts; a task on a loop can be cancelled wherever it waits. An interrupted
    caller cancels the coroutine.

    Raises:
        UsageError: called on the shared loop itself, which would wait for itself for ever.
    """
    loop = shared_loop()
    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        work.close()
        raise UsageError("a blocking call on the event loop that is to serve it")

    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def shared_loop() -> asyncio.AbstractEventLoop:
    """The loop of :func:`run`, in a thread of its own. A forked process has another one."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="ssp-http", daemon=True).start()
        return loop


class Connections(Generic[T]):
    """A client with open connections, made where it is first used and closed with its owner.

    Connections belong to a loop, so a forked process makes its own."""

    def __init__(
        self, owner: object, make: Callable[[], T], close: Callable[[T], Coroutine[Any, Any, None]]
    ) -> None:
        self._make, self._aclose, self._closed = make, close, False
        self._made: list[tuple[asyncio.AbstractEventLoop, T]] = []
        weakref.finalize(owner, self.close).atexit = False

    def get(self) -> T:
        """The client of the running loop.

        Raises:
            UsageError: it is closed.
        """
        if self._closed:
            raise UsageError("this client is closed; make a new one")
        loop = asyncio.get_running_loop()
        if not self._made or self._made[0][0] is not loop:
            self._made[:] = [(loop, self._make())]
        return self._made[0][1]

    def close(self) -> None:
        """Closes the connections; those of a parent process are left alone."""
        self._closed = True
        while self._made:
            loop, client = self._made.pop()
            if loop is _loops.get(os.getpid()):
                asyncio.run_coroutine_threadsafe(self._aclose(client), loop)


async def retried(call: Callable[[], Awaitable[T]], attempts: int, seconds: float) -> T:
    """Awaits a call, and again after a growing pause as long as it raises TransientServiceError.

    The jitter is not seeded: nothing that is compared depends on it.

    Args:
        call: makes the call.
        attempts: calls in all.
        seconds: a pause that would end later is not begun.

    Raises:
        ServiceError: the last failure; its cause is what ``call`` raised.
    """

    import tenacity  # here, so that settings do not wait for it

    def pause(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        grown = min(FIRST_PAUSE * 2.0 ** (state.attempt_number - 1), LONGEST_PAUSE)
        asked: float | None = getattr(error, "retry_after", None)
        return max(grown * random.uniform(1, 1.25), asked or 0.0)

    calls = 0
    try:
        async for attempt in tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(attempts) | tenacity.stop_before_delay(seconds),
            wait=pause,
            retry=tenacity.retry_if_exception_type(TransientServiceError),
            sleep=_sleep,
            reraise=True,
        ):
            calls += 1
            with attempt:
                return await call()
    except TransientServiceError as error:
        what = f"{error.what} (after {calls} call{'s' if calls > 1 else ''})"
        raise ServiceError(error.service, what, calls, error.fault) from error
    raise AssertionError("unreachable: tenacity raises the last error")


def check_url(name: str, url: str, example: str) -> None:
    """Checks the setting ``name``.

    Raises:
        ConfigError: no address of a server, or one with a password in it.
    """
    fix = f"give an address such as {example}"
    if not re.match(r"https?://[^/\s]", url):
        raise ConfigError(name, url, fix)

    if "@" in url:
        fix = "leave user and password out; name an environment variable with a token instead"
        raise ConfigError(name, "...", fix)
    try:
        port = urlsplit(url).port
    except ValueError as error:
        raise ConfigError(name, url, f"{fix} ({error})") from error
    if port == 0:
        raise ConfigError(name, url, "a port is a number from 1 to 65535")


def check_key_name(name: str, variable: str | None) -> None:
    """Checks the setting ``name``.

    Raises:
        ConfigError: no name of an environment variable; it is not shown, as it may be the key.
    """
    if variable is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise ConfigError(name, "...", "give the name of an environment variable, not the key")


def read_key(name: str, variable: str | None) -> str | None:
    """The key in an environment variable; ``None`` for no variable.

    Raises:
        ConfigError: it is not set, or holds what no header can carry; ``name`` is the setting.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(name, variable, "set this environment variable to the key or token")
    return key

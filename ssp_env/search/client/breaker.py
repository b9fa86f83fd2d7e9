"""A circuit breaker: a server that keeps failing is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ssp_env.errors import ServiceError


class CircuitBreaker:
    """Closed, every request passes. After ``failures`` in a row it opens, and no new one passes for
    ``seconds``.

    A failure is a request that was given up after all its tries; requests under way when it opens
    go on with theirs. Later one request may try (half-open): if it fails, the breaker opens anew.
    Any answer, to whichever request, closes it. Safe between threads; a copy for another process
    starts closed."""

    def __init__(
        self, name: str, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            name: what errors call the server.
            failures: how many requests, given up in a row, open it.
            seconds: how long it stays open.
            clock: monotonic seconds.
        """
        self._name, self._limit, self._seconds, self._clock = name, failures, seconds, clock
        self._lock = threading.Lock()
        self._failures = 0
        self._opened: float | None = None
        self._probing = False
        self._last = ""

    @property
    def open(self) -> bool:
        """Whether the server is being left alone, or a single request is trying it."""
        return self._opened is not None

    def enter(self) -> bool:
        """Asks whether a request may go out; if so, :meth:`leave` has to follow.

        Returns:
            Whether it is the one that tries; to be handed to :meth:`leave`.

        Raises:
            ServiceError: it may not.
        """
        with self._lock:
            if self._opened is None:
                return False
            left = self._opened + self._seconds - self._clock()
            if left <= 0 and not self._probing:
                self._probing = True
                return True
            when = (
                f"the next one is tried in {left:.1f} s" if left > 0 else "one is being tried now"
            )
            what = f"{self._name} was not called: its last {self._failures} requests failed, {when}"
            raise ServiceError("search", f"{what}; the last failure: {self._last}")

    def answered(self) -> None:
        """Reports that the server answered as it should, or refused the very request; as soon as
        that is known."""
        with self._lock:
            self._failures, self._opened = 0, None

    def leave(self, failure: str | None, trying: bool) -> None:
        """Reports that a request is over.

        Args:
            failure: why it was given up, if that is the server's failure and nothing of the request
                was answered.
            trying: what :meth:`enter` returned.
        """
        with self._lock:
            if trying:
                self._probing = False
            if failure is None:
                return
            self._failures, self._last = self._failures + 1, failure
            # A request from before it opened adds nothing to the wait; nor does the one that tried
            # open anew what another's answer has closed meanwhile.
            if trying if self._opened is not None else self._failures >= self._limit:
                self._opened = self._clock()

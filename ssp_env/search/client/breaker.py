"""A circuit breaker: a server that keeps failing is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum

from ssp_env.errors import ServiceError


class Outcome(Enum):
    """What a request says about the server."""

    ALIVE = "alive"
    """It answered as it should, or refused this very request."""
    FAILED = "failed"
    """It was not there, not in time, overloaded, or could not answer a single query."""
    UNKNOWN = "unknown"
    """Nothing: the request was given up, or one query of many may be to blame."""


class CircuitBreaker:
    """Closed, everything passes. After ``failures`` in a row it opens, and nothing passes for ``seconds``.

    Then one request may try (half-open): if it succeeds the breaker closes, if it fails it opens anew. Any success
    closes it. Safe between threads; a copy for another process starts closed.
    """

    def __init__(self, name: str, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            name: what errors call the server.
            failures: how many in a row open it.
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
            when = f"the next one is tried in {left:.1f} s" if left > 0 else "one is being tried now"
            what = f"{self._name} was not called: its last {self._failures} calls failed, {when}"
            raise ServiceError("search", f"{what}; the last failure: {self._last}")

    def leave(self, outcome: Outcome, what: str = "", trying: bool = False) -> None:
        """Reports how a request went.

        Args:
            outcome: what it says about the server.
            what: the failure, for errors.
            trying: what :meth:`enter` returned.
        """
        with self._lock:
            if trying:
                self._probing = False
            if outcome is Outcome.ALIVE:
                self._failures, self._opened = 0, None
            elif outcome is Outcome.FAILED:
                self._failures, self._last = self._failures + 1, what
                # A request from before it opened adds nothing to the wait.
                if trying or (self._opened is None and self._failures >= self._limit):
                    self._opened = self._clock()

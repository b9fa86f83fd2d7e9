"""Retries with jittered exponential back-off, for calls that leave the process."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ssp_env.errors import ConfigError, ServiceError, TransientServiceError

T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently a failing call is tried again."""

    attempts: int = 4
    """Calls in all, the first included; at least 1."""
    first_delay: float = 0.25
    """Seconds before the second call; doubles each time. Jitter removes up to half of a pause."""
    max_delay: float = 8.0
    """Seconds that no single pause exceeds, unless the service itself asks for a longer one."""
    max_retry_after: float = 60.0
    """Longest pause, in seconds, that ``Retry-After`` may ask for; a longer one is an error."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError("retry.attempts", self.attempts, "at least one call has to be made")

        for name in ("first_delay", "max_delay", "max_retry_after"):
            seconds = getattr(self, name)
            if not 0 <= seconds < math.inf:
                raise ConfigError(
                    f"retry.{name}", seconds, "a delay is a finite number of seconds, zero or more"
                )

    def call(self, function: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
        """Calls until it succeeds, fails for good, or the attempts are spent.

        Only :class:`TransientServiceError` is tried again. The jitter takes its own generator: the
        pause is the one thing in the package that is meant to differ between runs, and nothing
        compared depends on it.

        Raises:
            ServiceError: the last failure. It is never a ``TransientServiceError``, so retries
                around retries do not multiply.
        """
        for number, pause in enumerate(self._pauses(), start=1):
            try:
                return function()
            except TransientServiceError as error:
                sleep(self._next(error, number, pause))

        raise AssertionError("the last pause is never slept through")

    async def call_async(
        self, function: Callable[[], Awaitable[T]], patience: Callable[[], float] | None = None
    ) -> T:
        """:meth:`call` for a coroutine function.

        Args:
            function: what is awaited.
            patience: how many seconds are left; a pause that would take as long is not begun.

        Raises:
            ServiceError: as for :meth:`call`.
        """
        for number, pause in enumerate(self._pauses(), start=1):
            try:
                return await function()
            except TransientServiceError as error:
                seconds = self._next(error, number, pause)
                if patience is not None and seconds >= patience():
                    raise _final(error, number, "no time is left for another") from error
                await asyncio.sleep(seconds)

        raise AssertionError("the last pause is never slept through")

    def _pauses(self) -> Iterator[float | None]:
        """The pause after each attempt; ``None`` after the last one."""
        jitter = random.Random()
        pause = min(self.first_delay, self.max_delay)
        for _ in range(self.attempts - 1):
            yield pause * jitter.uniform(0.5, 1.0)
            pause = min(pause * 2, self.max_delay)

        yield None

    def _next(self, error: TransientServiceError, number: int, pause: float | None) -> float:
        """The seconds to wait after a failed attempt.

        Raises:
            ServiceError: there is to be no other one.
        """
        if pause is None:
            raise _final(error, number) from error

        asked = error.retry_after or 0.0
        if asked > self.max_retry_after:
            raise _final(error, number, f"it asks to be left alone for {asked:g} s") from error

        return max(pause, asked)


def _final(error: TransientServiceError, number: int, why: str = "") -> ServiceError:
    calls = "1 call" if number == 1 else f"{number} calls"
    what = f"{error.what} (after {calls}{'; ' if why else ''}{why})"
    return ServiceError(error.service, what, number, error.fault)

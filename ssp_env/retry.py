"""Retries with jittered exponential back-off, for calls that leave the process."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
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
    """Seconds before the second call; doubles with each further one. Jitter takes off up to half of each pause."""
    max_delay: float = 8.0
    """Seconds that no single pause exceeds."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError("retry.attempts", self.attempts, "at least one call has to be made")
        for name, seconds in (("first_delay", self.first_delay), ("max_delay", self.max_delay)):
            if not 0 <= seconds < math.inf:
                raise ConfigError(f"retry.{name}", seconds, "a delay is a finite number of seconds, zero or more")

    def call(self, function: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
        """Calls until it succeeds, fails for good, or the attempts are spent.

        Only :class:`TransientServiceError` is tried again. The jitter takes its own generator: the pause
        is the one thing in the package that is meant to differ between runs, and nothing compared depends on it.

        Raises:
            ServiceError: the last failure. It is never a ``TransientServiceError``, so retries around retries
                do not multiply.
        """
        jitter = random.Random()
        pause = min(self.first_delay, self.max_delay)
        for _ in range(self.attempts - 1):
            try:
                return function()
            except TransientServiceError:
                sleep(pause * jitter.uniform(0.5, 1.0))
                pause = min(pause * 2, self.max_delay)
        try:
            return function()
        except TransientServiceError as error:
            calls = "1 call" if self.attempts == 1 else f"{self.attempts} calls"
            raise ServiceError(error.service, f"{error.what} (after {calls})") from error

"""Settings of the HTTP retriever."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ssp_env.checks import at_least
from ssp_env.errors import ConfigError
from ssp_env.net.http import check_key_name, check_url
from ssp_env.net.retry import RetryPolicy

_PATH = "/retrieve"
_PATIENT = RetryPolicy(attempts=8)


@dataclass(frozen=True)
class HTTPConfig:
    """Where the server is and how it is called."""

    url: str
    """Address of the server, such as ``http://127.0.0.1:8000``; ``/retrieve`` is appended where it
    is missing."""
    token_env: str | None = None
    """*Name* of the environment variable that holds a bearer token; ``None`` for a server that asks
    for none."""
    timeout: float = 20.0
    """Seconds for one request, from looking up the name to the last byte of the reply."""
    deadline: float = 60.0
    """Seconds for a whole search: its requests, their repetitions, pauses and waiting for a free
    connection."""
    connections: int = 16
    """Most requests under way at a time, over all threads that share the retriever."""
    max_batch: int = 64
    """Most queries of one request; a larger batch becomes several requests, sent side by side."""
    max_query_chars: int = 4096
    """Longest query that is sent. A longer one is cut, not refused: it is a policy's doing, and
    what a policy does must not look like an outage. Dense encoders read no further than some 256
    tokens either."""
    max_reply_bytes: int = 32 * 2**20
    """Longest reply that is read."""
    retry: RetryPolicy = _PATIENT
    """How often a request is tried, as long as ``deadline`` allows: 8 times, with pauses of 12 to
    24 seconds in all, which outlive a server's restart. A search that fails is a void game."""

    def __post_init__(self) -> None:
        check_url("server.url", self.url, "http://127.0.0.1:8000")
        check_key_name("server.token_env", self.token_env)

        for name in ("timeout", "deadline"):
            seconds = getattr(self, name)
            if not (seconds > 0 and math.isfinite(seconds)):
                fix = "give a finite number of seconds above zero"
                raise ConfigError(f"server.{name}", seconds, fix)

        counts = ("connections", "max_batch", "max_query_chars", "max_reply_bytes")
        at_least(self, "server", 1, *counts)

    @property
    def endpoint(self) -> str:
        """The address that is posted to."""
        address = self.url.rstrip("/")
        return address if address.endswith(_PATH) else address + _PATH

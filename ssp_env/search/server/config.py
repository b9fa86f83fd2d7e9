"""Settings of the search server."""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ssp_env.errors import ConfigError

TOKEN_VARIABLE = "SSP_SERVE_TOKEN"
"""Environment variable that may hold the bearer token."""
MIN_TOKEN = 16
"""Characters that a token has at least."""
_TOKEN = f"a token is {MIN_TOKEN} or more printable ASCII characters without spaces"


@dataclass(frozen=True)
class ServerConfig:
    """Settings of the search server, checked when made.

    Raises:
        ConfigError: a value out of its range, or a host that others can reach without a token.
    """

    host: str = "127.0.0.1"
    """Address to bind. Any but the machine's own (loopback) needs a token, or ``no_token``."""
    port: int = 8000
    """Port to bind; 0 takes a free one."""
    token: str | None = field(default=None, repr=False)
    """What requests carry as ``Authorization: Bearer ...``; ``None`` asks for nothing. The probe
    ``/healthz`` is open all the same."""
    no_token: bool = False
    """Whether anyone may ask without a token, wherever it is bound: for a trusted network."""
    default_k: int = 3
    """Documents per query when a request names no ``topk``, or 0; Search-R1's own default."""
    max_k: int = 100
    """Largest ``topk`` of a request."""
    max_queries: int = 4096
    """Most queries of a request. Search-R1 sends a whole rollout batch in one (512 prompts of 5
    rollouts)."""
    max_documents: int = 16_384
    """Most documents that a request may ask for: its queries times ``topk``. A document of 600
    characters makes an answer of 10 MB."""
    max_query_length: int = 8192
    """Longest query, in characters. A longer one is cut: a policy wrote it, and the other queries
    of its batch are not to blame."""
    max_body_bytes: int = 16 * 2**20
    """Most bytes of a request's body."""
    max_batch: int = 256
    """Most queries of a backend call that joins requests; a larger request has its own."""
    max_waiting: int = 16_384
    """Most queries that wait for their answer; a request beyond is answered with 503 and
    ``Retry-After``."""
    answer_seconds: float = 60.0
    """Most seconds for a request, from its head to its answer; then 504."""

    def __post_init__(self) -> None:
        for name, least, most, why in (
            ("port", 0, 65535, "0 takes any free one"),
            ("max_k", 1, self.max_documents, "which is max_documents"),
            ("default_k", 1, self.max_k, "which is max_k"),
            ("max_queries", 1, self.max_waiting, "which is max_waiting"),
            ("max_query_length", 1, math.inf, "in characters"),
            ("max_body_bytes", 1, math.inf, "in bytes"),
            ("max_batch", 1, math.inf, "in queries"),
            ("answer_seconds", 0.001, 1e6, "in seconds"),
        ):
            if not least <= getattr(self, name) <= most:
                fix = f"give a number from {least} to {most}, {why}"
                raise ConfigError(name, getattr(self, name), fix)

        if self.token is not None and self.no_token:
            raise ConfigError("no_token", True, "a token is given as well; leave one of them out")
        if self.token is not None and not _is_token(self.token):
            raise ConfigError("token", "(not shown)", _TOKEN)
        if self.token is None and not (self.no_token or is_loopback(self.host)):
            fix = (
                f"others can reach this address: put a token into {TOKEN_VARIABLE} or a "
                "--token-file, bind 127.0.0.1, or say --no-token if you trust everyone there"
            )
            raise ConfigError("host", self.host, fix)


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name, which may be anything
        return False


def read_token(file: str | Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token from a file, or else from the environment variable; ``None`` if neither is given.

    Raises:
        ConfigError: the file cannot be read, or what is given is no token; names where it came
            from.
    """
    if file is None:
        where, token = TOKEN_VARIABLE, environment.get(TOKEN_VARIABLE)
    else:
        try:
            where, token = "token-file", Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("token-file", str(file), f"cannot be read: {error}") from None
    if token is not None and not _is_token(token):
        raise ConfigError(where, "(not shown)", _TOKEN)
    return token


def _is_token(text: str) -> bool:
    return len(text) >= MIN_TOKEN and all("!" <= character <= "~" for character in text)

"""Settings of search: an index or a server to ask, and our own server."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssp_env.config import Settings
from ssp_env.errors import ConfigError
from ssp_env.net import check_key_name, check_url

PATH = "/retrieve"
"""Path of a server's search."""
TOKEN_VARIABLE = "SSP_SERVE_TOKEN"
"""Environment variable that may hold the server's bearer token."""
MIN_TOKEN = 16
"""Characters that a token has at least."""


class HTTPConfig(Settings):
    """Address of a search server and how it is called."""

    section: ClassVar[str] = "server"

    url: str
    """Address of the server, such as ``http://127.0.0.1:8000``; ``/retrieve`` is appended where it
    is missing."""
    token_env: str | None = None
    """*Name* of the environment variable that holds a bearer token; ``None`` for a server that asks
    for none."""
    timeout: PositiveFloat = 20.0
    """Seconds for one request, from looking up the name to the last byte of the reply."""
    deadline: PositiveFloat = 60.0
    """Seconds for a whole search: its requests, their repetitions, pauses and waiting for a free
    connection."""
    attempts: PositiveInt = 8
    """Requests in all for a search that fails, within ``deadline``; the pauses of 8 outlive a
    server's restart."""
    connections: PositiveInt = 16
    """Most requests under way at a time, over all threads that share the retriever."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_url("server.url", self.url, "http://127.0.0.1:8000")
        check_key_name("server.token_env", self.token_env)
        return self

    @property
    def endpoint(self) -> str:
        """The address that is posted to."""
        address = self.url.rstrip("/")
        return address if address.endswith(PATH) else address + PATH


class SearchConfig(Settings):
    """An index directory, or a server; neither: the world's own retriever."""

    section: ClassVar[str] = "search"

    index: str = ""
    """A directory that ``ssp index`` made; empty: none."""
    kind: Literal["", "hybrid", "bm25", "dense-flat", "dense-ivf-sq8"] = ""
    """Index of the directory: ``bm25``, ``dense-flat``..., or ``hybrid``, which fuses all of them.
    May stay empty where there is only one."""
    encoder: str = ""
    """Directory of a dense index's encoder; empty: where it was when the index was built."""
    device: str = ""
    """PyTorch's name of the device for encoder and reranker; empty: a GPU if there is one."""
    reranker: str = ""
    """Directory of a cross-encoder that puts the first 50 documents into its order; empty: none."""
    server: HTTPConfig | None = None
    """A server that speaks Search-R1's protocol, such as ``ssp serve``."""
    cache: str = ""
    """A directory of rankings that outlast the process. Delete it when a server's index changes."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.server is not None and self.index:
            fix = "a server is named as well; leave one of them out"
            raise ConfigError("search.index", self.index, fix)
        for name in ("kind", "encoder", "device", "reranker"):
            if getattr(self, name) and not self.index:
                fix = "goes with search.index, an index directory"
                raise ConfigError(f"search.{name}", getattr(self, name), fix)
        if self.cache and not (self.index or self.server):
            fix = "goes with search.index or search.server"
            raise ConfigError("search.cache", self.cache, fix)
        return self

    @classmethod
    def of(cls, given: Any) -> Self:
        """Settings from a mapping of them or a single text: a server's address, which begins with
        ``http``, or an index directory; empty: the world's own retriever."""
        if isinstance(given, str | Path):
            name = "server" if str(given).startswith(("http://", "https://")) else "index"
            given = {name: {"url": given} if name == "server" else str(given)}
        if not isinstance(given, Mapping | SearchConfig):
            fix = "give an address, an index directory, or a mapping of the fields of SearchConfig"
            raise ConfigError("search", given, fix)
        return cls(**dict(given))


class ServerConfig(Settings):
    """Settings of the search server."""

    section: ClassVar[str] = "server"

    host: str = "127.0.0.1"
    """Address to bind. Any but the machine's own (loopback) needs a token, or ``no_token``."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to bind; 0 takes a free one."""
    token: str | None = Field(None, repr=False)
    """Token that requests carry as ``Authorization: Bearer ...``; ``None`` asks for nothing. The
    probe ``/healthz`` is open all the same."""
    no_token: bool = False
    """Let anyone ask without a token, wherever it is bound: for a trusted network."""
    answer_seconds: PositiveFloat = 60.0
    """Most seconds that a search may take; then 504."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.token is not None:
            if len(self.token) < MIN_TOKEN or not all("!" <= each <= "~" for each in self.token):
                fix = f"a token is {MIN_TOKEN} or more printable ASCII characters without spaces"
                raise ConfigError("server.token", "(not shown)", fix)
        elif not self.no_token and not _is_loopback(self.host):
            fix = (
                f"others can reach this address: put a token into {TOKEN_VARIABLE}, bind "
                "127.0.0.1, or say --no-token if you trust everyone there"
            )
            raise ConfigError("server.host", self.host, fix)
        return self


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name, which may be anything
        return False

"""Settings of search: the retriever of a training run, an environment or a sweep, and the server.

:class:`SearchConfig` is the data, :func:`check_search` finds out early whether it can work, and
:func:`open_search` opens the retriever, in whichever process plays.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ssp_env.config import Settings
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.net import check_key_name, check_url
from ssp_env.search.base import Retriever, search_each
from ssp_env.search.fuse import HybridRetriever
from ssp_env.search.index import (
    kinds_in,
    needs_encoder,
    one_kind,
    open_index,
    open_passages,
    recorded_encoder,
)

PATH = "/retrieve"
"""Path of a server's search."""
HYBRID = "hybrid"
"""The kind that fuses all indexes of a directory."""
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
    """Requests in all for a search that fails, as long as ``deadline`` allows. The pauses of 8 take
    about 24 seconds, which outlives a server's restart: a search that fails is a void game."""
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
    kind: Literal["", "hybrid", "bm25", "dense-flat", "dense-hnsw", "dense-ivf-sq8"] = ""
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
    """A directory of rankings that outlast the process, to ask no query twice; empty: none. Delete
    it when a server's index changes: nothing in its address tells."""

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
        ``http``, or an index directory; empty: the world's own retriever.

        Raises:
            ConfigError: a setting that cannot work.
        """
        if isinstance(given, str | Path):
            name = "server" if str(given).startswith(("http://", "https://")) else "index"
            given = {name: {"url": given} if name == "server" else str(given)}
        if not isinstance(given, Mapping | SearchConfig):
            fix = "give an address, an index directory, or a mapping of the fields of SearchConfig"
            raise ConfigError("search", given, fix)
        return cls(**dict(given))


def open_search(config: SearchConfig) -> Retriever | None:
    """The retriever that is meant; ``None``: the world's own.

    Raises:
        ConfigError: the directory has no such index, or the encoder is not where it should be; the
            variable for a server's token is not set.
        DataError: the index is half built, corrupt, or not one at all.
        ModelError: encoder or reranker cannot be loaded.
        MissingExtra: they need packages that are not installed.
    """
    if config.server is None and not config.index:
        return None

    retriever = _open_server(config.server) if config.server else _open_directory(config)
    if config.cache:
        from ssp_env.search.cache import CachedRetriever

        retriever = CachedRetriever(retriever, config.cache)
    return retriever


def check_search(config: SearchConfig) -> None:
    """Finds out whether :func:`open_search` can work, without loading a model.

    A server is asked for one query, with less patience than games have.

    Raises:
        ConfigError, DataError, MissingExtra: as :func:`open_search` does.
        ServiceError: the server does not answer.
    """
    if config.server is not None:
        server = config.server
        impatient = server.replace(attempts=2, deadline=min(10, server.deadline))
        retriever = _open_server(impatient)
        (answer,) = search_each(retriever, ["search"], 1)
        if isinstance(answer, ServiceError):
            raise ServiceError("search", f"{server.url} does not answer: {answer.what}")

    if config.index:
        for kind in _kinds(config):
            if needs_encoder(kind) and not config.encoder:
                recorded_encoder(Path(config.index) / kind)
        for name in ("encoder", "reranker"):
            model = getattr(config, name)
            if model and not Path(model).is_dir():
                raise ConfigError(f"search.{name}", model, "there is no such directory")


def _open_server(config: HTTPConfig) -> Retriever:
    from ssp_env.search.client import HTTPRetriever  # here: settings need no HTTP

    return HTTPRetriever(config)


def _kinds(config: SearchConfig) -> list[str]:
    """The indexes that are searched."""
    directory = Path(config.index)
    if not directory.is_dir():
        fix = "there is no such directory; `ssp index CORPUS --out DIR` makes one"
        raise ConfigError("search.index", config.index, fix)

    if config.kind != HYBRID:
        return [one_kind(directory, config.kind or None)]
    kinds = kinds_in(directory)
    if len(kinds) < 2:
        fix = f"{directory} has {', '.join(kinds) or 'no index'}; there is nothing to fuse"
        raise ConfigError("search.kind", config.kind, fix)
    return kinds


def _open_directory(config: SearchConfig) -> Retriever:
    open_passages(config.index)  # refuses what is no index directory, in the clearest words
    encoder, device = config.encoder or None, config.device or None
    parts = []
    for kind in _kinds(config):
        # A hybrid's encoder is for its dense parts.
        model = encoder if config.kind != HYBRID or needs_encoder(kind) else None
        parts.append(open_index(config.index, kind, encoder=model, device=device))

    retriever = HybridRetriever(parts) if config.kind == HYBRID else parts[0]
    if config.reranker:
        # Imported here: models need PyTorch, which a search by words can do without.
        from ssp_env.search.encoder import CrossEncoderReranker
        from ssp_env.search.fuse import RerankedRetriever

        reranker = CrossEncoderReranker(config.reranker, device=device)
        retriever = RerankedRetriever(retriever, reranker)
    return retriever


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
    """Whether anyone may ask without a token, wherever it is bound: for a trusted network."""
    max_k: PositiveInt = 100
    """Largest ``topk`` of a request."""
    max_queries: PositiveInt = 4096
    """Most queries of a request. Search-R1 sends a whole rollout batch in one (512 prompts of 5
    rollouts)."""
    max_waiting: PositiveInt = 16_384
    """Most queries that wait for their answer; a request beyond is answered with 503 and
    ``Retry-After``."""
    answer_seconds: PositiveFloat = 60.0
    """Most seconds for a request, from its head to its answer; then 504."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.token is not None:
            _check_token("server.token", self.token)
        elif not self.no_token and not _is_loopback(self.host):
            fix = (
                f"others can reach this address: put a token into {TOKEN_VARIABLE} or a "
                "--token-file, bind 127.0.0.1, or say --no-token if you trust everyone there"
            )
            raise ConfigError("server.host", self.host, fix)
        return self


def read_token(file: str | Path | None) -> str | None:
    """The token from a file, or else from the environment variable; ``None`` if neither is given.

    Raises:
        ConfigError: the file cannot be read, or what is given is no token; names where it came
            from.
    """
    if file is None:
        where, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
    else:
        try:
            where, token = "token-file", Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("token-file", str(file), f"cannot be read: {error}") from None
    if token is not None:
        _check_token(where, token)
    return token


def _check_token(where: str, token: str) -> None:
    if len(token) < MIN_TOKEN or not all("!" <= character <= "~" for character in token):
        fix = f"a token is {MIN_TOKEN} or more printable ASCII characters without spaces"
        raise ConfigError(where, "(not shown)", fix)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name, which may be anything
        return False

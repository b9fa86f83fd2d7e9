"""Which retriever answers searches, as plain settings: of a training run, an environment, a sweep.

:class:`SearchConfig` is the data, :func:`check_search` finds out early whether it can work, and
:func:`open_search` opens the retriever, in whichever process plays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from ssp_env.checks import at_least, one_of
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.base import Retriever
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.search.hybrid import HybridRetriever
from ssp_env.search.index.directory import (
    KINDS,
    kinds_in,
    needs_encoder,
    one_kind,
    open_index,
    open_passages,
    recorded_encoder,
)
from ssp_env.settings import check_types, named

HYBRID = "hybrid"
"""The kind that fuses all indexes of a directory."""


@dataclass(frozen=True)
class SearchConfig:
    """An index directory, or a server; neither: the world's own retriever.

    A text is taken for the whole of it: an address that begins with ``http``, or a directory.
    """

    index: str = ""
    """A directory that ``ssp index`` made; empty: none."""
    kind: str = ""
    """Which index of the directory: ``bm25``, ``dense-flat``..., or ``hybrid``, which fuses all of
    them. May stay empty where there is only one."""
    encoder: str = ""
    """Directory of a dense index's encoder; empty: where it was when the index was built."""
    device: str = ""
    """PyTorch's name of the device for encoder and reranker; empty: a GPU if there is one."""
    reranker: str = ""
    """Directory of a cross-encoder that puts the first documents into its order; empty: none."""
    rerank_depth: int = 50
    """How many documents per query the reranker sees."""
    server: HTTPConfig | None = None
    """A server that speaks Search-R1's protocol, such as ``ssp serve``."""
    cache: str = ""
    """A directory of rankings that outlast the process, to ask no query twice; empty: none."""
    cache_identity: str = ""
    """With ``cache``: what is searched and how, in words of your own. Nothing in a query or an
    address tells an old index from a new one."""

    SYNONYMS: ClassVar[Mapping[str, str]] = {
        "url": "server",
        "address": "server",
        "directory": "index",
        "path": "index",
        "model": "encoder",
    }
    """What these settings are called elsewhere; an error offers the name here."""

    def __post_init__(self) -> None:
        check_types(self, "search")
        at_least(self, "search", 1, "rerank_depth")
        one_of("search.kind", self.kind, ("", HYBRID, *KINDS))
        if self.server is not None and self.index:
            fix = "a server is named as well; leave one of them out"
            raise ConfigError("search.index", self.index, fix)

        fix = "goes with search.index, an index directory"
        for name in ("kind", "encoder", "device", "reranker"):
            if getattr(self, name) and not self.index:
                raise ConfigError(f"search.{name}", getattr(self, name), fix)
        if self.device and not (self.encoder or self.reranker or self.kind != "bm25"):
            fix = "BM25 needs no device; leave it out"
            raise ConfigError("search.device", self.device, fix)

        if self.cache and not self.cache_identity:
            fix = "name what is searched, so that another index's rankings are never taken for it"
            raise ConfigError("search.cache_identity", self.cache_identity, fix)
        if self.cache and not (self.index or self.server):
            fix = "goes with search.index or search.server"
            raise ConfigError("search.cache", self.cache, fix)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """An address that begins with ``http``, or a directory; empty: the world's own retriever.

        Raises:
            ConfigError: an address that cannot be one.
        """
        if text.startswith(("http://", "https://")):
            return cls(server=HTTPConfig(text))
        return cls(index=text)


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

    with named("search"):
        retriever = HTTPRetriever(config.server) if config.server else _index(config)
        if config.cache:
            from ssp_env.search.cache.retriever import CachedRetriever

            identity = config.cache_identity
            retriever = CachedRetriever(retriever, path=config.cache, identity=identity)
        return retriever


def check_search(config: SearchConfig) -> None:
    """Finds out whether :func:`open_search` can work, without loading a model.

    A server is asked for one query, with less patience than games have.

    Raises:
        ConfigError, DataError, MissingExtra: as :func:`open_search` does.
        ServiceError: the server does not answer.
    """
    with named("search"):
        if config.server is not None:
            _ask(config.server)
        if config.index:
            for kind in _kinds(config):
                if needs_encoder(kind) and not config.encoder:
                    recorded_encoder(Path(config.index) / kind)
            for name in ("encoder", "reranker"):
                model = getattr(config, name)
                if model and not Path(model).is_dir():
                    raise ConfigError(name, model, "there is no such directory")


def _ask(config: HTTPConfig) -> None:
    impatient = replace(config, retry=RetryPolicy(attempts=2), deadline=min(10, config.deadline))
    with HTTPRetriever(impatient) as server:
        (answer,) = server.search_each(["search"], 1)
    if isinstance(answer, ServiceError):
        raise ServiceError("search", f"{config.url} does not answer: {answer.what}")


def _kinds(config: SearchConfig) -> list[str]:
    """The indexes that are searched."""
    directory = Path(config.index)
    if not directory.is_dir():
        fix = "there is no such directory; `ssp index CORPUS --out DIR` makes one"
        raise ConfigError("index", config.index, fix)

    if config.kind != HYBRID:
        return [one_kind(directory, config.kind or None)]
    kinds = kinds_in(directory)
    if len(kinds) < 2:
        fix = f"{directory} has {', '.join(kinds) or 'no index'}; there is nothing to fuse"
        raise ConfigError("kind", config.kind, fix)
    return kinds


def _index(config: SearchConfig) -> Retriever:
    open_passages(config.index)  # refuses what is no index directory, in the clearest words
    encoder, device = config.encoder or None, config.device or None
    parts = []
    for kind in _kinds(config):
        # A hybrid's encoder is for its dense parts.
        unwanted = config.kind == HYBRID and not needs_encoder(kind)
        model = None if unwanted else encoder
        parts.append(open_index(config.index, kind, encoder=model, device=device))

    retriever = HybridRetriever(parts) if config.kind == HYBRID else parts[0]
    if config.reranker:
        # Imported here: models need PyTorch, which a search by words can do without.
        from ssp_env.search.rerank import CrossEncoderReranker, RerankedRetriever

        reranker = CrossEncoderReranker(config.reranker, device=device)
        retriever = RerankedRetriever(retriever, reranker, config.rerank_depth)
    return retriever

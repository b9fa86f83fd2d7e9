"""Opens the retriever that settings name, in whichever process plays, or checks early that it can
be opened."""

from __future__ import annotations

from pathlib import Path

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.search.base import Retriever
from ssp_env.search.client import HTTPRetriever
from ssp_env.search.config import SearchConfig
from ssp_env.search.fuse import HybridRetriever
from ssp_env.search.index import kinds_in, one_kind, open_index, open_passages, recorded_encoder

HYBRID = "hybrid"
"""The kind that fuses all indexes of a directory."""


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

    retriever = HTTPRetriever(config.server) if config.server else _open_directory(config)
    if config.cache:
        from ssp_env.search.cache import CachedRetriever

        retriever = CachedRetriever(retriever, config.cache)
    return retriever


def check_search(config: SearchConfig) -> None:
    """Finds out whether :func:`open_search` can work, without loading a model.

    A server is asked for one query, with less patience than games have, and may be away."""
    if config.server is not None:
        server = config.server
        impatient = server.replace(attempts=2, deadline=min(10, server.deadline))
        with HTTPRetriever(impatient) as asked:
            (answer,) = asked.search_each(["search"], 1)
        if isinstance(answer, ServiceError):
            raise ServiceError("search", f"{server.url} does not answer: {answer.what}")

    if config.index:
        for kind in _kinds(config):
            if not config.encoder:
                recorded_encoder(Path(config.index) / kind)
        for name in ("encoder", "reranker"):
            model = getattr(config, name)
            if model and not Path(model).is_dir():
                raise ConfigError(f"search.{name}", model, "there is no such directory")


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
        model = None if config.kind == HYBRID and kind == "bm25" else encoder
        parts.append(open_index(config.index, kind, encoder=model, device=device))

    retriever = HybridRetriever(parts) if config.kind == HYBRID else parts[0]
    if config.reranker:
        # Imported here: models need PyTorch, which a search by words can do without.
        from ssp_env.search.encoder import CrossEncoderReranker
        from ssp_env.search.fuse import RerankedRetriever

        reranker = CrossEncoderReranker(config.reranker, device=device)
        retriever = RerankedRetriever(retriever, reranker)
    return retriever

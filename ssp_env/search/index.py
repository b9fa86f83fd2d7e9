"""Index directories (passages once, and indexes over them), and retrievers that settings name.

::

    DIR/passages/     the passages (:mod:`ssp_env.search.store`)
    DIR/bm25/         a BM25 index (:mod:`ssp_env.search.bm25`)
    DIR/dense-flat/   a dense index (:mod:`ssp_env.search.dense`)...

An index whose manifest names other passages is refused. A folder appears when it is whole; until
then it is called ``.NAME.unfinished``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ssp_env.disk import unfinished
from ssp_env.errors import ConfigError, DataError, ServiceError, nearest
from ssp_env.search.base import Retriever
from ssp_env.search.config import SearchConfig
from ssp_env.search.fuse import HybridRetriever, RerankedRetriever
from ssp_env.search.store import (
    PASSAGES,
    Encoder,
    EncoderInfo,
    Manifest,
    PassageStore,
    build_store,
    building,
    read_manifest,
    write_manifest,
)

KINDS = ("bm25", "dense-flat", "dense-ivf-sq8")
"""Kinds of index, by the name that their folder has too. All but the first need an encoder."""
HYBRID = "hybrid"
"""The kind that fuses all indexes of a directory."""


def build_index(
    source: str | Path,
    directory: str | Path,
    kind: str,
    *,
    encoder: Encoder | str | Path | None = None,
    progress: bool = False,
) -> Path:
    """Builds an index over a corpus file; does nothing where one is whole.

    A build that was killed starts over, but does not encode again what it has encoded.

    Args:
        source: Search-R1's JSONL, plain or gzip.
        directory: the index directory; created if need be. It may hold other kinds over the same
            passages.
        kind: one of :data:`KINDS`.
        encoder: for a dense kind; a directory is loaded as a sentence-transformers model.
        progress: shows bars on standard error.

    Returns:
        The index's folder.

    Raises:
        ConfigError: an unknown kind, an encoder missing or not wanted.
        DataError: a corpus that cannot be read, a directory that is a file, of other passages or
            made with another encoder, a disk that is full.
    """
    if kind not in KINDS:
        raise ConfigError("kind", kind, nearest(kind, KINDS))
    model = _encoder(kind, encoder)
    info = None if model is None else model.info
    store = build_store(source, Path(directory) / PASSAGES, progress=progress)
    folder = Path(directory) / kind
    if folder.exists():
        read_manifest(folder, kind, corpus=store.digest(), encoder=info)
        return folder

    with building(folder, resume=model is not None) as path:
        if model is None:
            from ssp_env.search import bm25

            parameters = bm25.build(path, store, progress)
        else:
            from ssp_env.search import dense

            parameters = dense.build(path, kind, store, model, progress)
        write_manifest(path, Manifest(kind, store.digest(), len(store), info, parameters))
    return folder


def adopt_index(
    source: str | Path,
    directory: str | Path,
    index_file: str | Path,
    encoder: Encoder,
    *,
    progress: bool = False,
) -> Path:
    """Makes an index directory of a corpus and a FAISS file with the vectors of its passages.

    That is how trainers of search agents pass indexes on: Search-R1's ``e5_Flat.index`` with
    ``wiki-18.jsonl``. The file gets a second name in the directory (a hard link, which takes no
    room); it is copied where the directory is on another file system.

    Args:
        source: Search-R1's JSONL, plain or gzip; passage ``n`` is vector ``n``.
        directory: the index directory; created if need be.
        index_file: of a flat or IVF index by inner product.
        encoder: the one that the vectors were made with, with its prefixes.
        progress: shows a bar on standard error.

    Returns:
        The index's folder.

    Raises:
        DataError: a corpus or file that cannot be read, another kind of index, other counts or
            dimensions; vectors in another order or by another encoder; an index that is there.
    """
    from ssp_env.search import dense

    path, info = Path(index_file), encoder.info
    index = dense.read_faiss(path)
    kind = dense.kind_of(index)
    if kind is None:
        raise DataError(
            path, f"is a {type(index).__name__}; flat or IVF by inner product is wanted"
        )
    store = build_store(source, Path(directory) / PASSAGES, progress=progress)
    if (index.ntotal, index.d) != (len(store), info.dimension):
        what = f"holds {index.ntotal:,} vectors of {index.d} numbers"
        wanted = f"{source} has {len(store):,} passages, {info.name} vectors of {info.dimension}"
        raise DataError(path, f"{what}, but {wanted}; give corpus and encoder that it is made of")
    dense.spot_check(path, index, store, encoder)

    parameters = {} if kind == dense.FLAT else {"lists_probed": dense.lists_probed(index)}
    folder = Path(directory) / kind
    with building(folder) as new:
        try:
            os.link(path.resolve(), new / dense.INDEX)
        except OSError:
            shutil.copyfile(path, new / dense.INDEX)
        write_manifest(new, Manifest(kind, store.digest(), len(store), info, parameters))
    return folder


def open_index(
    directory: str | Path,
    kind: str | None = None,
    *,
    encoder: Encoder | str | Path | None = None,
    device: str | None = None,
) -> Retriever:
    """Opens an index for searching. Files are mapped, not read: that takes milliseconds.

    Args:
        directory: as :func:`build_index` left it.
        kind: which index of the directory; may be left out where there is only one.
        encoder: for a dense kind: the one that it was built with, or the directory of its model.
            ``None`` loads the directory that the manifest names.
        device: PyTorch's name of where a directory's encoder computes; ``None`` takes a GPU if
            there is one.

    Raises:
        ConfigError: the kind is not in the directory, or several are and none is named; the model
            is not where the manifest says.
        DataError: the index is half built, cut, corrupt, of another format, or belongs to another
            corpus or encoder.
        ModelError: the directory of the encoder holds no model that can be loaded.
    """
    store = open_passages(directory)
    kind = one_kind(directory, kind)
    folder = Path(directory) / kind
    manifest = read_manifest(folder, kind, corpus=store.digest())
    model = _encoder(kind, encoder or recorded_encoder(folder), manifest.encoder, device)
    if model is None:
        from ssp_env.search.bm25 import BM25Retriever, DiskIndex

        return BM25Retriever(store, DiskIndex(folder))
    from ssp_env.search.dense import DenseRetriever

    read_manifest(folder, encoder=model.info)
    return DenseRetriever(folder, store, model, manifest)


def open_passages(directory: str | Path) -> PassageStore:
    """Opens only the passages of an index directory; no index need be there."""
    return PassageStore(Path(directory) / PASSAGES)


def kinds_in(directory: str | Path) -> list[str]:
    """The kinds of which a directory holds an index, whole or half built."""
    folders = {kind: Path(directory) / kind for kind in KINDS}
    return [kind for kind, path in folders.items() if path.exists() or unfinished(path).exists()]


def one_kind(directory: str | Path, kind: str | None) -> str:
    """The kind that is meant: the one that is named, or the only one there."""
    read_manifest(Path(directory) / PASSAGES, PASSAGES)
    there = kinds_in(directory)
    if not there:
        raise DataError(directory, "holds no index; `ssp index CORPUS --out DIR` makes one")
    if kind is None and len(there) == 1:
        return there[0]
    if kind is None:
        fix = f"{directory} holds several: give --kind (or kind=), one of {', '.join(there)}"
        raise ConfigError("kind", kind, fix)
    if kind not in there:
        fix = f"`ssp index --kind {kind}` adds it" if kind in KINDS else nearest(kind, there)
        raise ConfigError("kind", kind, f"{directory} has {', '.join(there)}; {fix}")
    return kind


def recorded_encoder(folder: Path) -> str | None:
    """Directory of the encoder that an index was built with; refuses one that is not there."""
    recorded = read_manifest(folder).encoder
    if recorded is not None and not Path(recorded.name).is_dir():
        fix = "the index's model is not here; give its directory (--encoder, or encoder=)"
        raise ConfigError("encoder", recorded.name, fix)
    return None if recorded is None else recorded.name


def _encoder(
    kind: str, encoder: Any, recorded: EncoderInfo | None = None, device: str | None = None
) -> Encoder | None:
    """The encoder that a kind needs; ``recorded`` is the one that its index was made with."""
    if (encoder is None) != (kind == "bm25"):
        fix = "a dense kind needs the encoder that turns texts into vectors, bm25 none"
        raise ConfigError("encoder", encoder, f"{kind!r} is asked for: {fix}")
    if encoder is None or not isinstance(encoder, str | Path):
        made: Encoder | None = encoder
        return made

    from ssp_env.search.encoder import SentenceTransformerEncoder

    # The model's directory may not name its prefixes.
    prefixes = (recorded.query_prefix, recorded.passage_prefix) if recorded else None
    return SentenceTransformerEncoder(encoder, prefixes=prefixes, device=device)


# -- what settings name ------------------------------------------------------------------------


def open_search(config: SearchConfig) -> Retriever | None:
    """The retriever that is meant; ``None``: the world's own.

    Raises:
        ConfigError: the directory has no such index, or the encoder is not where it should be; the
            variable for a server's token is not set.
        DataError: the index is half built, corrupt, or not one at all.
        ModelError: encoder or reranker cannot be loaded.
        MissingExtra: they need packages that are not installed.
    """
    # Imported here and below: HTTP and models are of no use to a search by words.
    from ssp_env.search.client import HTTPRetriever

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
        from ssp_env.search.client import HTTPRetriever

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
        from ssp_env.search.encoder import CrossEncoderReranker

        reranker = CrossEncoderReranker(config.reranker, device=device)
        retriever = RerankedRetriever(retriever, reranker)
    return retriever

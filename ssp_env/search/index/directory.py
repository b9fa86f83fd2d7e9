"""Index directories: passages once, and beside them any number of indexes over these passages.

::

    DIR/passages/     the passages (:mod:`ssp_env.search.index.store`)
    DIR/bm25/         a BM25 index (:mod:`ssp_env.search.bm25.disk`)
    DIR/dense-flat/   a dense index...

Each folder has its own ``manifest.json`` (:mod:`ssp_env.search.index.manifest`); an index whose
manifest names other passages is refused. A folder appears when it is whole; until then it is called
``NAME.building``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import ConfigError, DataError, nearest
from ssp_env.search.base import Retriever
from ssp_env.search.corpus import Progress, no_progress
from ssp_env.search.index.manifest import EncoderInfo, Manifest, read_manifest, write_manifest
from ssp_env.search.index.store import PassageStore, build_store
from ssp_env.search.index.workplace import Workplace, is_half_built

PASSAGES = "passages"


KINDS = ("bm25", "dense-flat", "dense-hnsw", "dense-ivf-sq8")
"""Kinds of index, by the name that their folder has too."""


class Encoder(Protocol):
    """Turns texts into vectors whose inner product is the similarity that ranks."""

    @property
    def info(self) -> EncoderInfo:
        """What ties an index to this encoder."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of queries: shape ``(len(texts), info.dimension)``."""
        ...

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of passages: shape ``(len(texts), info.dimension)``."""
        ...


def build_index(
    source: str | Path,
    directory: str | Path,
    kind: str,
    *,
    encoder: Encoder | str | Path | None = None,
    progress: Progress = no_progress,
) -> Path:
    """Builds an index over a corpus file; does nothing where one is whole.

    A build that was killed starts over, but does not encode again what it has encoded.

    Args:
        source: Search-R1's JSONL, plain or gzip.
        directory: the index directory; created if need be. It may hold other kinds over the same
            passages.
        kind: one of :data:`KINDS`.
        encoder: for a dense kind; a directory is loaded as a sentence-transformers model.
        progress: told how far it is.

    Returns:
        The index's folder.

    Raises:
        ConfigError: an unknown kind, an encoder missing or not wanted.
        DataError: a corpus that cannot be read, a directory that is a file, of other passages or
            made with another encoder, a disk that is full.
    """
    loaded = _loaded(kind, encoder)
    info = None if loaded is None else loaded.info
    store = build_store(source, Path(directory) / PASSAGES, progress)
    place = Workplace(Path(directory) / kind)
    if place.target.exists():
        read_manifest(place.target, kind, corpus=store.digest(), encoder=info)
        return place.target

    with place.open():
        parameters = _module(kind).build(place, store, loaded, progress)
        write_manifest(place.path, Manifest(kind, store.digest(), len(store), info, parameters))
        place.publish()
    return place.target


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
    directory = Path(directory)
    store = open_passages(directory)
    kind = one_kind(directory, kind)
    folder = directory / kind
    manifest = read_manifest(folder, kind, corpus=store.digest())

    if encoder is None:
        encoder = recorded_encoder(folder)
    loaded = _loaded(kind, encoder, manifest.encoder, device)
    if loaded is not None:
        read_manifest(folder, encoder=loaded.info)
    retriever: Retriever = _module(kind).load(folder, store, loaded, manifest)
    return retriever


def open_passages(directory: str | Path) -> PassageStore:
    """Opens only the passages of an index directory; no index need be there.

    Raises:
        DataError: no such directory, or its passages are half built, cut or of another format.
    """
    return PassageStore(Path(directory) / PASSAGES)


def kinds_in(directory: str | Path) -> list[str]:
    """The kinds of which a directory holds an index, whole or half built."""
    folders = {kind: Path(directory) / kind for kind in KINDS}
    return [kind for kind, path in folders.items() if path.exists() or is_half_built(path)]


def needs_encoder(kind: str) -> bool:
    """Whether a kind of index is built and opened with an :class:`Encoder`.

    Raises:
        ConfigError: an unknown kind.
    """
    if kind not in KINDS:
        raise ConfigError("kind", kind, nearest(kind, KINDS))
    return kind != "bm25"


def _module(kind: str) -> Any:
    """The functions ``build`` and ``load`` of a kind, which stand above what stores an index."""
    name = "dense.build" if needs_encoder(kind) else "bm25.disk"
    return import_module(f"ssp_env.search.{name}")


def one_kind(directory: str | Path, kind: str | None) -> str:
    """The kind that is meant: the one that is named, or the only one there.

    Raises:
        ConfigError: it is not in the directory, or several are and none is named.
        DataError: the directory holds no index, or its passages are not whole.
    """
    read_manifest(Path(directory) / PASSAGES, PASSAGES)
    there = kinds_in(directory)
    if not there:
        raise DataError(directory, "holds no index; `ssp index CORPUS --out DIR` makes one")
    if kind is None:
        if len(there) == 1:
            return there[0]
        fix = f"{directory} holds several: give --kind (or kind=), one of {', '.join(there)}"
        raise ConfigError("kind", kind, fix)
    if kind not in there:
        fix = f"`ssp index --kind {kind}` adds it" if kind in KINDS else nearest(kind, there)
        raise ConfigError("kind", kind, f"{directory} has {', '.join(there)}; {fix}")
    return kind


def recorded_encoder(folder: Path) -> str | None:
    """Where the encoder of an index's folder was when the index was built.

    Raises:
        ConfigError: it is not there any more.
    """
    recorded = read_manifest(folder).encoder
    if recorded is not None and not Path(recorded.name).is_dir():
        fix = "the index's model is not here; give its directory (--encoder, or encoder=)"
        raise ConfigError("encoder", recorded.name, fix)
    return None if recorded is None else recorded.name


def _loaded(
    kind: str,
    encoder: Encoder | str | Path | None,
    recorded: EncoderInfo | None = None,
    device: str | None = None,
) -> Encoder | None:
    """The encoder that a kind needs; ``recorded`` is the one that its index was made with."""
    if not needs_encoder(kind):
        if encoder is not None:
            raise ConfigError("encoder", str(encoder), f"{kind!r} needs none; omit it")
        return None
    if encoder is None:
        fix = f"{kind!r} needs the encoder that turns texts into vectors"
        raise ConfigError("encoder", None, fix)
    if not isinstance(encoder, str | Path):
        return encoder

    prefixes = None
    if recorded is not None:  # the model's directory may not name them
        prefixes = recorded.query_prefix, recorded.passage_prefix
    load = import_module("ssp_env.search.dense.encoder").SentenceTransformerEncoder
    loaded: Encoder = load(encoder, prefixes=prefixes, device=device)
    return loaded

"""Index directories: passages once, and beside them any number of indexes over these passages.

::

    DIR/passages/     the passages (:mod:`ssp_env.search.index.store`)
    DIR/bm25/         a BM25 index (:mod:`ssp_env.search.bm25.index`)
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
from ssp_env.search.index.manifest import EncoderInfo, Manifest, read_manifest, write_manifest
from ssp_env.search.index.store import PassageStore, build_store
from ssp_env.search.index.workplace import Progress, Workplace, is_half_built, no_progress

PASSAGES = "passages"

KINDS: dict[str, str] = {
    "bm25": "ssp_env.search.bm25.build:BM25Kind",
    "dense-flat": "ssp_env.search.dense.retriever:DenseKind",
    "dense-hnsw": "ssp_env.search.dense.retriever:DenseKind",
    "dense-ivf-sq8": "ssp_env.search.dense.retriever:DenseKind",
}
"""Kinds of index by name: where the class is that builds and opens one, as ``module:class``. It is
an :class:`IndexKind`; its constructor takes the kind's name."""


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


class IndexKind(Protocol):
    """How one kind of index is built and opened."""

    packages: tuple[str, ...]
    """Distributions whose versions the manifest records."""
    needs_encoder: bool
    """Whether it is built and opened with an encoder."""

    def load_encoder(
        self, directory: str | Path, recorded: EncoderInfo | None, device: str | None = None
    ) -> Encoder:
        """Loads the encoder of a model directory.

        ``recorded`` is the one that an index was made with, for what the directory does not say.
        ``device`` is PyTorch's name of where it computes; ``None`` takes a GPU if there is one.
        """
        ...

    def build(
        self, place: Workplace, store: PassageStore, encoder: Encoder | None, progress: Progress
    ) -> dict[str, Any]:
        """Writes the index's files into ``place.path``; returns parameters for its manifest.

        The workplace is open; what a killed build left is in it. ``OSError`` may be let through.
        """
        ...

    def open(
        self, folder: Path, store: PassageStore, encoder: Encoder | None, manifest: Manifest
    ) -> Retriever:
        """The retriever over a folder whose manifest was found to fit ``store`` and ``encoder``."""
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
    directory, builder = Path(directory), load_kind(kind)
    encoder = _loaded(builder, kind, encoder)
    store = open_or_build_store(source, directory, progress)
    info = None if encoder is None else encoder.info
    place = Workplace(directory / kind)
    if place.target.exists():
        read_manifest(place.target, kind, corpus=store.digest(), encoder=info)
        return place.target

    with place.open():
        parameters = builder.build(place, store, encoder, progress)
        manifest = Manifest(kind, store.digest(), len(store), info, parameters)
        write_manifest(place.path, manifest, builder.packages)
        place.publish()
    return place.target


def open_or_build_store(source: str | Path, directory: Path, progress: Progress) -> PassageStore:
    """The passages of an index directory, built from a corpus file if they are not there.

    Raises:
        DataError: as for :func:`build_index`.
    """
    if directory.exists() and not directory.is_dir():
        raise DataError(directory, "is a file; an index is a directory: give another --out")
    folder = directory / PASSAGES
    beside = {} if folder.exists() else _corpora_in(directory)
    return build_store(source, folder, progress, beside=beside)


def open_index(
    directory: str | Path,
    kind: str | None = None,
    *,
    encoder: Encoder | str | Path | None = None,
    device: str | None = None,
    check: bool = False,
) -> Retriever:
    """Opens an index for searching. Files are mapped, not read: that takes milliseconds.

    Args:
        directory: as :func:`build_index` left it.
        kind: which index of the directory; may be left out where there is only one.
        encoder: for a dense kind: the one that it was built with, or the directory of its model.
            ``None`` loads the directory that the manifest names.
        device: PyTorch's name of where a directory's encoder computes; ``None`` takes a GPU if
            there is one.
        check: compares every byte with the manifests (about a second per gigabyte), not only sizes.

    Raises:
        ConfigError: the kind is not in the directory, or several are and none is named; the model
            is not where the manifest says.
        DataError: the index is half built, cut, corrupt, of another format, or belongs to another
            corpus or encoder.
        ModelError: the directory of the encoder holds no model that can be loaded.
    """
    directory = Path(directory)
    store = open_passages(directory, check=check)
    kind = one_kind(directory, kind)
    opener, recorded = load_kind(kind), read_manifest(directory / kind).encoder
    if encoder is None and opener.needs_encoder:
        encoder = recorded_encoder(directory / kind)
    encoder = _loaded(opener, kind, encoder, recorded, device)
    info = None if encoder is None else encoder.info
    folder, digest = directory / kind, store.digest()
    manifest = read_manifest(folder, kind, corpus=digest, encoder=info, check=check)
    return opener.open(folder, store, encoder, manifest)


def open_passages(directory: str | Path, *, check: bool = False) -> PassageStore:
    """Opens only the passages of an index directory, memory-mapped; no index need be there.

    Args:
        directory: as :func:`build_index` left it.
        check: compares every byte with the manifest, not only sizes.

    Raises:
        DataError: no such directory, or its passages are half built, cut, corrupt or of a newer
            format.
    """
    return PassageStore(Path(directory) / PASSAGES, check=check)


def kinds_in(directory: str | Path) -> list[str]:
    """The kinds of which a directory holds an index, whole or half built."""
    directory = Path(directory)
    folders = {kind: directory / kind for kind in KINDS}
    return [kind for kind, path in folders.items() if path.exists() or is_half_built(path)]


def load_kind(kind: str) -> IndexKind:
    """
    Raises:
        ConfigError: an unknown kind.
        MissingExtra: it needs a package that is not installed.
    """
    if kind not in KINDS:
        raise ConfigError("kind", kind, nearest(kind, KINDS))
    module, _, name = KINDS[kind].partition(":")
    loaded: IndexKind = getattr(import_module(module), name)(kind)
    return loaded


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


def _corpora_in(directory: Path) -> dict[str, str]:
    """Digests of the passages that the whole indexes of a directory belong to, by kind."""
    return {
        kind: read_manifest(directory / kind, kind).corpus
        for kind in KINDS
        if (directory / kind).exists()
    }


def _loaded(
    kind: IndexKind,
    name: str,
    encoder: Encoder | str | Path | None,
    recorded: EncoderInfo | None = None,
    device: str | None = None,
) -> Encoder | None:
    if kind.needs_encoder and encoder is None:
        fix = f"{name!r} needs the encoder that turns texts into vectors"
        raise ConfigError("encoder", None, fix)
    if encoder is not None and not kind.needs_encoder:
        given = str(encoder) if isinstance(encoder, str | Path) else encoder.info.name
        raise ConfigError("encoder", given, f"{name!r} needs none; omit it")
    if isinstance(encoder, str | Path):
        return kind.load_encoder(encoder, recorded, device)
    return encoder


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

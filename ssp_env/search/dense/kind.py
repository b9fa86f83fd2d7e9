"""What an index directory asks of a dense kind of index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssp_env.search.base import Retriever
from ssp_env.search.dense.build import build
from ssp_env.search.dense.encoder import Prefixes, SentenceTransformerEncoder
from ssp_env.search.dense.retriever import DenseRetriever
from ssp_env.search.index.directory import Encoder
from ssp_env.search.index.manifest import EncoderInfo, Manifest
from ssp_env.search.index.store import PassageStore
from ssp_env.search.index.workplace import Progress, Workplace

PACKAGES = ("numpy", "faiss-cpu", "faiss-gpu", "sentence-transformers", "torch")


class DenseKind:
    """How one dense kind is built and opened.

    It is an :class:`~ssp_env.search.index.directory.IndexKind`, where the methods are described."""

    packages = PACKAGES
    needs_encoder = True

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def load_encoder(
        self, directory: str | Path, recorded: EncoderInfo | None, device: str | None = None
    ) -> Encoder:
        """Takes the prefixes that an index was made with, as its directory may not name them."""
        if recorded is None:
            return SentenceTransformerEncoder(directory, device=device)
        prefixes = Prefixes(recorded.query_prefix, recorded.passage_prefix)
        return SentenceTransformerEncoder(directory, prefixes=prefixes, device=device)

    def build(
        self, place: Workplace, store: PassageStore, encoder: Encoder | None, progress: Progress
    ) -> dict[str, Any]:
        """See :func:`ssp_env.search.dense.build.build`."""
        assert encoder is not None  # see needs_encoder
        return build(self._kind, place, store, encoder, progress)

    def open(
        self, folder: Path, store: PassageStore, encoder: Encoder | None, manifest: Manifest
    ) -> Retriever:
        """See :meth:`ssp_env.search.dense.retriever.DenseRetriever.open`."""
        assert encoder is not None  # see needs_encoder
        return DenseRetriever.open(folder, store, encoder, manifest)

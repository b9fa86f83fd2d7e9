"""Reranking: a slower model puts the first documents of a retriever into a better order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import ConfigError, MissingExtra, ModelError, ServiceError
from ssp_env.search.base import Retriever, check_request
from ssp_env.search.corpus import passage_text
from ssp_env.search.dense.encoder import BATCH_SIZE, INSTALL, clean, load_model
from ssp_env.types import Document


class Reranker(Protocol):
    """Scores how well documents answer queries."""

    def scores(
        self, pairs: Sequence[tuple[str, Document]]
    ) -> Sequence[float] | NDArray[np.float32]:
        """One number for each pair of query and document; the higher, the better."""
        ...


class RerankedRetriever:
    """A retriever whose first documents are put into a reranker's order.

    Scores are the reranker's; equal ones keep the retriever's order. As thread-safe as its parts.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, depth: int = 50) -> None:
        """
        Args:
            retriever: finds the documents.
            reranker: orders them.
            depth: how many documents a query it sees; ``k`` if that is more.

        Raises:
            ConfigError: ``depth`` below 1.
        """
        if depth < 1:
            raise ConfigError("depth", depth, "let the reranker see at least one document")
        self.retriever, self.reranker, self.depth = retriever, reranker, depth

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """See :meth:`ssp_env.search.base.Retriever.search`.

        The reranker is asked once, for all documents of all queries.

        Raises:
            ServiceError: the retriever could not answer, or the reranker did not score every
                document.
        """
        check_request(queries, k)
        found = self.retriever.search(queries, max(k, self.depth))
        pairs = [(q, each) for q, ranking in zip(queries, found, strict=True) for each in ranking]
        scores = [float(score) for score in self.reranker.scores(pairs)] if pairs else []
        if len(scores) != len(pairs):
            what = f"the reranker gave {len(scores)} scores for {len(pairs)} documents"
            raise ServiceError("search", what)

        # Sorting is stable, in reverse too: equal scores keep the retriever's order.
        scored = (
            Document(d.id, d.title, d.text, s) for (_, d), s in zip(pairs, scores, strict=True)
        )
        each = [list(islice(scored, len(ranking))) for ranking in found]
        return [sorted(part, key=lambda d: d.score or 0.0, reverse=True)[:k] for part in each]


class CrossEncoderReranker:
    """A sentence-transformers cross-encoder with one output, read from a local directory. Threads
    take turns.

    Scores are the model's raw output (logits). A pickled reranker is loaded again where it arrives.
    """

    def __init__(self, directory: str | Path, device: str | None = None) -> None:
        """
        Args:
            directory: of the model; weights are safetensors.
            device: PyTorch's name of it; ``None`` takes a GPU if there is one.

        Raises:
            ModelError: the directory holds no model that can be loaded, one with several outputs,
                or an encoder, whose output was never trained for pairs.
            MissingExtra: sentence-transformers is not installed.
        """
        self._arguments = (Path(directory), device)
        self.name = str(directory)
        self._model = _load(Path(directory), device)
        self._lock = Lock()

    def scores(self, pairs: Sequence[tuple[str, Document]]) -> NDArray[np.float32]:
        """See :meth:`Reranker.scores`.

        Raises:
            ModelError: the model gives scores that are not finite.
        """
        texts = [(clean(query), clean(passage_text(document))) for query, document in pairs]
        with self._lock:
            scores = self._model.predict(texts, batch_size=BATCH_SIZE, show_progress_bar=False)
        if not np.isfinite(scores).all():
            raise ModelError(f"{self._arguments[0]}: gives scores that are not finite")
        return np.asarray(scores, np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


def _load(directory: Path, device: str | None) -> Any:
    try:
        from torch.nn import Identity
    except ImportError as error:
        raise MissingExtra("a reranker", INSTALL) from error

    model = load_model("CrossEncoder", directory, device, activation_fn=Identity())
    if model.num_labels != 1:
        what = f"has {model.num_labels} outputs; a reranker needs a model with one"
        raise ModelError(f"{directory}: {what}")

    # transformers draws weights that the files lack at random, and says so in a log line alone.
    trained_as = model.model.config.architectures or []
    if not any(name.endswith("ForSequenceClassification") for name in trained_as):
        what = f"was not trained as a cross-encoder, but as {', '.join(trained_as) or 'nothing'}"
        raise ModelError(f"{directory}: {what}")
    return model

"""Models of the library sentence-transformers: encoders (texts to vectors) and cross-encoders.

Needs the extra ``dense``. Models are read from local directories only; nothing is downloaded, and
no file of a model can run code: weights are safetensors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import ModelError
from ssp_env.search.base import passage_text, well_formed
from ssp_env.search.store import EncoderInfo
from ssp_env.types import Document

BATCH_SIZE = 64
_DECIDING = {".safetensors", ".json", ".txt", ".model"}
"""Suffixes of the files of a model directory that can change its vectors."""
_E5 = re.compile(r"(^|[/_-])e5([/_-]|$)")


class SentenceTransformerEncoder:
    """An :class:`Encoder`: a model directory that sentence-transformers can read.

    Vectors are float32 and normalised, whatever the model's last layer does. A text longer than the
    model takes is cut. Threads take turns. The last bits of a vector may depend on what else is in
    the batch, as padding changes the order of sums. A pickled encoder is loaded again where it
    arrives."""

    def __init__(
        self,
        directory: str | Path,
        prefixes: tuple[str, str] | None = None,
        device: str | None = None,
    ) -> None:
        """
        Args:
            directory: of the model.
            prefixes: put before queries and before passages. ``None`` takes those that the model's
                own configuration names (prompts ``query`` and ``document`` or ``passage``), else
                ``"query: "`` and ``"passage: "`` for an E5 by its path, else none.
            device: PyTorch's name of it; ``None`` takes a GPU if there is one.
        """
        self._arguments, self._lock = (directory, prefixes, device), Lock()
        self._model = load_model("SentenceTransformer", directory, device)
        if prefixes is None:
            prefixes = choose_prefixes(Path(directory).absolute(), self._model.prompts)

        sha = hashlib.sha256(repr((*prefixes, self._model.max_seq_length)).encode())
        for path in sorted(Path(directory).rglob("*")):
            if path.suffix in _DECIDING and path.is_file():
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                sha.update(f"{path.relative_to(directory)}\0{digest}\n".encode())
        # Named as given: that is where `ssp search` and `ssp serve` load it again.
        dimension = int(self._model.get_embedding_dimension())
        self.info = EncoderInfo(str(directory), sha.hexdigest(), dimension, *prefixes)

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode(texts, self.info.query_prefix)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode(texts, self.info.passage_prefix)

    def _encode(self, texts: Sequence[str], prefix: str) -> NDArray[np.float32]:
        if not len(texts):
            return np.zeros((0, self.info.dimension), np.float32)

        # Fast tokenizers may not be used by two threads at once: they keep their padding.
        options = {"batch_size": BATCH_SIZE, "show_progress_bar": False}
        cleaned = [well_formed(text) for text in texts]
        with self._lock:
            return np.asarray(
                self._model.encode(cleaned, prompt=prefix, normalize_embeddings=True, **options),
                np.float32,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


class CrossEncoderReranker:
    """A cross-encoder with one output, read from a local directory. Threads take turns.

    Scores are the model's raw output (logits). A pickled reranker is loaded again where it arrives.
    """

    def __init__(self, directory: str | Path, device: str | None = None) -> None:
        """``device`` is PyTorch's name of it; ``None`` takes a GPU if there is one."""
        self._arguments, self.name = (directory, device), str(directory)
        self._lock = Lock()
        self._model = load_model("CrossEncoder", directory, device)
        if self._model.num_labels != 1:
            what = f"has {self._model.num_labels} outputs; a reranker needs a model with one"
            raise ModelError(f"{directory}: {what}")

        # transformers draws weights that the files lack at random, and only logs that it did.
        trained_as = self._model.model.config.architectures or []
        if not any(name.endswith("ForSequenceClassification") for name in trained_as):
            what = ", ".join(trained_as) or "nothing"
            raise ModelError(f"{directory}: was not trained as a cross-encoder, but as {what}")

    def scores(self, pairs: Sequence[tuple[str, Document]]) -> NDArray[np.float32]:
        from torch.nn import Identity

        texts = [(well_formed(query), well_formed(passage_text(found))) for query, found in pairs]
        options = {"batch_size": BATCH_SIZE, "show_progress_bar": False}
        with self._lock:
            scores = self._model.predict(texts, activation_fn=Identity(), **options)
        return np.asarray(scores, np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


def choose_prefixes(directory: Path, prompts: Mapping[str, str]) -> tuple[str, str]:
    """The prefixes of a model, by the prompts of its configuration, else by its directory's path.

    The hub's cache keeps a model in ``models--WHO--NAME/snapshots/COMMIT``."""
    query = prompts.get("query", "")
    passage = prompts.get("document", "") or prompts.get("passage", "")
    if query or passage:
        return query, passage
    return ("query: ", "passage: ") if _E5.search(str(directory).lower()) else ("", "")


def load_model(name: str, directory: str | Path, device: str | None) -> Any:
    """A model of sentence-transformers, ``SentenceTransformer`` or ``CrossEncoder`` by name."""
    if not Path(directory).is_dir():
        fix = "models are never downloaded; give the place of this one (--encoder, encoder=)"
        raise ModelError(f"{directory}: no such directory; {fix}")

    # Imported here, since that takes seconds.
    import sentence_transformers
    import torch
    from transformers.utils import logging

    loader = getattr(sentence_transformers, name)
    options = {"model_kwargs": {"use_safetensors": True, "dtype": torch.float32}}
    logging.disable_progress_bar()
    try:
        return loader(str(directory), device=device, local_files_only=True, **options).eval()
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise ModelError(f"{directory}: no {name} can be loaded from it ({error})") from error

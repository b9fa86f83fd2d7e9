"""Models of the library sentence-transformers: encoders (texts to vectors) and cross-encoders.

Needs the extra ``dense``. Models are read from local directories only; nothing is downloaded, and
no file of a model can run code: weights are safetensors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import ModelError
from ssp_env.search.base import passage_text, well_formed
from ssp_env.search.store import EncoderInfo
from ssp_env.types import Document

_DECIDING = {".safetensors", ".json", ".txt", ".model"}
"""Suffixes of the files of a model directory that can change its vectors."""
_E5 = re.compile(r"(^|[/_-])e5([/_-]|$)")


class _Model:
    """A model directory that sentence-transformers can read. Threads take turns; a pickled model is
    loaded again where it arrives."""

    _options: ClassVar = {"batch_size": 64, "show_progress_bar": False}

    def __init__(self, kind: str, directory: str | Path, device: str | None, *more: object) -> None:
        """``kind`` is the library's class, ``SentenceTransformer`` or ``CrossEncoder``."""
        if not Path(directory).is_dir():
            fix = "models are never downloaded; give the place of this one (--encoder, encoder=)"
            raise ModelError(f"{directory}: no such directory; {fix}")
        self._arguments, self._lock = (directory, *more, device), Lock()

        # Imported here, since that takes seconds.
        import sentence_transformers
        import torch
        from transformers.utils import logging

        load = getattr(sentence_transformers, kind)
        options = {"model_kwargs": {"use_safetensors": True, "dtype": torch.float32}}
        logging.disable_progress_bar()
        try:
            model = load(str(directory), device=device, local_files_only=True, **options)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise ModelError(f"{directory}: no {kind} can be loaded from it ({error})") from error
        self._model: Any = model.eval()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


class SentenceTransformerEncoder(_Model):
    """An :class:`~ssp_env.search.store.Encoder` by sentence-transformers.

    Vectors are float32 and normalised, whatever the model's last layer does. A text longer than the
    model takes is cut. The last bits of a vector may depend on what else is in the batch, as
    padding changes the order of sums."""

    def __init__(
        self,
        directory: str | Path,
        prefixes: tuple[str, str] | None = None,
        device: str | None = None,
    ) -> None:
        """``prefixes`` are put before queries and before passages. ``None`` takes those that the
        model's own configuration names (prompts ``query`` and ``document`` or ``passage``), else
        ``"query: "`` and ``"passage: "`` for an E5 by its path, else none. ``device`` is PyTorch's
        name of it; ``None`` takes a GPU if there is one."""
        super().__init__("SentenceTransformer", directory, device, prefixes)
        if prefixes is None:
            prompts = self._model.prompts
            passage = prompts.get("document", "") or prompts.get("passage", "")
            prefixes = prompts.get("query", ""), passage
            # The hub's cache keeps a model in models--WHO--NAME/snapshots/COMMIT.
            if not any(prefixes) and _E5.search(str(Path(directory).absolute()).lower()):
                prefixes = "query: ", "passage: "

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

        options = {"prompt": prefix, "normalize_embeddings": True, **self._options}
        cleaned = [well_formed(text) for text in texts]
        # Fast tokenizers may not be used by two threads at once: they keep their padding.
        with self._lock:
            return np.asarray(self._model.encode(cleaned, **options), np.float32)


class CrossEncoderReranker(_Model):
    """A cross-encoder with one output. Scores are its raw output (logits)."""

    def __init__(self, directory: str | Path, device: str | None = None) -> None:
        """``device`` is PyTorch's name of it; ``None`` takes a GPU if there is one."""
        super().__init__("CrossEncoder", directory, device)
        self.name = str(directory)
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
        # Each pair once: copies of a passage get one score, whichever batches they would be in.
        distinct = {pair: place for place, pair in enumerate(dict.fromkeys(texts))}
        with self._lock:
            made = self._model.predict([*distinct], activation_fn=Identity(), **self._options)
        scores = np.asarray(made, np.float32)
        return scores[[distinct[pair] for pair in texts]]

"""Encoders: texts to unit vectors, over the library sentence-transformers.

Needs the extra ``dense``. Models are read from local directories only; nothing is downloaded, and
no file of a model can run code: weights are safetensors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import ConfigError, MissingExtra, ModelError
from ssp_env.search.index.manifest import EncoderInfo, sha256

INSTALL = "pip install '.[dense]' in the checkout"
DTYPES = ("float32", "bfloat16", "float16")
_CHARACTERS_A_TOKEN = 64
"""No tokenizer makes tokens longer than this out of text worth reading; see ``_clean``."""
_DECIDING = {".safetensors", ".json", ".txt", ".model"}
"""Suffixes of the files of a model directory that can change its vectors."""
_E5 = re.compile(r"(^|[/_-])e5([/_-]|$)")


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What a model wants in front of its texts."""

    query: str = ""
    passage: str = ""


NO_PREFIXES = Prefixes()
"""MiniLM and most others."""
E5_PREFIXES = Prefixes("query: ", "passage: ")
"""The E5 family, except its ``-instruct`` models."""


class SentenceTransformerEncoder:
    """A sentence-transformers model, or any directory that the library can read, as an
    :class:`Encoder`.

    Vectors are float32 and normalised, whatever the model's last layer does. A text longer than the
    model takes is cut. Threads take turns. The last bits of a vector may depend on what else is in
    the batch, as padding changes the order of sums. A pickled encoder of a directory is loaded
    again where it arrives."""

    def __init__(
        self,
        source: str | Path | Any,
        *,
        prefixes: Prefixes | None = None,
        name: str | None = None,
        batch_size: int = 64,
        max_length: int | None = None,
        device: str | None = None,
        dtype: str = "float32",
    ) -> None:
        """
        Args:
            source: the model's directory, or a ``SentenceTransformer`` (which stays as it is, but
                for ``max_length``).
            prefixes: put before the texts. ``None`` takes those that the model's own configuration
                names (prompts ``query`` and ``document`` or ``passage``), else :data:`E5_PREFIXES`
                for an E5 by its name, else none.
            name: what manifests and errors call it; by default the directory as given, from where
                ``ssp search`` and ``ssp serve`` load it again.
            batch_size: texts that the model sees at once.
            max_length: tokens of a text that are read; ``None`` takes the model's own limit.
            device: PyTorch's name of it; ``None`` takes what a model object is on, or a GPU if
                there is one.
            dtype: in which a directory's weights compute. Not part of the encoder's identity: an
                index made in half precision on a GPU may be searched in float32 on a CPU.

        Raises:
            ConfigError: a setting out of range, or prefixes that must be named: an E5 of the
                ``-instruct`` kind.
            ModelError: the directory holds no model that can be loaded.
            MissingExtra: sentence-transformers is not installed.
        """
        if batch_size < 1:
            raise ConfigError("batch_size", batch_size, "give at least 1")
        if max_length is not None and max_length < 3:
            fix = "give at least 3 tokens: two are the text's frame"
            raise ConfigError("max_length", max_length, fix)
        if dtype not in DTYPES:
            raise ConfigError("dtype", dtype, f"give one of {', '.join(DTYPES)}")

        self._settings = {"prefixes": prefixes, "name": name, "batch_size": batch_size}
        self._settings |= {"max_length": max_length, "device": device, "dtype": dtype}
        self._batch_size, self._lock = batch_size, Lock()
        self._directory = None
        if isinstance(source, str | Path):
            self._directory = Path(source)
            self._model = load_model("SentenceTransformer", self._directory, device, dtype)
        else:
            self._model = source if device is None else source.to(device)
        if max_length is not None:
            self._model.max_seq_length = max_length

        self.name: str = name or ("a model object" if self._directory is None else str(source))
        if prefixes is None:
            known_as = name or ("" if self._directory is None else model_name(self._directory))
            prefixes = choose_prefixes(known_as, self._model.prompts)
        self.prefixes = prefixes
        dimension = int(self._model.get_embedding_dimension())
        self._info = EncoderInfo(
            self.name, self._digest(), dimension, prefixes.query, prefixes.passage
        )

    @property
    def info(self) -> EncoderInfo:
        """Name, dimension, and a digest over weights, tokenizer, prefixes and length limit.

        A directory is told by the bytes of its files, a model object by its parameters and
        vocabulary: the two digests of one model differ."""
        return self._info

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :meth:`Encoder.encode_queries`; :class:`ModelError` for vectors not finite."""
        return self._encode(texts, self.prefixes.query)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :meth:`Encoder.encode_passages`; :class:`ModelError` for vectors not finite."""
        return self._encode(texts, self.prefixes.passage)

    def _encode(self, texts: Sequence[str], prefix: str) -> NDArray[np.float32]:
        if not len(texts):
            return np.zeros((0, self._info.dimension), np.float32)
        cleaned = [self._clean(text) for text in texts]
        # Fast tokenizers may not be used by two threads at once: they keep their padding.
        with self._lock:
            vectors = self._model.encode(
                cleaned,
                prompt=prefix,
                batch_size=self._batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return normalised(np.asarray(vectors, np.float32), self.name)

    def _clean(self, text: str) -> str:
        # An end that is cut off anyway would take long to tokenize.
        limit = self._model.max_seq_length
        return clean(text if limit is None else text[: limit * _CHARACTERS_A_TOKEN])

    def _digest(self) -> str:
        settings = (self.prefixes.query, self.prefixes.passage, self._model.max_seq_length)
        sha = hashlib.sha256(repr((*settings, "unit length")).encode())
        of = _of_object(self._model) if self._directory is None else _of_files(self._directory)
        for key, digest in of.items():
            sha.update(f"{key}\0{digest}\n".encode())
        return sha.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._directory or self._model, self._settings)


def choose_prefixes(name: str, prompts: Mapping[str, str]) -> Prefixes:
    """The prefixes of a model, by its name and the prompts of its configuration.

    Raises:
        ConfigError: it seems to be an E5 of the ``-instruct`` kind, whose prefix depends on the
            task.
    """
    query = prompts.get("query", "")
    passage = prompts.get("document", "") or prompts.get("passage", "")
    if query or passage:
        return Prefixes(query, passage)
    if not _E5.search(name.lower()):
        return NO_PREFIXES
    if "instruct" in name.lower() or "mistral" in name.lower():
        fix = f"{name} wants an instruction before queries; give it as Prefixes(query=)"
        raise ConfigError("prefixes", None, fix)
    return E5_PREFIXES


def model_name(directory: Path) -> str:
    """The name of a model directory; that of the hub for a snapshot in the hub's cache."""
    directory = directory.absolute()
    if directory.parent.name == "snapshots":
        return directory.parent.parent.name.removeprefix("models--").replace("--", "/")
    return directory.name


def normalised(vectors: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    """Rows, shape ``(n, dimension)``, scaled to length 1; a row of zeros stays.

    Raises:
        ModelError: a number that is not finite; ``name`` is the encoder's.
    """
    if not np.isfinite(vectors).all():
        raise ModelError(f"{name} gives vectors that are not finite; try dtype='float32'")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def clean(text: str) -> str:
    """The text without lone surrogates, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _again(source: Any, settings: dict[str, Any]) -> SentenceTransformerEncoder:
    return SentenceTransformerEncoder(source, **settings)


def load_model(
    name: str, directory: Path, device: str | None, dtype: str = "float32", **options: Any
) -> Any:
    """A model of sentence-transformers, ``SentenceTransformer`` or ``CrossEncoder`` by name.

    Raises:
        ModelError: the directory holds no such model.
        MissingExtra: sentence-transformers is not installed.
    """
    what = "cross-encoder" if name == "CrossEncoder" else "encoder"
    try:
        import sentence_transformers
        import torch
    except ImportError as error:
        raise MissingExtra(f"a model ({what})", INSTALL) from error
    if not directory.is_dir():
        fix = "models are read from local directories, never downloaded"
        raise ModelError(f"{directory}: no such directory; {fix}")

    loader = getattr(sentence_transformers, name)
    options["model_kwargs"] = {"use_safetensors": True, "dtype": getattr(torch, dtype)}
    try:
        with no_bar():
            return loader(str(directory), device=device, local_files_only=True, **options).eval()
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise ModelError(f"{directory}: holds no {what} that can be loaded ({error})") from error


@contextmanager
def no_bar() -> Iterator[None]:
    """Keeps transformers from drawing a progress bar."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _of_files(directory: Path) -> dict[str, str]:
    """SHA-256 of each file that can change the vectors, by its path inside the directory."""
    files = sorted(
        path for path in directory.rglob("*") if path.suffix in _DECIDING and path.is_file()
    )
    return {path.relative_to(directory).as_posix(): sha256(path) for path in files}


def _of_object(model: Any) -> dict[str, str]:
    """The same of a model in memory: its parameters, by name, and its vocabulary."""
    parts: dict[str, Any] = {
        key: tensor.detach().cpu().float().contiguous().numpy()
        for key, tensor in sorted(model.state_dict().items())
    }
    vocabulary = repr(sorted(model.tokenizer.get_vocab().items()))
    parts["vocabulary"] = vocabulary.encode("utf-8", "surrogatepass")
    return {key: hashlib.sha256(data).hexdigest() for key, data in parts.items()}

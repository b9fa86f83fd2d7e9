"""What a retriever is, as plain data: for the results of runs, and never with a secret in it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ssp_env.search.base import Retriever


def identify(retriever: Retriever) -> dict[str, Any]:
    """A retriever's class, and of what it searches all that it knows.

    Retrievers that stand before others (caches, rerankers, fusions) name those as well. Of a server
    only the address is known: what it searches may change without notice.
    """
    parts: dict[str, Any] = {"class": type(retriever).__name__}

    corpus: Any = getattr(retriever, "corpus", None)
    if callable(getattr(corpus, "digest", None)):
        parts["corpus"] = corpus.digest()
    info = getattr(getattr(retriever, "encoder", None), "info", None)
    if info is not None:
        parts["encoder"] = {"name": str(info.name), "digest": info.digest}
    kind = getattr(retriever, "kind", None)
    if isinstance(kind, str):
        parts["kind"] = kind

    url = getattr(getattr(retriever, "config", None), "endpoint", None)
    if isinstance(url, str):
        parts["server"] = _without_secrets(url)
    identity = getattr(retriever, "identity", None)
    if isinstance(identity, str):
        parts["identity"] = identity

    reranker = getattr(retriever, "reranker", None)
    if reranker is not None:
        parts["reranker"] = str(getattr(reranker, "name", type(reranker).__name__))
        parts["depth"] = getattr(retriever, "depth", None)
    inner = getattr(retriever, "retriever", None)
    if isinstance(inner, Retriever):
        parts["of"] = [identify(inner)]
    several = getattr(retriever, "retrievers", None)
    if isinstance(several, tuple | list):
        parts["of"] = [identify(part) for part in several]
        parts["weights"] = [float(weight) for weight in getattr(retriever, "weights", ())]
    return parts


def _without_secrets(url: str) -> str:
    """An address without user, password, query and fragment."""
    split = urlsplit(url)
    return urlunsplit((split.scheme, split.netloc.rpartition("@")[2], split.path, "", ""))

"""What a retriever is, as plain data: for the results of runs, and never with a secret in it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ssp_env.search.base import Retriever
from ssp_env.types import Passages


def identify(retriever: Retriever) -> dict[str, Any]:
    """A retriever's class, and of what it searches all that it knows.

    Retrievers that stand before others (caches, rerankers, fusions) name those as well. Of a server
    only the address is known: what it searches may change without notice.
    """
    its = {name: getattr(retriever, name, None) for name in ("corpus", "encoder", "config")}
    parts: dict[str, Any] = {"class": type(retriever).__name__}
    if isinstance(its["corpus"], Passages):
        parts["corpus"] = its["corpus"].digest()
    if info := getattr(its["encoder"], "info", None):
        parts["encoder"] = {"name": str(info.name), "digest": info.digest}
    if url := getattr(its["config"], "endpoint", None):
        # Neither user and password, nor a query, which may hold a key.
        split = urlsplit(url)
        parts["server"] = f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}"

    for name in ("kind", "identity", "depth"):
        if isinstance(value := getattr(retriever, name, None), str | int):
            parts[name] = value
    if reranker := getattr(retriever, "reranker", None):
        parts["reranker"] = str(getattr(reranker, "name", type(reranker).__name__))
    if weights := getattr(retriever, "weights", None):
        parts["weights"] = [float(weight) for weight in weights]

    inner = getattr(retriever, "retriever", None)
    several = getattr(retriever, "retrievers", None) or ([] if inner is None else [inner])
    if several:
        parts["of"] = [identify(part) for part in several]
    return parts

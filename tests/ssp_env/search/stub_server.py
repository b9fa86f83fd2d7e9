"""A server process over a retriever that does as its queries say; see :class:`Obedient`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from ssp_env.errors import TransientServiceError
from ssp_env.search import server
from ssp_env.types import Document

SECRET = "the password is hunter2"


class Obedient:
    """Finds ``k`` passages about a query; some words in a query make it misbehave.

    Each call is written to standard error as JSON, so that a test sees what was batched."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Ranked passages about each query, or trouble."""
        print(json.dumps({"queries": list(queries), "k": k}), file=sys.stderr, flush=True)
        time.sleep(self._seconds)
        words = {word for query in queries for word in query.split()}
        if "poison" in words:
            raise ValueError(SECRET)
        if "outage" in words:
            raise TransientServiceError("search", SECRET)
        if "hang" in words:
            time.sleep(3600)
        if "slow" in words:
            time.sleep(0.5)
        rankings = [[_passage(query, rank) for rank in range(k)] for query in queries]
        return rankings[:-1] if "short" in words else rankings


def _passage(query: str, rank: int) -> Document:
    score = float("nan") if query == "nan" else 1.0 / (1 + rank)
    title = "\ud800" if query == "surrogate" else f"About {query}"
    return Document(f"{query}/{rank}", title, f"Text {rank}\nof {query}", score)


def main() -> None:
    """``stub_server.py PORT SECONDS LOADING``: seconds of a call, and until it is loaded."""
    port, seconds, loading = sys.argv[1:]

    def load() -> Obedient:
        time.sleep(float(loading))
        return Obedient(float(seconds))

    server.ANSWER_SECONDS = 1.0
    server.run_server(load, port=int(port), on_ready=lambda address: print(address, flush=True))


if __name__ == "__main__":
    main()

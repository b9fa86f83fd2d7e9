"""What an approximate index finds of the exact neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

from ssp_env.search.dense import FLAT
from ssp_env.search.index import Encoder, open_index
from ssp_env.search.store import read_manifest

TOP = 3


def recall(directory: Path, kind: str, encoder: Encoder, queries: Sequence[str]) -> dict[str, Any]:
    """Compares an index with the ``dense-flat`` one beside it; what the build chose and measured
    stands with it.

    CPU a query contains the encoding.
    """
    exact = open_index(directory, FLAT, encoder=encoder).search(queries, TOP)
    approximate = open_index(directory, kind, encoder=encoder)
    cpu = process_time()
    found = approximate.search(queries, TOP)
    cpu = process_time() - cpu
    hits = sum(
        len({d.id for d in a} & {d.id for d in b}) for a, b in zip(exact, found, strict=True)
    )
    return {
        "encoder": Path(encoder.info.name).name,
        "queries": len(queries),
        "recall_at_3": round(hits / (TOP * len(queries)), 4),
        "cpu_ms_a_query": round(1000 * cpu / len(queries), 3),
        "the_index_says": dict(read_manifest(directory / kind).parameters),
    }

"""How far an approximate index looks: so many lists of IVF-SQ8, so many nodes of HNSW.

How far is far enough depends on the vectors: where they form clear clusters a few lists hold the
neighbours, where they do not it takes half of all. So each index is measured when it is built, with
queries that resemble those to come, and carries what it needs in FAISS's own field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ssp_env.search.dense.exact import Ranking
from ssp_env.search.dense.vectors import Vectors, faiss
from ssp_env.search.index.workplace import Progress

TOP = 3
"""Neighbours that are counted; what the game shows of a search by default."""
SHARE = 0.98
"""Of the exact neighbours that the index finds when it looks as far as it can, how many it has to
find."""
_LEAST = 16
_MOST_VISITED = 2048
"""Nodes of a graph beyond which looking farther is not tried."""


def effort_of(index: Any) -> int:
    """Lists that a search looks into, or nodes that it keeps in view."""
    effort: int = index.hnsw.efSearch if _is_graph(index) else index.nprobe
    return effort


def set_effort(index: Any, effort: int) -> None:
    """See :func:`effort_of`; written to disk with the index."""
    if _is_graph(index):
        index.hnsw.efSearch = effort
    else:
        index.nprobe = effort


def parameters(index: Any, effort: int) -> Any:
    """FAISS's search parameters for a search with another effort than the index's own."""
    if _is_graph(index):
        return faiss().SearchParametersHNSW(efSearch=effort)
    return faiss().SearchParametersIVF(nprobe=min(effort, index.nlist))


def tune(
    index: Any,
    search: Callable[[Vectors, int], list[Ranking]],
    queries: Vectors,
    exact: Sequence[Ranking],
    progress: Progress,
) -> dict[str, Any]:
    """Sets the least effort that is enough: :data:`SHARE` of the recall at the greatest effort.

    Args:
        index: a FAISS index, HNSW or IVF.
        search: searches it.
        queries: such as users will ask, shape ``(n, dimension)``.
        exact: the :data:`TOP` nearest vectors of each.
        progress: told how many efforts of those possible were tried.

    Returns:
        What was chosen, and the recall against ``exact`` with it, for the manifest.
    """
    ladder = _ladder(index)

    def recall(effort: int) -> float:
        set_effort(index, effort)
        found = search(queries, TOP)
        hits = [
            len(set(a.tolist()) & set(b.tolist()))
            for (_, a), (_, b) in zip(exact, found, strict=True)
        ]
        return sum(hits) / sum(len(positions) for _, positions in exact)

    effort = ladder[-1]
    most = reached = recall(effort)
    for step, tried in enumerate(ladder[:-1]):
        found = recall(tried)
        progress("choosing how far to look", step + 1, len(ladder))
        if found >= SHARE * most:
            effort, reached = tried, found
            break
    set_effort(index, effort)
    progress("choosing how far to look", len(ladder), len(ladder))
    chosen = (
        {"nodes_in_view": effort}
        if _is_graph(index)
        else {"lists_probed": effort, "lists": index.nlist}
    )
    return {**chosen, "recall_at_3": round(reached, 4), "recall_queries": len(queries)}


def _ladder(index: Any) -> list[int]:
    """Efforts to be tried, each half as many again as the last but one, up to the greatest."""
    most = min(_MOST_VISITED, index.ntotal) if _is_graph(index) else index.nlist
    doublings = max(0.0, np.log2(most / _LEAST))
    return [*(round(_LEAST * 2 ** (step / 2)) for step in range(int(np.ceil(2 * doublings)))), most]


def _is_graph(index: Any) -> bool:
    return isinstance(index, faiss().IndexHNSW)

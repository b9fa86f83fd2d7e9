"""A server that answers as Search-R1's: a backend call per request, scores only when asked for."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel


class QueryRequest(BaseModel):
    """Search-R1's request."""

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


def r1_app(kind: str) -> FastAPI:
    """``dense`` documents have an id, ``bm25`` ones title, text and contents."""
    app = FastAPI()

    def find(query: str, k: int) -> list[tuple[dict[str, Any], float]]:
        rows = [{"contents": f'"About {query}"\nText {i}\nof {query}'} for i in range(k)]
        for i, row in enumerate(rows):
            row |= {"id": str(i)} if kind == "dense" else {"title": f"About {query}", "text": "x"}
        return [(row, 9.0 - i) for i, row in enumerate(rows)]

    @app.post("/retrieve")
    def retrieve(request: QueryRequest) -> dict[str, Any]:
        found = [find(query, request.topk or 3) for query in request.queries]
        if not request.return_scores:
            return {"result": [[row for row, _ in ranking] for ranking in found]}
        return {"result": [[{"document": row, "score": s} for row, s in r] for r in found]}

    return app

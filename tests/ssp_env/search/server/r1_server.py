"""A server that answers as Search-R1's does: a backend call a request, scores only when asked
for."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class QueryRequest(BaseModel):
    """Search-R1's request."""

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


def main(port: int, kind: str) -> None:
    """Serves. ``dense`` documents are the corpus' own rows, with an id; ``bm25`` ones have title,
    text and contents."""
    app = FastAPI()

    def find(query: str, k: int) -> list[tuple[dict[str, Any], float]]:
        if query == "poison":
            raise ValueError("the encoder fails")
        contents = [f'"About {query}"\nText {i}\nof {query}' for i in range(k)]
        if kind == "dense":
            return [
                ({"id": str(i), "contents": text}, 0.9 - i / 10) for i, text in enumerate(contents)
            ]
        title, text = f"About {query}", "Text"
        return [
            ({"title": title, "text": text, "contents": row}, 9.0 - i)
            for i, row in enumerate(contents)
        ]

    @app.post("/retrieve")
    def retrieve(request: QueryRequest) -> dict[str, Any]:
        found = [find(query, request.topk or 3) for query in request.queries]
        if not request.return_scores:
            return {"result": [[document for document, _ in ranking] for ranking in found]}
        return {
            "result": [
                [{"document": document, "score": score} for document, score in r] for r in found
            ]
        }

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

"""Search-R1's protocol: what a request may hold, and how an answer is written."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from ssp_env.search.client.wire import well_formed
from ssp_env.search.corpus import join_contents
from ssp_env.search.server.batcher import Rankings
from ssp_env.search.server.config import ServerConfig
from ssp_env.types import Document


class Query(BaseModel):
    """A search. Other fields are passed over; a missing, null or zero ``topk`` is the default."""

    model_config = ConfigDict(strict=True)
    queries: list[str]
    topk: int | None = None
    return_scores: bool | None = None

    @field_validator("queries", mode="before")
    @classmethod
    def _clean(cls, value: Any) -> Any:
        # JSON can spell lone surrogates, which are no text to search for.
        if not isinstance(value, list):
            return value
        return [well_formed(text) if isinstance(text, str) else text for text in value]


def limited(config: ServerConfig) -> type[Query]:
    """The model of a server's requests, with its limits."""
    queries = (list[str], Field(max_length=config.max_queries))
    topk: Any = (int | None, Field(None, ge=0, le=config.max_k))
    return create_model("Query", __base__=Query, queries=queries, topk=topk)


def write_result(rankings: Rankings, scores: bool) -> bytes:
    """The body of an answer.

    Raises:
        TypeError, ValueError: scores are asked for, and one is missing or not a finite number.
    """

    def row(found: Document) -> dict[str, Any]:
        document = {"id": found.id, "contents": join_contents(found)}
        return {"document": document, "score": float(found.score)} if scores else document  # type: ignore[arg-type]

    rows = [[row(found) for found in ranking] for ranking in rankings]
    return json.dumps({"result": rows}, allow_nan=False).encode()

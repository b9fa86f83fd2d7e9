"""Search-R1's protocol: what a request may hold, and what an answer holds."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from ssp_env.search.client.wire import well_formed
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

    @field_validator("topk", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        # To JSON, 3 and 3.0 are one number.
        return int(value) if isinstance(value, float) and value.is_integer() else value


class Passage(BaseModel):
    """A document as Search-R1 writes it."""

    id: str
    contents: str


class Hit(BaseModel):
    """A document and its score."""

    document: Passage
    score: float


class Result(BaseModel):
    """One ranking per query, in order; of documents alone where no scores were asked for."""

    result: list[list[Hit]] | list[list[Passage]]


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": HTTPStatus(status).phrase}
    for status in (400, 413, 422, 500, 503, 504)
}
"""What ``/retrieve`` answers besides rankings."""
_SCHEMA = {"schema": {"$ref": "#/components/schemas/Problem"}}
UNAUTHORIZED: dict[int | str, dict[str, Any]] = {401: {"content": {"application/json": _SCHEMA}}}
"""What every route but the probe answers without the token."""


def limited(config: ServerConfig) -> type[Query]:
    """The model of a server's requests, with its limits."""
    queries = (list[str], Field(max_length=config.max_queries))
    topk: Any = (int | None, Field(None, ge=0, le=config.max_k))
    return create_model("Query", __base__=Query, queries=queries, topk=topk)


async def read_body(receive: Receive, limit: int) -> bytes:
    """The body of a request.

    A larger one is read up to twice the limit: a connection that is closed on unread bytes is
    reset, and the client would never see why.

    Raises:
        HTTPException: it is larger than the limit.
        ClientDisconnect: the client left.
    """
    body, more = bytearray(), True
    while more and len(body) <= 2 * limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)

    if len(body) > limit:
        raise HTTPException(413, f"the body is larger than {limit} bytes", {"Connection": "close"})
    return bytes(body)


def parse(model: type[Query], raw: bytes) -> Query:
    """Raises ``HTTPException`` for what is not JSON, or not of the model's shape."""
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON in UTF-8") from None
    try:
        return model.model_validate(row)
    except ValidationError as error:
        # Without the input, which may be megabytes.
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the body'}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_url=False)[:3]
        ]
        raise HTTPException(422, "; ".join(problems)) from None


def write_result(rankings: Rankings, scores: bool) -> bytes:
    """The body of an answer.

    Raises:
        HTTPException: scores are asked for, and one is missing or not a finite number.
    """

    def row(found: Document) -> dict[str, Any]:
        document = {"id": found.id, "contents": contents(found)}
        return {"document": document, "score": _score(found)} if scores else document

    rows = [[row(found) for found in ranking] for ranking in rankings]
    return json.dumps({"result": rows}).encode()


def contents(document: Document) -> str:
    """Title and text as Search-R1 writes them, which :mod:`ssp_env.search.corpus` reads.

    The first line ends the title, so a line break inside a title becomes a space.
    """
    title = document.title.replace("\n", " ")
    return f'"{title}"\n{document.text}'


def _score(document: Document) -> float:
    if document.score is None or not math.isfinite(document.score):
        raise HTTPException(500, "the search gave no score")
    return float(document.score)

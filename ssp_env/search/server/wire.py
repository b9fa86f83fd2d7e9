"""Search-R1's protocol: request bodies in, response bodies out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import orjson

from ssp_env.search.server.config import ServerConfig
from ssp_env.types import Document

_SURROGATES = re.compile("[\ud800-\udfff]")


class WrongAnswer(Exception):
    """The retriever gave something that is no answer to what it was asked."""


class Refusal(Exception):
    """A request that is not answered with documents: its status, a code for programs and a message
    for people."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """``{"error": {"code", "message"}}``."""
        return orjson.dumps({"error": {"code": self.code, "message": self.message}})


@dataclass(frozen=True, slots=True)
class Query:
    """A request of ``POST /retrieve``."""

    queries: list[str] = field(default_factory=list)
    """What to search for; without lone surrogates."""
    k: int = 3
    """Documents a query."""
    scores: bool = False
    """Whether the answer holds scores."""


def read_query(body: bytes, config: ServerConfig) -> Query:
    """Reads and checks a request body.

    A missing or null ``topk`` or ``return_scores`` takes its default; other fields are passed over,
    as in Search-R1's server. A lone surrogate (which JSON can spell and UTF-8 cannot) is searched
    for as U+FFFD.

    Raises:
        Refusal: 400 for what is no JSON, 422 for a wrong shape or a limit that is exceeded.
    """
    row = _loads(body)
    if not isinstance(row, dict):
        raise _wrong("the body is no JSON object")
    return Query(_queries(row, config), _k(row, config), _scores(row))


def write_result(rankings: Sequence[Sequence[Document]], scores: bool) -> bytes:
    """The response body of a request.

    Raises:
        WrongAnswer: scores are asked for, and the retriever gave none or one that is no finite
            number.
    """
    result: list[list[dict[str, Any]]]
    if scores:
        result = [
            [{"document": _document(d), "score": _score(d)} for d in ranking]
            for ranking in rankings
        ]
    else:
        result = [[_document(d) for d in ranking] for ranking in rankings]
    try:
        return orjson.dumps({"result": result})
    except orjson.JSONEncodeError:
        # A passage with a lone surrogate: only an escape can carry it.
        return json.dumps({"result": result}, allow_nan=False).encode("ascii")


def contents(document: Document) -> str:
    """Title and text as Search-R1 writes them, for :func:`ssp_env.search.corpus.read_corpus` to
    take apart again.

    The first line ends the title, so a line break inside a title becomes a space.
    """
    title = document.title.replace("\n", " ") if "\n" in document.title else document.title
    return f'"{title}"\n{document.text}'


def _document(document: Document) -> dict[str, str]:
    return {"id": document.id, "contents": contents(document)}


def _score(document: Document) -> float:
    if document.score is None or not math.isfinite(document.score):
        raise WrongAnswer(f"the retriever gave document {document.id!r} the score {document.score}")
    return float(document.score)


def _loads(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        if b"\\u" not in body:
            raise _no_json() from None
    # orjson takes no lone surrogates, which Python's own clients send.
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_constant)
    except (ValueError, RecursionError):
        raise _no_json() from None


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


def _no_json() -> Refusal:
    return Refusal(400, "bad_json", "the body is not JSON in UTF-8")


def _wrong(message: str) -> Refusal:
    return Refusal(422, "bad_request", message)


def _queries(row: dict[str, Any], config: ServerConfig) -> list[str]:
    if "queries" not in row:
        raise _wrong('"queries" is missing: a list of strings')
    queries = row["queries"]
    if not isinstance(queries, list):
        raise _wrong('"queries" has to be a list of strings')
    if len(queries) > config.max_queries:
        raise _wrong(f'"queries" holds {len(queries)} queries; the limit is {config.max_queries}')
    for position, query in enumerate(queries):
        if not isinstance(query, str):
            raise _wrong(
                f'"queries" has to be a list of strings; queries[{position}] is {_kind(query)}'
            )
        if len(query) > config.max_query_length:
            limit = f"the limit is {config.max_query_length}"
            raise _wrong(f"queries[{position}] has {len(query)} characters; {limit}")
    return [_SURROGATES.sub("\ufffd", query) if not query.isascii() else query for query in queries]


def _kind(value: object) -> str:
    """What JSON calls a value that is no string."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return "a list"
        case dict():
            return "an object"
    return "a number"


def _k(row: dict[str, Any], config: ServerConfig) -> int:
    k = row.get("topk")
    if k is None:
        return config.default_k
    # To JSON, 3 and 3.0 are one number.
    whole = (isinstance(k, int) and not isinstance(k, bool)) or (
        isinstance(k, float) and k.is_integer()
    )
    if not whole or not 1 <= k <= config.max_k:
        raise _wrong(f'"topk" has to be a whole number from 1 to {config.max_k}')
    return int(k)


def _scores(row: dict[str, Any]) -> bool:
    scores = row.get("return_scores")
    if scores is None:
        return False
    if not isinstance(scores, bool):
        raise _wrong('"return_scores" has to be true or false')
    return scores

"""The search server as a FastAPI application."""

from __future__ import annotations

import asyncio
import hmac
import logging
from importlib.metadata import version
from time import perf_counter

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ssp_env.errors import ServiceError
from ssp_env.search.base import Retriever
from ssp_env.search.server.batcher import Batcher, QueueFull
from ssp_env.search.server.config import ServerConfig
from ssp_env.search.server.metrics import Metrics
from ssp_env.search.server.wire import Query, limited, write_result

_logger = logging.getLogger(__name__)

CUT = "X-Queries-Cut"
"""Header of an answer that says how many of its queries were cut."""
_PROBE = "/healthz"
_RETRY = {"Retry-After": "1"}
_NO_ANSWER = 499
"""Counted for requests whose client left before there was an answer."""


def build_app(retriever: Retriever, config: ServerConfig) -> FastAPI:
    """An application that answers with a retriever's documents.

    Args:
        retriever: called by one thread, one call at a time.
        config: the limits and the token.
    """
    metrics = Metrics()
    batcher = Batcher(retriever, config.max_batch, config.max_waiting, metrics)
    app = FastAPI(
        title="ssp search server",
        version=version("ssp-env"),
        description="Search-R1's retrieval protocol: ranked passages for queries.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
    )
    app.add_middleware(_Gate, config=config, metrics=metrics)

    async def retrieve(query: Query) -> Response:
        """Ranked documents for each query."""
        k, limit = query.topk or config.default_k, config.max_query_length
        asked = len(query.queries) * k
        if asked > config.max_documents:
            what = f"{len(query.queries)} queries x topk {k} are {asked} documents"
            raise HTTPException(422, f"{what}; the limit is {config.max_documents}")

        cut = sum(len(text) > limit for text in query.queries)
        metrics.cut.inc(cut)
        texts = [text[:limit] for text in query.queries]
        body = await _search(batcher, texts, k, bool(query.return_scores))
        headers = {CUT: str(cut)} if cut else None
        return Response(body, media_type="application/json", headers=headers)

    retrieve.__annotations__["query"] = limited(config)  # FastAPI reads the limits there
    app.post("/retrieve", max_body_size=config.max_body_bytes)(retrieve)

    @app.get("/status")
    async def status() -> str:
        """Search-R1's sign of life."""
        return "ok"

    @app.get(_PROBE, response_class=PlainTextResponse, include_in_schema=False)
    async def healthz() -> str:
        """Whether the process answers; it listens once the index is loaded."""
        return "ok"

    @app.get("/metrics", include_in_schema=False)
    async def show_metrics() -> Response:
        """Prometheus' metrics."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: RequestValidationError) -> Response:
        """What is wrong with a request, without its text, which may be megabytes."""
        problems = [
            f"{'.'.join(map(str, problem['loc'][1:])) or 'the body'}: {problem['msg']}"
            for problem in error.errors()[:3]
        ]
        return JSONResponse({"detail": "; ".join(problems)}, 422)

    return app


async def _search(batcher: Batcher, queries: list[str], k: int, scores: bool) -> bytes:
    """The body of an answer.

    Raises:
        HTTPException: in place of any failure, without the failure's own text.
    """
    try:
        return write_result(await batcher.search(queries, k), scores)
    except QueueFull:
        raise HTTPException(503, "too many queries are waiting", _RETRY) from None
    except ServiceError as error:
        _logger.error("a search failed: %s", error)
        raise HTTPException(503, "the search is not available", _RETRY) from None
    except Exception:  # whatever a backend raises, and a score that is missing or no number
        _logger.exception("a search failed")
        raise HTTPException(500, "the search failed") from None


class _Gate:
    """ASGI middleware: counts requests, ends them by their deadline, asks for the token."""

    def __init__(self, app: ASGIApp, config: ServerConfig, metrics: Metrics) -> None:
        self._app, self._config, self._metrics = app, config, metrics
        self._bearer = None if config.token is None else f"Bearer {config.token}".encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        begin, status = perf_counter(), _NO_ANSWER

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        answer: ASGIApp = self._app if self._admits(scope) else _UNAUTHORIZED
        try:
            async with asyncio.timeout(self._config.answer_seconds):
                await answer(scope, receive, observed)
        except TimeoutError:
            if status != _NO_ANSWER:
                raise  # the answer has begun
            await _LATE(scope, receive, observed)
        finally:
            # The route's own path, so that clients cannot make up labels.
            path = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(path, status).inc()
            if path == "/retrieve":
                self._metrics.latency.observe(perf_counter() - begin)

    def _admits(self, scope: Scope) -> bool:
        if self._bearer is None or scope["path"] == _PROBE:
            return True
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._bearer)


_LATE = JSONResponse({"detail": "the search took too long"}, 504)
_UNAUTHORIZED = JSONResponse(
    {"detail": "this server wants its token, as Authorization: Bearer TOKEN"},
    401,
    {"WWW-Authenticate": "Bearer"},
)

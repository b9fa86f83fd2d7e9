"""The search server as a FastAPI application."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from time import perf_counter
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ssp_env.errors import ServiceError
from ssp_env.search.base import Retriever
from ssp_env.search.server.batcher import Batcher, QueueFull, Rankings
from ssp_env.search.server.config import ServerConfig
from ssp_env.search.server.metrics import Metrics
from ssp_env.search.server.wire import (
    PROBLEMS,
    UNAUTHORIZED,
    Query,
    Result,
    limited,
    parse,
    read_body,
    write_result,
)

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
    app = FastAPI(
        title="ssp search server",
        version=version("ssp-env"),
        description="Search-R1's retrieval protocol: ranked passages for queries.",
        openapi_url=None,  # it is served below, with the token
        redirect_slashes=False,
        responses=UNAUTHORIZED if config.token is not None else {},
    )
    metrics = Metrics(lambda: batcher.waiting)
    batcher = Batcher(retriever, config.max_batch, config.max_waiting, metrics.call)
    app.add_middleware(_Gate, config=config, metrics=metrics)
    model = limited(config)

    async def retrieve(query: Query) -> Response:
        """Ranked documents for each query."""
        k, limit = query.topk or config.default_k, config.max_query_length
        asked = len(query.queries) * k
        if asked > config.max_documents:
            what = f"{len(query.queries)} queries x topk {k} are {asked} documents"
            raise HTTPException(422, f"{what}; the limit is {config.max_documents}")

        cut = sum(len(text) > limit for text in query.queries)
        if cut:
            metrics.cut.inc(cut)
        rankings = await _search(batcher, [text[:limit] for text in query.queries], k)

        headers = {CUT: str(cut)} if cut else None
        body = write_result(rankings, bool(query.return_scores))
        return Response(body, media_type="application/json", headers=headers)

    retrieve.__annotations__["query"] = model  # for the document, which states the limits

    class Direct(APIRoute):
        """Reads its query without FastAPI's dependencies, which take as long as all the rest."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            async def handle(request: Request) -> Response:
                raw = await read_body(request.receive, config.max_body_bytes)
                return await retrieve(parse(model, raw))

            return handle

    app.router.add_api_route(
        "/retrieve",
        retrieve,
        methods=["POST"],
        response_model=Result,
        responses=PROBLEMS,
        route_class_override=Direct,
    )

    @app.get("/status", response_model=str)
    async def status() -> Response:
        """Search-R1's sign of life."""
        return JSONResponse("ok")

    @app.get(_PROBE, response_class=PlainTextResponse, openapi_extra={"security": []})
    async def healthz() -> str:
        """Whether the process answers; it listens once the index is loaded."""
        return "ok"

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Prometheus' metrics."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/openapi.json", response_model=dict[str, Any])
    async def document() -> Response:
        """This document."""
        described = app.openapi()
        if config.token is not None:  # for which the middleware asks
            scheme = {"token": {"type": "http", "scheme": "bearer"}}
            described["components"]["securitySchemes"] = scheme
            described["security"] = [{"token": []}]
        return JSONResponse(described)

    return app


async def _search(batcher: Batcher, queries: list[str], k: int) -> Rankings:
    """Raises ``HTTPException`` in place of any failure, without the failure's own text."""
    try:
        return await batcher.search(queries, k)
    except QueueFull:
        raise HTTPException(503, "too many queries are waiting", _RETRY) from None
    except ServiceError as error:
        _logger.error("a search failed: %s", error)
        raise HTTPException(503, "the search is not available", _RETRY) from None
    except Exception:  # whatever a backend raises
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

        answer: ASGIApp = self._unauthorized(scope) or self._app
        try:
            async with asyncio.timeout(self._config.answer_seconds):
                await answer(scope, receive, observed)
        except TimeoutError:
            if status != _NO_ANSWER:
                raise  # the answer has begun
            late = JSONResponse({"detail": "the search took too long"}, 504)
            await late(scope, receive, observed)
        finally:
            # The route's own path, so that clients cannot make up labels.
            path = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(path, status).inc()
            if path == "/retrieve":
                self._metrics.latency.observe(perf_counter() - begin)

    def _unauthorized(self, scope: Scope) -> Response | None:
        """The refusal of a request without the token."""
        if self._bearer is None or scope["path"] == _PROBE:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) == 1 and hmac.compare_digest(given[0], self._bearer):
            return None
        came = "what came is not it" if given else "none came"
        what = f"this server wants its token, as Authorization: Bearer TOKEN; {came}"
        return JSONResponse({"detail": what}, 401, {"WWW-Authenticate": "Bearer"})

"""The search server as an ASGI application."""

from __future__ import annotations

import asyncio
import hmac
from time import perf_counter

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ssp_env.errors import ServiceError
from ssp_env.search.base import Retriever
from ssp_env.search.server import metrics
from ssp_env.search.server.batcher import Batcher, QueueFull, Rankings
from ssp_env.search.server.config import ServerConfig
from ssp_env.search.server.openapi import openapi
from ssp_env.search.server.reading import Disconnected, read_body
from ssp_env.search.server.wire import Query, Refusal, WrongAnswer, read_query, write_result

_JSON = (b"content-type", b"application/json")
_RETRY = {"Retry-After": "1"}
_NO_ANSWER = 499
"""Counted for requests whose client left before there was an answer."""
_OPEN = ("/healthz", "/readyz")


class SearchApp:
    """Answers for one retriever, once :meth:`open` has named it."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.stopping = False
        """Set when the server is told to stop: not ready any more, and every answer ends its
        connection."""
        self.metrics = metrics.Metrics(
            lambda: self._batcher.waiting if self._batcher else 0, lambda: self.ready
        )
        self._retriever: Retriever | None = None
        self._batcher: Batcher | None = None
        self._bearer = None if config.token is None else f"Bearer {config.token}".encode("ascii")
        self._openapi = orjson.dumps(openapi(config))
        self._starlette = self._routes()
        self._paths = {route.path for route in self._starlette.routes if isinstance(route, Route)}

    @property
    def ready(self) -> bool:
        """Whether requests are welcome."""
        return self._retriever is not None and not self.stopping

    def open(self, retriever: Retriever) -> None:
        """Begins to answer with a retriever's documents."""
        self._retriever = retriever

    def close(self) -> None:
        """Ends the backend's thread."""
        if self._batcher is not None:
            self._batcher.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._starlette(scope, receive, send)
            return
        begin = perf_counter()
        status = _NO_ANSWER

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.stopping:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        path = scope["path"]
        try:
            if self._bearer is not None and path not in _OPEN and not _carries(scope, self._bearer):
                await _refuse(observed, _unauthorized(scope))
            elif path == "/retrieve" and scope["method"] == "POST":
                await self._retrieve(scope, receive, observed)
            else:
                await self._starlette(scope, receive, observed)
        finally:
            known = path if path in self._paths else "other"
            self.metrics.request(known, status, perf_counter() - begin)

    async def _retrieve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._answer(scope, receive)
        except Refusal as refusal:
            await _refuse(send, refusal)
        except Disconnected:
            return
        else:
            await _send(send, 200, body, [])

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        """
        Raises:
            Refusal: what the client is told instead of documents; never the text of an exception.
            Disconnected: the client left.
        """
        body = await read_body(scope, receive, self.config)
        query = read_query(body, self.config)
        rankings = await self._search(query)
        try:
            return write_result(rankings, query.scores)
        except WrongAnswer:
            raise Refusal(500, "search_failed", "the search failed") from None

    async def _search(self, query: Query) -> Rankings:
        if not query.queries:
            return []
        try:
            async with asyncio.timeout(self.config.answer_seconds):
                return await self._open_batcher().submit(query.queries, query.k)
        except QueueFull:
            raise Refusal(503, "queue_full", "too many queries are waiting", _RETRY) from None
        except TimeoutError:
            raise Refusal(504, "too_late", "the search took too long") from None
        except ServiceError:
            raise Refusal(
                503, "search_unavailable", "the search is not available", _RETRY
            ) from None
        except Refusal:
            raise
        except Exception:  # whatever a backend raises; the batcher has logged it
            raise Refusal(500, "search_failed", "the search failed") from None

    def _open_batcher(self) -> Batcher:
        if self._batcher is None:
            if self._retriever is None:
                raise _not_ready()
            self._batcher = Batcher(
                self._retriever,
                max_batch=self.config.max_batch,
                max_waiting=self.config.max_waiting,
                window=self.config.batch_window,
                observe=self.metrics.call,
            )
        return self._batcher

    def _routes(self) -> Starlette:
        routes = [
            # POST is answered in __call__, before Starlette; this is for the other methods' 405.
            Route("/retrieve", self._retrieve, methods=["POST"]),
            Route("/status", self._status),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
            Route("/openapi.json", self._document),
        ]
        app = Starlette(
            routes=routes, exception_handlers={HTTPException: _http_error, Exception: _internal}
        )
        app.router.redirect_slashes = False
        return app

    async def _status(self, request: Request) -> Response:
        # Search-R1's server does not listen before its index is loaded; its clients take this for
        # readiness.
        if self._retriever is None:
            return _response(_not_ready())
        return Response(b'"ok"', media_type="application/json")

    async def _healthz(self, request: Request) -> Response:
        return Response("ok", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:
        if self.stopping:
            return _response(Refusal(503, "stopping", "the server is stopping", _RETRY))
        if self._retriever is None:
            return _response(_not_ready())
        return Response("ok", media_type="text/plain")

    async def _metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def _document(self, request: Request) -> Response:
        return Response(self._openapi, media_type="application/json")


def _carries(scope: Scope, bearer: bytes) -> bool:
    """Whether the request's only Authorization header is this one, in a time that does not tell how
    much of it is."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    return len(given) == 1 and hmac.compare_digest(given[0], bearer)


def _unauthorized(scope: Scope) -> Refusal:
    came = any(name == b"authorization" for name, _ in scope["headers"])
    problem = "what came as Authorization is not it" if came else "none came"
    message = f"this server wants its token, as Authorization: Bearer TOKEN; {problem}"
    return Refusal(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})


def _not_ready() -> Refusal:
    return Refusal(503, "not_ready", "the index is not loaded yet", _RETRY)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
    return _response(Refusal(error.status_code, code, error.detail, error.headers))


async def _internal(request: Request, error: Exception) -> Response:
    return _response(Refusal(500, "internal", "the server failed"))


def _response(refusal: Refusal) -> Response:
    return Response(refusal.body(), refusal.status, refusal.headers, media_type="application/json")


async def _refuse(send: Send, refusal: Refusal) -> None:
    headers = [
        (name.lower().encode("ascii"), value.encode("ascii"))
        for name, value in refusal.headers.items()
    ]
    await _send(send, refusal.status, refusal.body(), headers)


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode("ascii"))
    await send(
        {"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]}
    )
    await send({"type": "http.response.body", "body": body})

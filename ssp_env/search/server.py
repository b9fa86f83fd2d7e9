"""The search server: Search-R1's protocol over any retriever, by FastAPI (extra ``serve``)."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import signal
import socket
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.types import ASGIApp, Receive, Scope, Send

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.search.base import Retriever
from ssp_env.search.batcher import Batcher, QueueFull, Rankings
from ssp_env.search.config import ServerConfig
from ssp_env.search.corpus import join_contents, well_formed
from ssp_env.types import Document

DEFAULT_K = 3
"""Documents per query when a request names no ``topk``, or 0; Search-R1's own default."""
MAX_K = 100
"""Largest ``topk`` of a request."""
MAX_WAITING = 16_384
"""Most queries that wait for their answer. Search-R1 sends a whole rollout batch in one request
(512 prompts of 5 rollouts); a request beyond is answered with 503 and ``Retry-After``."""
MAX_QUERY = 8192
"""Characters of a query. A longer one is cut: a policy wrote it, and the other queries of its batch
are not to blame."""
MAX_BODY = 16 * 2**20
"""Bytes of a request."""

_PROBE = "/healthz"
_RETRY = {"Retry-After": "1"}
_UNAUTHORIZED = JSONResponse(
    {"detail": "this server wants its token, as Authorization: Bearer TOKEN"},
    401,
    {"WWW-Authenticate": "Bearer"},
)
_logger = logging.getLogger(__name__)


class Query(BaseModel):
    """A search. Other fields are passed over; a missing, null or zero ``topk`` is the default."""

    model_config = ConfigDict(strict=True)
    queries: list[str] = Field(max_length=MAX_WAITING)
    topk: int | None = Field(None, ge=0, le=MAX_K)
    return_scores: bool | None = None

    @field_validator("queries", mode="before")
    @classmethod
    def _clean(cls, value: Any) -> Any:
        # JSON can spell lone surrogates, which are no text to search for.
        if not isinstance(value, list):
            return value
        return [well_formed(text[:MAX_QUERY]) if isinstance(text, str) else text for text in value]


def build_app(retriever: Retriever, config: ServerConfig) -> FastAPI:
    """An application that answers with a retriever's documents, asked one call at a time."""
    batcher = Batcher(retriever, MAX_WAITING)
    app = FastAPI(
        title="ssp search server",
        version=version("ssp-env"),
        description="Search-R1's retrieval protocol: ranked passages for queries.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
    )
    if config.token is not None:
        app.add_middleware(_TokenGate, token=config.token)

    @app.post("/retrieve", max_body_size=MAX_BODY)
    async def retrieve(query: Query) -> Response:
        """Ranked documents for each query."""
        try:
            async with asyncio.timeout(config.answer_seconds):
                rankings = await batcher.search(query.queries, query.topk or DEFAULT_K)
            body = write_result(rankings, bool(query.return_scores))
        except QueueFull:
            raise HTTPException(503, "too many queries are waiting", _RETRY) from None
        except TimeoutError:
            raise HTTPException(504, "the search took too long") from None
        except ServiceError as error:
            _logger.error("a search failed: %s", error)
            raise HTTPException(503, "the search is not available", _RETRY) from None
        except Exception:  # whatever a retriever raises, and a score that is missing or no number
            _logger.exception("a search failed")
            raise HTTPException(500, "the search failed") from None
        return Response(body, media_type="application/json")

    @app.get("/status")
    async def status() -> str:
        """Search-R1's sign of life."""
        return "ok"

    @app.get(_PROBE, response_class=PlainTextResponse, include_in_schema=False)
    async def healthz() -> str:
        """A sign of life that needs no token; the server listens once the index is loaded."""
        return "ok"

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: RequestValidationError) -> Response:
        """The faults of a request, without its text, which may be megabytes."""
        problems = [f"{'.'.join(map(str, p['loc'][1:]))}: {p['msg']}" for p in error.errors()[:3]]
        return JSONResponse({"detail": "; ".join(problems)}, 422)

    return app


def write_result(rankings: Rankings, scores: bool) -> bytes:
    """The body of an answer; raises where scores are wanted and one is missing or not finite."""

    def row(found: Document) -> dict[str, Any]:
        document = {"id": found.id, "contents": join_contents(found)}
        return {"document": document, "score": float(found.score)} if scores else document  # type: ignore[arg-type]

    rows = [[row(found) for found in ranking] for ranking in rankings]
    return json.dumps({"result": rows}, allow_nan=False).encode()


class _TokenGate:
    """ASGI middleware that asks for the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._bearer = app, f"Bearer {token}".encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != _PROBE:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._bearer):
                await _UNAUTHORIZED(scope, receive, send)
                return
        await self._app(scope, receive, send)


def run_server(
    open_retriever: Callable[[], Retriever],
    config: ServerConfig,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serves until SIGTERM or SIGINT, in the main thread.

    The port is bound before the index is loaded, so that one that is taken is known at once. A
    signal ends the process in order, requests in progress answered; a second Ctrl-C at once.

    Args:
        open_retriever: loads the index.
        config: the settings.
        on_ready: called with the server's address once it listens.

    Raises:
        ConfigError: the address cannot be bound.
        KeyboardInterrupt: SIGINT ended it, in order.
    """
    host = f"[{config.host}]" if ":" in config.host else config.host
    with socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((config.host, config.port))
        except OSError as error:
            where = f"http://{host}:{config.port}"
            raise ConfigError("host and port", where, f"cannot be bound: {error}") from None
        server = make_server(build_app(open_retriever(), config), config)

        def stop(*_: object) -> None:
            server.should_exit = True

        # uvicorn raises the signal that stopped it once more: SIGTERM would make of that a kill,
        # SIGINT is KeyboardInterrupt, also where a shell's background process ignores it.
        before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            listener.listen(4096)  # connections that the kernel holds until the server takes them
            on_ready(f"http://{host}:{listener.getsockname()[1]}")
            server.run([listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_server(app: FastAPI, config: ServerConfig) -> uvicorn.Server:
    """uvicorn without access logs; its ``run`` takes the sockets."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",  # httptools, which is faster, has no limit on heads
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(config.answer_seconds) + 1,
        )
    )

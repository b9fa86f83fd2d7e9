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
from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.search.base import Retriever
from ssp_env.search.batcher import Batcher, QueueFull, Rankings
from ssp_env.search.config import ServerConfig
from ssp_env.search.corpus import join_contents, well_formed
from ssp_env.types import Document

DEFAULT_K = 3
"""Documents per query when a request names no ``topk``, or 0; Search-R1's own default."""
MAX_DOCUMENTS = 16_384
"""Most documents that a request may ask for: its queries times ``topk``. A document of 600
characters makes an answer of 10 MB."""
MAX_QUERY = 8192
"""Characters of a query. A longer one is cut: a policy wrote it, and the other queries of its batch
are not to blame."""
CUT = "X-Queries-Cut"
"""Header of an answer that says how many of its queries were cut."""

_MAX_BODY = 16 * 2**20
_MAX_HEAD = 64 * 2**10
_BACKLOG = 4096  # connections that the kernel holds until the server takes them
_PROBE = "/healthz"
_RETRY = {"Retry-After": "1"}
_LATE = JSONResponse({"detail": "the search took too long"}, 504)
_UNAUTHORIZED = JSONResponse(
    {"detail": "this server wants its token, as Authorization: Bearer TOKEN"},
    401,
    {"WWW-Authenticate": "Bearer"},
)
_logger = logging.getLogger(__name__)


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


def build_app(retriever: Retriever, config: ServerConfig) -> FastAPI:
    """An application that answers with a retriever's documents.

    Args:
        retriever: called by one thread, one call at a time.
        config: the limits and the token.
    """
    batcher = Batcher(retriever, config.max_waiting)
    app = FastAPI(
        title="ssp search server",
        version=version("ssp-env"),
        description="Search-R1's retrieval protocol: ranked passages for queries.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
    )
    app.add_middleware(_Gate, config=config)

    async def retrieve(query: Query) -> Response:
        """Ranked documents for each query."""
        k = query.topk or DEFAULT_K
        asked = len(query.queries) * k
        if asked > MAX_DOCUMENTS:
            what = f"{len(query.queries)} queries x topk {k} are {asked} documents"
            raise HTTPException(422, f"{what}; the limit is {MAX_DOCUMENTS}")

        texts = [text[:MAX_QUERY] for text in query.queries]
        cut = sum(len(text) > MAX_QUERY for text in query.queries)
        try:
            body = write_result(await batcher.search(texts, k), bool(query.return_scores))
        except QueueFull:
            raise HTTPException(503, "too many queries are waiting", _RETRY) from None
        except ServiceError as error:
            _logger.error("a search failed: %s", error)
            raise HTTPException(503, "the search is not available", _RETRY) from None
        except Exception:  # whatever a retriever raises, and a score that is missing or no number
            _logger.exception("a search failed")
            raise HTTPException(500, "the search failed") from None
        headers = {CUT: str(cut)} if cut else None
        return Response(body, media_type="application/json", headers=headers)

    limited = create_model(
        "Query",
        __base__=Query,
        queries=(list[str], Field(max_length=config.max_queries)),
        topk=(int | None, Field(None, ge=0, le=config.max_k)),
    )
    retrieve.__annotations__["query"] = limited  # FastAPI reads the limits there
    app.post("/retrieve", max_body_size=_MAX_BODY)(retrieve)

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
        problems = [
            f"{'.'.join(map(str, problem['loc'][1:])) or 'the body'}: {problem['msg']}"
            for problem in error.errors()[:3]
        ]
        return JSONResponse({"detail": "; ".join(problems)}, 422)

    return app


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


class _Gate:
    """ASGI middleware: asks for the token, and ends requests by their deadline."""

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app, self._seconds = app, config.answer_seconds
        self._bearer = None if config.token is None else f"Bearer {config.token}".encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        if self._bearer is not None and scope["path"] != _PROBE:
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            if len(given) != 1 or not hmac.compare_digest(given[0], self._bearer):
                await _UNAUTHORIZED(scope, receive, send)
                return

        begun = False

        async def observed(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self._seconds):
                await self._app(scope, receive, observed)
        except TimeoutError:
            if begun:
                raise
            await _LATE(scope, receive, send)


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
    with _bind(config) as listener:
        server = make_server(build_app(open_retriever(), config), config)

        def stop(*_: object) -> None:
            server.should_exit = True

        # uvicorn raises the signal that stopped it once more: SIGTERM would make of that a kill,
        # SIGINT is KeyboardInterrupt, also where a shell's background process ignores it.
        before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            listener.listen(_BACKLOG)
            on_ready(_address(config.host, listener.getsockname()[1]))
            server.run([listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_server(app: FastAPI, config: ServerConfig) -> uvicorn.Server:
    """uvicorn with bounded heads and without access logs; its ``run`` takes the sockets."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",  # httptools, which is faster, has no limit on heads
            h11_max_incomplete_event_size=_MAX_HEAD,
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


def _bind(config: ServerConfig) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        where = _address(config.host, config.port)
        raise ConfigError("host and port", where, f"cannot be bound: {error}") from None
    return listener


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

"""The search server: Search-R1's protocol over any retriever, by FastAPI (extra ``services``)."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from time import perf_counter, sleep
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, BeforeValidator, Field

from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.search.base import Retriever, join_contents, split_contents, well_formed
from ssp_env.search.pages import pages_of
from ssp_env.types import Document

DEFAULT_K = 3
"""Documents per query when a request names no ``topk``; Search-R1's own default."""
MAX_K = 100
MAX_WAITING = 16_384
"""Most queries that wait for their answer. Search-R1 sends a whole rollout batch in one request
(512 prompts of 5 rollouts); a request beyond is answered with 503 and ``Retry-After``."""
MAX_BATCH = 256
"""Most queries of a call that joins requests; a larger request has its own."""
MAX_QUERY = 8192
"""Characters of a query. A longer one is cut: a policy wrote it, and the other queries of its batch
are not to blame."""
MAX_BODY = 16 * 2**20
ANSWER_SECONDS = 60.0
"""Most seconds that a search may take; then 504."""

_PROBE = "/healthz"
# Seconds for which a call waits, at most, for requests that could join it.
_LONGEST_PAUSE = 0.002
_logger = logging.getLogger(__name__)

Rankings = list[list[Document]]


def _cleaned(text: Any) -> Any:
    """A query without lone surrogates, which JSON can spell, but nobody can search for."""
    return well_formed(text[:MAX_QUERY]) if isinstance(text, str) else text


class Query(BaseModel, strict=True):
    """A search. Other fields are passed over; a missing or null ``topk`` is the default."""

    queries: list[Annotated[str, BeforeValidator(_cleaned)]] = Field(max_length=MAX_WAITING)
    topk: int | None = Field(None, ge=1, le=MAX_K)
    return_scores: bool | None = None


def build_app(retriever: Retriever, token: str | None = None) -> FastAPI:
    """An application that answers with a retriever's documents, asked one call at a time.

    Requests carry the ``token`` as ``Authorization: Bearer ...``; ``None`` asks for nothing."""
    app = FastAPI(
        title="ssp search server",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
    )
    if token is not None:
        bearer = f"Bearer {token}".encode("ascii")

        @app.middleware("http")
        async def admit(
            request: Request, go_on: Callable[[Request], Awaitable[Response]]
        ) -> Response:
            """Asks for the token, before the body is read."""
            # compare_digest takes as long whatever is wrong, so that no letter can be
            # guessed by time.
            given = request.headers.get("authorization", "").encode("latin-1")
            if request.url.path == _PROBE or hmac.compare_digest(given, bearer):
                return await go_on(request)
            wanted = {"detail": "this server wants its token, as Authorization: Bearer TOKEN"}
            return JSONResponse(wanted, 401, {"WWW-Authenticate": "Bearer"})

    async def answer(query: Query, batcher: Batcher) -> Response:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                rankings = await batcher.search(query.queries, query.topk or DEFAULT_K)
            body = write_result(rankings, bool(query.return_scores))
        except TimeoutError:
            raise HTTPException(504, "the search took too long") from None
        except ServiceError as error:
            if error.fault == "text":
                raise HTTPException(422, "the search refuses this text") from None
            _logger.error("a search failed: %s", error)
            raise HTTPException(503, "the search is not available", {"Retry-After": "1"}) from None
        except Exception:  # whatever a retriever raises, and a score that is no number
            _logger.exception("a search failed")
            raise HTTPException(500, "the search failed") from None
        return Response(body, media_type="application/json")

    batcher, pages = Batcher(retriever), pages_of(retriever)

    @app.post("/retrieve", max_body_size=MAX_BODY)
    async def retrieve(query: Query) -> Response:
        """Ranked documents for each query."""
        return await answer(query, batcher)

    if pages is not None:
        reader = Batcher(pages)

        @app.post("/open", max_body_size=MAX_BODY)
        async def read(query: Query) -> Response:
            """The first passages of the page that each query names by its title."""
            return await answer(query, reader)

    # Search-R1's sign of life, and one that needs no token. The server listens once the index is
    # loaded.
    @app.get("/status")
    @app.get(_PROBE, response_class=PlainTextResponse, include_in_schema=False)
    async def status() -> str:
        return "ok"

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: RequestValidationError) -> Response:
        """The faults of a request, without its text, which may be megabytes."""
        problems = [f"{'.'.join(map(str, p['loc'][1:]))}: {p['msg']}" for p in error.errors()[:3]]
        return JSONResponse({"detail": "; ".join(problems)}, 422)

    return app


def write_result(rankings: Rankings, scores: bool) -> bytes:
    """The body of an answer; raises where a score is not finite. A missing one is null.

    Where contents alone would be read otherwise, title and text stand beside them."""

    def row(passage: Document) -> dict[str, Any]:
        document = {"id": passage.id, "contents": join_contents(passage)}
        if split_contents(document["contents"]) != (passage.title, passage.text):
            document |= {"title": passage.title, "text": passage.text}
        score = None if passage.score is None else float(passage.score)
        return {"document": document, "score": score} if scores else document

    rows = [[row(passage) for passage in ranking] for ranking in rankings]
    return json.dumps({"result": rows}, allow_nan=False).encode()


# -- requests that share a call ----------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Request:
    queries: Sequence[str]
    k: int
    future: Future[Rankings] = field(default_factory=Future)


class Batcher:
    """Hands requests to a retriever, one call at a time, in its own thread.

    Requests that arrive while the retriever is busy become its next call: oldest first, equal ``k``
    together. A call that fails, but not by an outage, is repeated request by request, so that one
    that the retriever chokes on fails alone."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever, self._waiting = retriever, 0
        self._inbox: SimpleQueue[_Request] = SimpleQueue()
        # A daemon: a retriever that hangs does not keep the process alive.
        Thread(target=self._work, name="search backend", daemon=True).start()

    async def search(self, queries: Sequence[str], k: int) -> Rankings:
        """Waits for the rankings of a request; raises what the retriever raised."""
        if self._waiting + len(queries) > MAX_WAITING:
            raise ServiceError("search", "too many queries are waiting")
        request = _Request(queries, k)
        self._waiting += len(queries)
        self._inbox.put(request)
        try:
            return await asyncio.wrap_future(request.future)  # cancelled, it is dropped
        finally:
            self._waiting -= len(queries)

    def _work(self) -> None:
        """The thread: answers one batch after another."""
        pending: deque[_Request] = deque()
        pause = 0.0
        while True:
            if not pending:
                pending.append(self._inbox.get())
            # Clients that got their answers together ask again together, a moment later. A call
            # that started at once would miss all but the first of them.
            sleep(pause)
            while not self._inbox.empty():
                pending.append(self._inbox.get())

            # The oldest decides about k. What has another one, or finds no room, is for
            # the next call.
            k, room = pending[0].k, MAX_BATCH
            batch, left = list[_Request](), deque[_Request]()
            for request in pending:
                if batch and (request.k != k or len(request.queries) > room):
                    left.append(request)
                elif request.future.set_running_or_notify_cancel():
                    batch.append(request)
                    k, room = request.k, room - len(request.queries)
            pending = left

            begin = perf_counter()
            if batch:
                self._answer(batch)
            # Waiting takes no more than a quarter of what the call before took.
            pause = min(_LONGEST_PAUSE, (perf_counter() - begin) / 4)

    def _answer(self, batch: list[_Request]) -> None:
        """Gives each request its rankings, or the reason why it has none."""
        queries = [query for request in batch for query in request.queries]
        try:
            rankings = self._retriever.search(queries, batch[0].k)
            if len(rankings) != len(queries):
                raise UsageError(f"{len(rankings)} rankings came for {len(queries)} queries")
        except Exception as error:
            outage = isinstance(error, ServiceError) and error.fault == "service"
            for request in batch:
                if len(batch) == 1 or outage:
                    request.future.set_exception(error)
                else:
                    self._answer([request])
            return

        # Rankings are in the order in which the requests' queries were joined.
        each = iter(rankings)
        for request in batch:
            request.future.set_result(list(islice(each, len(request.queries))))


# -- the process -------------------------------------------------------------------------------


def run_server(
    open_retriever: Callable[[], Retriever],
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serves until SIGTERM or SIGINT, which end the process when requests in progress are answered.

    The port (0: a free one) is bound before the index is loaded, so that one that is taken is known
    at once. ``on_ready`` is called with the server's address once it listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            what = f"cannot be bound: {error}"
            raise ConfigError("host and port", f"{host}:{port}", what) from None

        server = make_server(build_app(open_retriever(), token))
        listener.listen(4096)  # connections that the kernel holds until the server takes them
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{listener.getsockname()[1]}")
        server.run([listener])


def make_server(app: FastAPI) -> uvicorn.Server:
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
            timeout_graceful_shutdown=int(ANSWER_SECONDS) + 1,
        )
    )

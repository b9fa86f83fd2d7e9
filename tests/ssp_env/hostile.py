"""A search server that misbehaves on demand, over real sockets.

A query that holds ``hostile:NAME`` makes the whole request be answered by the behaviour of that
name. Otherwise documents are made of the query itself, so that a ranking shows whose it is."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


def echo(query: str, k: int) -> list[Row]:
    """``k`` documents that say which query they belong to."""
    digest = hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest()
    return [
        {"document": {"id": f"{digest}-{i}", "contents": f'"{digest}"\nrank {i}'}, "score": 9.5 - i}
        for i in range(k)
    ]


@dataclass
class Call:
    """One request."""

    server: Hostile
    writer: asyncio.StreamWriter
    queries: list[str]
    k: int
    headers: dict[str, str]
    repeats: int
    """How often these queries have come, this time included."""

    def result(self) -> list[list[Row]]:
        return [self.server.rank(query, self.k) for query in self.queries]

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(
        self, body: bytes, status: int = 200, length: int | None = None, head: str = ""
    ) -> None:
        size = len(body) if length is None else length
        top = f"HTTP/1.1 {status} X\r\nContent-Length: {size}\r\n{head}\r\n"
        await self.raw(top.encode() + body)

    async def say(self, result: Any) -> None:
        await self.answer(json.dumps({"result": result}).encode())

    async def well(self) -> None:
        await self.say(self.result())


Behaviour = Callable[[Call], Awaitable[None]]


@dataclass
class Hostile:
    """The server. ``usual`` answers requests without a mark."""

    rank: Callable[[str, int], list[Row]] = echo
    usual: Behaviour = Call.well
    calls: list[Call] = field(default_factory=list)
    busy: int = 0
    most_busy: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._bodies: Counter[str] = Counter()
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self) -> list[list[str]]:
        """The queries of each request so far."""
        return [call.queries for call in self.calls]

    def start(self) -> None:
        ready = threading.Event()

        def run() -> None:
            serve = asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2**26)
            self._server = self._loop.run_until_complete(serve)
            self.port = self._server.sockets[0].getsockname()[1]
            ready.set()
            self._loop.run_forever()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert ready.wait(10)

    def stop(self) -> None:
        """Breaks all connections, and nobody listens any more."""
        if self._loop.is_closed():
            return

        def end() -> None:
            self._server.close()
            for writer in list(self._open):
                writer.transport.abort()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_later(0.01, self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                assert lines[0] == "POST /retrieve HTTP/1.1", lines[0]
                pairs = (line.partition(": ") for line in lines[1:])
                headers = {name.lower(): value for name, _, value in pairs}
                body = await reader.readexactly(int(headers["content-length"]))
                await self._handle(headers, json.loads(body), writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _handle(
        self, headers: dict[str, str], row: Any, writer: asyncio.StreamWriter
    ) -> None:
        assert row["return_scores"] is True
        queries = row["queries"]
        self._bodies[str(queries)] += 1
        call = Call(self, writer, queries, row["topk"], headers, self._bodies[str(queries)])
        self.calls.append(call)
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            marks = [mark[1] for query in queries if (mark := re.search(r"hostile:(\w+)", query))]
            await (BEHAVIOURS[marks[0]] if marks else self.usual)(call)
        finally:
            self.busy -= 1


@contextlib.contextmanager
def serving(**settings: Any) -> Iterator[Hostile]:
    """A running server."""
    server = Hostile(**settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


# -- behaviours --------------------------------------------------------------------------------


async def never(call: Call) -> None:
    await asyncio.sleep(3600)


async def trickle(call: Call) -> None:
    await call.answer(b'{"result": ', length=10_000)
    for _ in range(9_000):
        await call.raw(b" ")
        await asyncio.sleep(0.02)


async def truncated(call: Call) -> None:
    body = json.dumps({"result": call.result()}).encode()
    await call.answer(body[:-20], length=len(body))
    call.writer.close()


async def reset(call: Call) -> None:
    call.writer.transport.abort()


async def endless(call: Call) -> None:
    await call.raw(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(4096):
        await call.raw(b"100000\r\n" + b" " * 2**20 + b"\r\n")


async def lazy(call: Call) -> None:
    await asyncio.sleep(0.02)
    await call.well()


def status(code: int, body: bytes = b"oops", head: str = "") -> Behaviour:
    return lambda call: call.answer(body, code, head=head)


def first(times: int, then: Behaviour) -> Behaviour:
    """Misbehaves the first ``times`` that a body comes."""
    return lambda call: then(call) if call.repeats <= times else call.well()


BEHAVIOURS: dict[str, Behaviour] = {
    "down": status(500),
    "busy": status(503, head="Retry-After: 0\r\n"),
    "forever": status(429, head="Retry-After: 86400\r\n"),
    "flaky": first(2, status(500)),
    "gateway": first(1, status(502, b"<html>bad gateway</html>")),
    "resets_once": first(1, reset),
    "refused": status(422, b'{"detail": "a bad query"}'),
    "forbidden": status(401, b"who are you, sesame-42?"),
    "moved": status(307, b"", "Location: http://elsewhere/retrieve\r\n"),
    "never": never,
    "trickle": trickle,
    "truncated": truncated,
    "reset": reset,
    "endless": endless,
    "html": status(200, b"<html>It works!</html>"),
    "too_few": lambda call: call.say(call.result()[:-1]),
}

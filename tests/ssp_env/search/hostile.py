"""A search server that misbehaves on demand, over real sockets; stdlib only, so that it starts fast
as a process too.

A query that holds ``hostile:NAME`` makes the whole request be answered by the behaviour of that
name. By default it ranks documents that are made of the query itself, so that a ranking shows which
query it belongs to."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import sys
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
    number: int
    """Which one it is, from 1."""
    queries: list[str]
    k: int
    headers: dict[str, str]
    repeats: int
    """How often this very body has come, this time included."""

    def result(self) -> list[list[Row]]:
        return [self.server.rank(query, self.k) for query in self.queries]

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(
        self, body: bytes, status: int = 200, length: int | None = None, head: str = ""
    ) -> None:
        size = len(body) if length is None else length
        await self.raw(
            f"HTTP/1.1 {status} X\r\nContent-Length: {size}\r\n{head}\r\n".encode() + body
        )

    async def say(self, result: Any, **extra: Any) -> None:
        await self.answer(json.dumps({"result": result} | extra).encode())

    async def well(self) -> None:
        await self.say(self.result())


Behaviour = Callable[[Call], Awaitable[None]]


@dataclass
class Hostile:
    """The server. ``usual`` answers requests without a mark."""

    rank: Callable[[str, int], list[Row]] = echo
    usual: Behaviour = Call.well
    calls: list[Call] = field(default_factory=list)
    keep: bool = True
    """Whether calls are recorded."""
    connections: int = 0
    most_busy: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._busy = 0
        self._count = 0
        self._bodies: Counter[bytes] = Counter()
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """How many connections there are now."""
        return len(self._open)

    def asked(self) -> list[list[str]]:
        """The queries of each request so far."""
        return [call.queries for call in self.calls]

    def start(self) -> None:
        ready = threading.Event()

        def run() -> None:
            self._server = self._loop.run_until_complete(
                asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2**26, backlog=1024)
            )
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
            self.break_connections()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_later(0.01, self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._thread.join(10)
        self._loop.close()

    def hang_up_idle(self) -> None:
        """Closes all connections politely, as a server does with those that were idle for long."""
        done = threading.Event()

        def end() -> None:
            for writer in list(self._open):
                writer.close()
            self._loop.call_later(0.02, done.set)

        self._loop.call_soon_threadsafe(end)
        assert done.wait(10)

    def break_connections(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:]) if k
                }
                body = await reader.readexactly(int(headers["content-length"]))
                await self._handle(head[0], headers, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _handle(
        self, line: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        row = json.loads(body)
        self._count += 1
        if self.keep:
            self._bodies[body] += 1
        call = Call(
            self, writer, self._count, row["queries"], row["topk"], headers, self._bodies[body]
        )
        if self.keep:
            self.calls.append(call)
        self._busy += 1
        self.most_busy = max(self.most_busy, self._busy)
        try:
            assert row["return_scores"] is True
            assert line == "POST /retrieve HTTP/1.1", line
            marks = [
                mark[1] for query in call.queries if (mark := re.search(r"hostile:(\w+)", query))
            ]
            await (BEHAVIOURS[marks[0]] if marks else self.usual)(call)
        finally:
            self._busy -= 1


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


async def trickle_head(call: Call) -> None:
    await call.raw(b"HTTP/1.1 200 X\r\n")
    for number in range(10_000):
        await call.raw(f"X-{number}: y\r\n".encode())
        await asyncio.sleep(0.02)


async def trickle_body(call: Call) -> None:
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


async def closes_after(call: Call) -> None:
    await call.well()
    call.writer.close()


async def lazy(call: Call) -> None:
    await asyncio.sleep(0.02)
    await call.well()


def status(code: int, body: bytes = b"oops", head: str = "") -> Behaviour:
    return lambda call: call.answer(body, code, head=head)


def first(times: int, then: Behaviour) -> Behaviour:
    """Misbehaves the first ``times`` that a body comes."""
    return lambda call: then(call) if call.repeats <= times else call.well()


def every(nth: int, then: Behaviour) -> Behaviour:
    """Misbehaves every so often."""
    return lambda call: then(call) if call.number % nth == 0 else call.well()


def shaped(change: Callable[[list[list[Row]]], Any]) -> Behaviour:
    """Answers with something else in the place of the result."""
    return lambda call: call.say(change(call.result()))


def hit(**changes: Any) -> Behaviour:
    """Changes fields of the first hit."""
    return shaped(lambda result: [[result[0][0] | changes, *result[0][1:]], *result[1:]])


def document(*without: str, **changes: Any) -> Behaviour:
    """Changes fields of the first document."""

    def change(result: list[list[Row]]) -> list[list[Row]]:
        row = {k: v for k, v in (result[0][0]["document"] | changes).items() if k not in without}
        return [[result[0][0] | {"document": row}, *result[0][1:]], *result[1:]]

    return shaped(change)


def text(body: bytes) -> Behaviour:
    return lambda call: call.answer(body)


BEHAVIOURS: dict[str, Behaviour] = {
    "down": status(500),
    "busy": status(503, head="Retry-After: 0\r\n"),
    "patience": first(1, status(429, head="Retry-After: 1\r\n")),
    "forever": status(429, head="Retry-After: 86400\r\n"),
    "late": first(1, status(408)),
    "flaky": first(2, status(500)),
    "gateway": first(1, status(502, b"<html>bad gateway</html>")),
    "refused": status(422, b'{"error": "a bad query"}'),
    "forbidden": status(401, b"who are you, sesame-42?"),
    "moved": status(307, b"", "Location: http://elsewhere/retrieve\r\n"),
    "never": never,
    "trickle_head": trickle_head,
    "trickle_body": trickle_body,
    "truncated": truncated,
    "reset": reset,
    "resets_once": first(1, reset),
    "endless": endless,
    "declared": lambda call: call.answer(b"{", length=2**40),
    "closes_after": closes_after,
    "lazy": lazy,
    "html": text(b"<html>It works!</html>"),
    "empty_body": text(b""),
    "latin": text(b'{"result": [["\xe9"]]}'),
    "deep": text(b"[" * 100_000),
    "list": text(b"[]"),
    "null": text(b"null"),
    "no_result": text(b'{"results": []}'),
    "result_null": shaped(lambda result: None),
    "result_object": shaped(lambda result: {"0": result[0]}),
    "too_few": shaped(lambda result: result[:-1]),
    "too_many": shaped(lambda result: [*result, []]),
    "flat": shaped(lambda result: result[0]),
    "bare": shaped(lambda result: [[hit["document"] for hit in ranking] for ranking in result]),
    "more_than_k": shaped(
        lambda result: [
            [*ranking, ranking[0] | {"document": {"id": "x", "contents": "x"}}]
            for ranking in result
        ]
    ),
    "ranking_null": shaped(lambda result: [None] * len(result)),
    "hit_null": shaped(lambda result: [[None]] * len(result)),
    "twice": shaped(lambda result: [[ranking[0]] * 2 for ranking in result]),
    "score_null": hit(score=None),
    "score_text": hit(score="0.5"),
    "score_true": hit(score=True),
    "score_nan": hit(score=float("nan")),
    "score_infinite": hit(score=float("inf")),
    "score_huge": hit(score=10**400),
    "score_overflows": lambda call: call.answer(
        json.dumps({"result": call.result()}).replace("9.5", "1e999").encode()
    ),
    "document_null": hit(document=None),
    "contents_null": document(contents=None),
    "no_text": document("contents"),
    "id_null": document(id=None),
    "id_float": document(id=1.5),
    "id_int": document(id=7),
    "no_id": document("id"),
    "title_and_text": document("contents", title="T", text="x"),
    "text_only": document("contents", text="x"),
    "surrogate": document(contents="a\ud800b"),
    "extra": lambda call: call.say(
        [[hit | {"rank": 1} for hit in ranking] for ranking in call.result()], took=3
    ),
}


def main(port: int, delay: float) -> None:
    """Serves until killed."""

    async def slow(call: Call) -> None:
        await asyncio.sleep(delay)
        await call.well()

    server = Hostile(usual=slow, keep=False, port=port)
    server.start()
    print(server.port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))

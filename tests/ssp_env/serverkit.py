"""A search server that misbehaves by script, and servers of an application or of ``ssp serve``."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from scripted_model import Handler, Reply, ScriptedServer, Scripts, drip, hang_up, stall

SSP = str(Path(sys.executable).with_name("ssp"))
"""The command as it is installed, whether or not the environment is active."""


class SearchServer(ScriptedServer):
    """Searches as its ``scripts`` say; else documents are made of the query itself, so that a
    ranking shows whose it is."""

    path = "/retrieve"

    def __init__(self) -> None:
        self.scripts = Scripts(TROUBLES)
        super().__init__(self.scripts)
        self.busy, self.most_busy = 0, 0

    def asked(self) -> list[list[str]]:
        """The queries of each request so far."""
        return [body["queries"] for body in self.bodies]

    def texts(self, body: Any) -> list[str]:
        assert body["return_scores"] is True
        return list(body["queries"])

    def success(self, reply: str, body: Any) -> bytes:
        rankings = []
        for query in body["queries"]:
            digest = hashlib.sha256(query.encode()).hexdigest()
            documents = (
                {"id": f"{digest}-{i}", "contents": f'"{digest}"\nrank {i}'}
                for i in range(body["topk"])
            )
            hits = [{"document": each, "score": 9.5 - i} for i, each in enumerate(documents)]
            rankings.append(hits)
        return json.dumps({"result": rankings}).encode()


def lazy(handler: Handler) -> None:
    """Answers well after a while; the server counts how many do so at a time."""
    server = handler.server
    assert isinstance(server, SearchServer)
    server.busy += 1
    server.most_busy = max(server.most_busy, server.busy)
    server.stopped.wait(0.02)
    server.busy -= 1
    handler.answer(200, server.success("", handler.body))


def endless(handler: Handler) -> None:
    """A reply in chunks, as long as somebody reads it."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    while not handler.server.stopped.is_set():
        handler.wfile.write(b"100000\r\n" + b" " * 2**20 + b"\r\n")


TROUBLES: dict[str, Sequence[Reply]] = {
    "well": [""],
    "lazy": [lazy],
    "down": [(500, b"oops")],
    "busy": [lambda handler: handler.answer(503, b"oops", Retry_After="0")],
    "forever": [lambda handler: handler.answer(429, b"oops", Retry_After="86400")],
    "refused": [(422, b'{"detail": "a bad query"}')],
    "forbidden": [(401, b"who are you, sesame-42?")],
    "moved": [lambda handler: handler.answer(307, b"", Location="http://elsewhere/retrieve")],
    "never": [stall],
    "trickle": [drip],
    "truncated": [hang_up],
    "endless": [endless],
    "html": [(200, b"<html>It works!</html>")],
    "too_many": [(200, b'{"result": [[], []]}')],
}
"""Replies to the first request of a script, the second, and so on; the last one is repeated."""


@dataclass
class Served:
    """A running search server."""

    port: int
    process: Any = None
    said: str = ""
    """The line that says where it listens."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def retrieve(
        self, *queries: str, headers: dict[str, str] | None = None, **fields: Any
    ) -> httpx.Response:
        """``POST /retrieve``."""
        body, url = {"queries": list(queries), **fields}, f"{self.url}/retrieve"
        # Reading certificates, which are not needed, takes longer than the answer.
        return httpx.post(url, json=body, timeout=30, headers=headers, verify=False)


@contextmanager
def in_thread(app: Any) -> Iterator[Served]:
    """A FastAPI application, served by a thread of this process as ``ssp serve`` does it; its
    ``process`` is the server."""
    from ssp_env.search.server import make_server

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = make_server(app)
        server.config.timeout_graceful_shutdown = 2
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield Served(listener.getsockname()[1], server)
        finally:
            server.should_exit = True
            thread.join(10)


@contextmanager
def ssp_serve(log: Path, *options: str) -> Iterator[Served]:
    """``ssp serve``, ready, at a free port; its standard error goes to ``log``."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with open(log, "a") as errors:
        process = subprocess.Popen(
            [SSP, "serve", "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ,
            # A child inherits that SIGINT is ignored, as under `nohup ... &`.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    try:
        assert process.stdout is not None
        yield Served(port, process, process.stdout.readline())
    finally:
        process.kill()
        process.wait()

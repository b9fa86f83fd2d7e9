"""What the tests of the search server share: server processes and a client as plain as
Search-R1's."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

STUB = Path(__file__).with_name("stub_server.py")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Served:
    """A running server."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def retrieve(
        self, *queries: str, headers: dict[str, str] | None = None, **fields: Any
    ) -> httpx.Response:
        """``POST /retrieve``."""
        body = {"queries": list(queries), **fields}
        return httpx.post(f"{self.url}/retrieve", json=body, timeout=30, headers=headers)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What the stub's retriever wrote."""
        lines = [
            json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")
        ]
        return [line for line in lines if line["event"] == kind]

    def wait_ready(self) -> str:
        """Waits for the line that tells that the index is loaded."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server ended: {self.log.read_text()}"
        return line


SSP = str(Path(sys.executable).with_name("ssp"))
"""The command as it is installed, whether or not the environment is active."""


def start(log: Path, command: list[str], port: int, **environment: str) -> Served:
    """Starts a server process; its standard error goes to ``log``."""
    with open(log, "a") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **environment},
        )
    return Served(process, port, log)


def start_stub(log: Path, *, seconds: float = 0, loading: float = 0, **config: Any) -> Served:
    """Starts a server over the stub."""
    config.setdefault("port", free_port())
    settings = {"config": config, "seconds": seconds, "loading": loading}
    return start(log, [sys.executable, str(STUB), json.dumps(settings)], config["port"])


def stop(served: Served) -> int:
    """Ends a server by SIGTERM, or by force if that does not help; returns its exit status."""
    served.process.send_signal(signal.SIGTERM)
    try:
        return served.process.wait(15)
    finally:
        served.process.kill()
        served.process.wait()


@contextmanager
def stub(log: Path, **settings: Any) -> Iterator[Served]:
    """A server over the stub that is ready, and is gone afterwards."""
    served = start_stub(log, **settings)
    try:
        served.wait_ready()
        yield served
    finally:
        served.process.kill()
        served.process.wait()


def raw(port: int, request: bytes, seconds: float = 10) -> bytes:
    """Sends bytes and reads until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


async def ask(port: int, body: bytes) -> tuple[int, bytes]:
    """``POST /retrieve`` over a connection of its own, with nothing between us and the socket.

    Raises:
        OSError: the connection was refused or reset, or closed before the first byte of an answer.
        EOFError: it was closed in the middle of an answer.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = (
            "POST /retrieve HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: "
            "application/json\r\n"
        )
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read()
    finally:
        writer.close()
    if not answer:
        raise ConnectionResetError("closed without an answer")
    top, _, rest = answer.partition(b"\r\n\r\n")
    length = int(top.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    if len(rest) != length:
        raise EOFError(f"{len(rest)} of {length} bytes")
    return int(answer.split(b" ", 2)[1]), rest

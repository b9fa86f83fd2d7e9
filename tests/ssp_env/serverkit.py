"""What the tests of the search server and of ``ssp serve`` share: server processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

STUB = Path(__file__).parent / "search" / "stub_server.py"
SSP = str(Path(sys.executable).with_name("ssp"))
"""The command as it is installed, whether or not the environment is active."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Address:
    """Where a server is."""

    port: int

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


@dataclass
class Served(Address):
    """A server process."""

    process: subprocess.Popen[str]
    log: Path

    def calls(self) -> list[list[str]]:
        """The queries of each call of the stub's retriever."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line)["queries"] for line in lines if line.startswith("{")]

    def wait_ready(self) -> str:
        """Waits for the line that says where it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server ended: {self.log.read_text()}"
        return line

    def stop(self) -> int:
        """Ends it by SIGTERM; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@contextmanager
def in_thread(app: Any) -> Iterator[Address]:
    """A FastAPI application, served by a thread of this process as ``ssp serve`` does it."""
    from ssp_env.search.server import make_server

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = make_server(app)
        server.config.timeout_graceful_shutdown = 2
        thread = Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield Address(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(10)


@contextmanager
def served(log: Path, command: list[str], port: int, **environment: str) -> Iterator[Served]:
    """A server process, which is gone afterwards; its standard error goes to ``log``."""
    with open(log, "a") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **environment},
            # A child inherits that SIGINT is ignored, as under `nohup ... &`.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield Served(port, process, log)
    finally:
        process.kill()
        process.wait()


@contextmanager
def stub(log: Path, *, seconds: float = 0, loading: float = 0) -> Iterator[Served]:
    """A server over the stub; ready, unless it takes its time to load."""
    port = free_port()
    command = [sys.executable, str(STUB), str(port), str(seconds), str(loading)]
    with served(log, command, port) as server:
        if not loading:
            server.wait_ready()
        yield server


@contextmanager
def ssp_serve(log: Path, *options: str, **environment: str) -> Iterator[Served]:
    """``ssp serve``, ready; its own words are the first line of the log."""
    port = free_port()
    command = [SSP, "serve", "--port", str(port), *options]
    with served(log, command, port, **environment) as server:
        log.write_text(server.wait_ready())
        yield server

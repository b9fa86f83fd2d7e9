"""A server process: binds, loads the index, answers, and stops in order."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ssp_env.errors import ConfigError
from ssp_env.search.base import Retriever
from ssp_env.search.server.app import build_app
from ssp_env.search.server.config import ServerConfig

BACKLOG = 4096
"""Connections that the kernel holds until the server takes them."""
MAX_HEAD_BYTES = 64 * 2**10
"""Bytes after which a request whose head is not complete is refused."""


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's fast HTTP protocol, which has no limit on heads, with one. The slow one (h11) has
    it, and takes half as much time again per request."""

    _in_head = True
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Closes a connection whose head outgrows the limit."""
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)

        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response("the request's head is too large")

    def on_headers_complete(self) -> None:
        """The head is over."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next head may begin."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()


def run_server(
    open_retriever: Callable[[], Retriever],
    config: ServerConfig,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serves until SIGTERM or SIGINT, in the main thread.

    The port is bound first, so that one that is taken is known before the index is loaded; it
    listens once that is done. A signal ends the process in order: requests in progress are
    answered. A second Ctrl-C ends it at once.

    Args:
        open_retriever: loads the index.
        config: the settings.
        on_ready: called with the server's address once it listens.

    Raises:
        ConfigError: the address cannot be bound.
        KeyboardInterrupt: SIGINT ended it, in order.
        Exception: what ``open_retriever`` raised.
    """
    with _bind(config) as listener:
        server = uvicorn.Server(
            uvicorn.Config(
                build_app(open_retriever(), config),
                http=BoundedHeads,
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

        def stop(*_: object) -> None:
            server.should_exit = True

        # When uvicorn has stopped, it raises the signal that stopped it once more. SIGTERM would
        # then make an orderly stop look like a kill; SIGINT becomes KeyboardInterrupt, rightly.
        before = signal.signal(signal.SIGTERM, stop)
        try:
            # The index and the libraries stay: looking through them for garbage delays answers.
            gc.collect()
            gc.freeze()
            listener.listen(BACKLOG)
            on_ready(address(config.host, listener.getsockname()[1]))
            server.run([listener])
        finally:
            signal.signal(signal.SIGTERM, before)


def _bind(config: ServerConfig) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        where = address(config.host, config.port)
        raise ConfigError("host and port", where, f"cannot be bound: {error}") from None
    return listener


def address(host: str, port: int) -> str:
    """Where a server is reached."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

"""A server process: binds, loads the index, answers, and stops without losing what it accepted."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from types import FrameType

import uvicorn

from ssp_env.errors import ConfigError
from ssp_env.search.base import Retriever
from ssp_env.search.server.app import SearchApp
from ssp_env.search.server.config import ServerConfig
from ssp_env.search.server.protocol import PatientProtocol

BACKLOG = 4096
"""Connections that the kernel holds until the server takes them."""
_logger = logging.getLogger(__name__)


def run_server(
    open_retriever: Callable[[], Retriever],
    config: ServerConfig,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serves until SIGTERM or SIGINT, in the main thread.

    The port is bound first; while ``open_retriever`` runs in a thread, ``/healthz`` answers and
    ``/readyz`` does not. The first signal ends the process in order: everything that was accepted
    is answered. The second ends it at once.

    Args:
        open_retriever: loads the index.
        config: the settings.
        on_ready: called with the server's address once the index is loaded.

    Raises:
        ConfigError: the address cannot be bound.
        KeyboardInterrupt: SIGINT ended it, in order.
        Exception: what ``open_retriever`` raised.
    """
    listener = _bind(config)
    address = _address(config.host, listener)
    server = _Server(SearchApp(config), config, open_retriever, lambda: on_ready(address))
    with listener:
        server.run([listener])
    if server.failure is not None:
        raise server.failure
    if server.stopped_by == signal.SIGINT:
        raise KeyboardInterrupt


class _Server(uvicorn.Server):
    """uvicorn's server, with our way to stop."""

    def __init__(
        self,
        app: SearchApp,
        config: ServerConfig,
        open_retriever: Callable[[], Retriever],
        on_ready: Callable[[], None],
    ) -> None:
        protocol = type("Protocol", (PatientProtocol,), {"head_seconds": config.read_seconds})
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=30,
                # Bodies and searches have limits of their own, which end sooner.
                timeout_graceful_shutdown=int(config.read_seconds + config.answer_seconds) + 1,
            )
        )
        self.app, self.settings = app, config
        self._open_retriever, self._on_ready = open_retriever, on_ready
        self.failure: BaseException | None = None
        self.stopped_by: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Not before the port listens: whoever is told that it is ready may come at once.
        Thread(target=self._load, name="index", daemon=True).start()

    def _load(self) -> None:
        """Opens the index; a failure ends the server."""
        try:
            self.app.open(self._open_retriever())
        except BaseException as error:
            self.failure = error
            self.should_exit = True
        else:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.stopped_by is not None:
            _logger.warning("stopped by force; requests in progress are lost")
            os._exit(128 + sig)
        self.stopped_by = sig
        self.app.stopping = True
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own raises the signal once more at the end, which would make an orderly stop
        # look like a kill.
        before = {
            sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.stopping = True
        # Until clients and balancers have seen that it stops, the server still takes connections;
        # each answer ends one.
        if self.server_state.connections:
            await asyncio.sleep(self.settings.drain_seconds)
        await self._take_the_last(sockets or [])
        await super().shutdown(sockets)
        self.app.close()

    async def _take_the_last(self, listeners: list[socket.socket]) -> None:
        """Closes the port, and takes what the kernel holds until then: it would reset those
        connections."""
        kept = [listener.dup() for listener in listeners]
        for server in self.servers:
            server.close()
        for listener in listeners:
            listener.close()
        waiting: list[socket.socket] = []
        for listener in kept:
            with listener:
                waiting += _accept_all(listener)
        loop = asyncio.get_running_loop()
        for connection in waiting:
            await loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        config = self.config
        return config.http_protocol_class(config, self.server_state, self.lifespan.state)  # type: ignore[call-arg]


def _accept_all(listener: socket.socket) -> list[socket.socket]:
    """The connections that wait to be taken."""
    listener.setblocking(False)
    connections: list[socket.socket] = []
    while True:
        try:
            connection, _ = listener.accept()
        except ConnectionAbortedError:  # its client left
            continue
        except BlockingIOError:  # there is none
            return connections
        except OSError as error:
            _logger.warning(
                "connections that waited for the server to take them are lost: %s", error
            )
            return connections
        connection.setblocking(False)
        connections.append(connection)


def _bind(config: ServerConfig) -> socket.socket:
    """
    Raises:
        ConfigError: no such address, or its port is taken.
    """
    try:
        found = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ConfigError(
            "host and port", f"{config.host}:{config.port}", f"cannot be bound: {error}"
        ) from None
    return listener


def _address(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

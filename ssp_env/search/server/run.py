"""A server process: binds, loads the index, answers, and stops in order."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from ssp_env.errors import ConfigError
from ssp_env.search.base import Retriever
from ssp_env.search.server.app import build_app
from ssp_env.search.server.config import ServerConfig

_BACKLOG = 4096  # connections that the kernel holds until the server takes them
MAX_HEAD_BYTES = 64 * 2**10
"""Bytes after which a request whose head is not complete is refused."""


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
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
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

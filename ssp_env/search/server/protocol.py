"""uvicorn's HTTP protocol, with a limit on the time that a request's head may take."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState


class PatientProtocol(HttpToolsProtocol):
    """Closes a connection whose request's head is not complete within :attr:`head_seconds`.

    uvicorn alone waits for ever, so a client that sends a byte a minute would keep its connection.
    When the server stops, uvicorn closes connections that have just been made, whose requests may
    be on their way; here they are given :attr:`last_seconds`."""

    head_seconds = 10.0
    last_seconds = 1.0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_timer: TimerHandle | None = None
        self._in_head = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._in_head = False
        self._watch()

    def shutdown(self) -> None:
        if not self._in_head:
            super().shutdown()
            return
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = self.loop.call_later(self.last_seconds, self.transport.close)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head = False

    def _watch(self) -> None:
        """Starts or stops the timer. A request that arrives in one piece never needs one."""
        if self._in_head and self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)
        elif not self._in_head and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

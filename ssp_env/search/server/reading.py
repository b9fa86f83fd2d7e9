"""Reads a request's body within limits of size and time."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope

from ssp_env.search.server.config import ServerConfig
from ssp_env.search.server.wire import Refusal

_CLOSE = {"Connection": "close"}


class Disconnected(Exception):
    """The client left."""


async def read_body(scope: Scope, receive: Receive, config: ServerConfig) -> bytes:
    """The whole body.

    Raises:
        Refusal: 415 if it is not said to be JSON, 413 if it is too large, 408 if it does not arrive
            in time.
        Disconnected: the client left.
    """
    _check_type(scope)
    try:
        async with asyncio.timeout(config.read_seconds):
            return await _collect(receive, config.max_body_bytes)
    except TimeoutError:
        message = f"the body did not arrive within {config.read_seconds:g} seconds"
        raise Refusal(408, "body_too_slow", message, _CLOSE) from None


async def _collect(receive: Receive, limit: int) -> bytes:
    """Reads up to the limit. A larger body is read and dropped up to twice the limit before it is
    refused: a connection that is closed on unread bytes is reset, and the client would never see
    why."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body = message.get("body", b"")
        size += len(body)
        if size <= limit:
            parts.append(body)
        else:
            parts.clear()
        more = message.get("more_body", False)
        if size > limit and (not more or size > 2 * limit):
            raise Refusal(413, "body_too_large", f"the body is larger than {limit} bytes", _CLOSE)
        if not more:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_type(scope: Scope) -> None:
    for name, value in scope["headers"]:
        if name == b"content-type":
            if value.partition(b";")[0].strip().lower() == b"application/json":
                return
            break
    raise Refusal(415, "not_json", "Content-Type has to be application/json")

"""Calls over HTTP that end on time: what the clients for search and judge share."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from ssp_env.errors import ConfigError, ServiceError, TransientServiceError, UsageError
from ssp_env.net.loop import shared

_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})
_ABOUT_THE_TEXT = frozenset({400, 413, 422})
"""Malformed, too large, not to be processed: the server works, but refuses what was sent."""
_EXCERPT = 200


class NoAnswer(TransientServiceError):
    """The server could not be reached, or did not answer in time."""


@dataclass(frozen=True)
class Reply:
    """What a server answered, whatever that is."""

    status: int
    headers: httpx.Headers
    body: bytes


class Caller:
    """Posts to one address over a bounded number of kept-alive connections.

    Its coroutines run on :func:`~ssp_env.net.loop.shared`, whichever thread waits for them. May be
    shared between threads and survives a fork; connections are never taken along into another
    process."""

    def __init__(self, url: str, key: str | None, connections: int, max_bytes: int) -> None:
        """
        Args:
            url: where to.
            key: sent as a bearer token, and hidden in excerpts.
            connections: most calls under way at a time.
            max_bytes: longest reply that is read.
        """
        self.url = url
        self._key, self._connections, self._max_bytes = key, connections, max_bytes
        self._closed = False
        self._sessions: list[_Session] = []
        weakref.finalize(self, _close_all, self._sessions).atexit = False

    def close(self) -> None:
        """Closes the connections; the caller cannot be used afterwards."""
        self._closed = True
        _close_all(self._sessions)

    @asynccontextmanager
    async def turn(self, until: float | None = None) -> AsyncIterator[None]:
        """Waits until fewer calls than ``connections`` are under way.

        The ``timeout`` of :meth:`post` does not include this wait.

        Args:
            until: the loop's time at which the wait ends; it has no end when not given.

        Raises:
            TimeoutError: the wait timed out.
        """
        gate = self._session().gate
        async with asyncio.timeout_at(until):
            await gate.acquire()

        try:
            yield
        finally:
            gate.release()

    async def post(self, body: bytes, timeout: float, service: str) -> Reply:
        """Posts JSON and reads the whole reply; does not decompress, and follows no redirect.

        Args:
            body: what is sent.
            timeout: seconds in all, from looking up the name to the last byte.
            service: what errors call this service.

        Raises:
            NoAnswer: no connection, or no complete reply within ``timeout``.
            TransientServiceError: the connection broke while in use, or the reply is too long.
        """
        stage = "ConnectTimeout: no connection"
        raw = bytearray()

        async def trace(event: str, info: Any) -> None:
            nonlocal stage
            if event == "http11.send_request_headers.started":
                stage = "ReadTimeout: no reply"

        # httpx's own time-outs are for single reads; a server that sends a byte now and then
        # outlasts any of them.
        try:
            async with (
                asyncio.timeout(timeout),
                self._session().client.stream(
                    "POST", self.url, content=body, extensions={"trace": trace}
                ) as response,
            ):
                stage = "reply not complete"
                declared = response.headers.get("Content-Length", "")
                async for chunk in response.aiter_raw():
                    raw += chunk
                    if len(raw) > self._max_bytes or (
                        declared.isdecimal() and int(declared) > self._max_bytes
                    ):
                        raise TransientServiceError(
                            service, f"{self.url}: reply of more than {self._max_bytes} bytes"
                        )

                return Reply(response.status_code, response.headers, bytes(raw))
        except TimeoutError as error:
            raise NoAnswer(service, f"{self.url}: {stage} after {timeout:g} s") from error
        except httpx.ConnectError as error:
            hint = " (is it http://?)" if _speaks_no_tls(error) else ""
            raise NoAnswer(service, f"{self.url}: {type(error).__name__}: {error}{hint}") from error
        except httpx.RequestError as error:
            raise TransientServiceError(
                service, f"{self.url}: {type(error).__name__}: {error}"
            ) from error

    def complaint(self, reply: Reply, service: str) -> ServiceError | None:
        """The error for a status other than 200; transient for 408, 409, 425, 429 and 5xx."""
        status = reply.status
        if status == 200:
            return None

        what = f"{self.url} answered with HTTP {status}"
        if 300 <= status < 400 and "Location" in reply.headers:
            what += (
                f" to {reply.headers['Location'][:_EXCERPT]!r} (redirects are not followed: "
                f"give the final address)"
            )

        what += f": {self.excerpt(reply.body)}"

        if status in _WORTH_ANOTHER_TRY or status >= 500:
            # An overloaded server, or one that is away, says so with other codes than 500.
            fault = "unclear" if status == 500 else "service"
            patience = retry_after(reply.headers.get("Retry-After"))
            return TransientServiceError(service, what, patience, fault)

        fault = "text" if status in _ABOUT_THE_TEXT else "service"
        return ServiceError(service, what, fault=fault)

    def excerpt(self, raw: bytes) -> str:
        """The beginning of a body, for the log; some servers quote the key there."""
        text = raw.decode("utf-8", "replace")
        if self._key:
            text = text.replace(self._key, "...")
        return repr(text[:_EXCERPT])

    def _session(self) -> _Session:
        """The connections, which belong to the running loop: a forked process has another one."""
        if self._closed:
            raise UsageError(f"the client for {self.url} is closed; make a new one")

        loop = asyncio.get_running_loop()
        if not self._sessions or self._sessions[0].loop is not loop:
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            limits = httpx.Limits(
                max_connections=self._connections, max_keepalive_connections=self._connections
            )
            # Reading the certificates takes a tenth of a second, and without https (or redirects)
            # nothing needs them.
            verify = _certificates() if self.url.startswith("https") else False
            client = httpx.AsyncClient(headers=headers, timeout=None, limits=limits, verify=verify)
            self._sessions[:] = [_Session(loop, client, asyncio.Semaphore(self._connections))]

        return self._sessions[0]


@dataclass(frozen=True)
class _Session:
    loop: asyncio.AbstractEventLoop
    client: httpx.AsyncClient = field(repr=False)
    gate: asyncio.Semaphore = field(repr=False)


def _close_all(sessions: list[_Session]) -> None:
    while sessions:
        session = sessions.pop()
        if shared().owns(
            session.loop
        ):  # else a parent process's, whose connections are not ours to close
            asyncio.run_coroutine_threadsafe(session.client.aclose(), session.loop)


@functools.cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _speaks_no_tls(error: httpx.ConnectError) -> bool:
    """Whether a server answered the TLS handshake with something else; OpenSSL's wordings vary."""
    return bool(
        re.search(
            "wrong.version.number|record.layer.failure|unexpected.message",
            str(error),
            re.IGNORECASE,
        )
    )


def retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for, as number or date; ``None`` otherwise."""
    if value is None:
        return None
    if re.fullmatch(r"\d{1,9}", value.strip()):
        return float(value)

    try:
        seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None

    return max(0.0, seconds)


def check_url(name: str, url: str, example: str) -> None:
    """
    Raises:
        ConfigError: no well-formed address of a server.
    """
    if not re.match(r"https?://[^/\s]", url):
        raise ConfigError(name, url, f"give an address such as {example}")

    shown = "..." if "@" in url else url  # what is before it may be a password
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        fix = f"give a well-formed address such as {example} ({error})"
        raise ConfigError(name, shown, fix) from error

    if parsed.userinfo:
        fix = "leave user and password out; name an environment variable with a token instead"
        raise ConfigError(name, shown, fix)

    if parsed.port is not None and not 1 <= parsed.port <= 65535:
        raise ConfigError(name, shown, f"a port is a number from 1 to 65535, not {parsed.port}")


def check_key_name(field_name: str, name: str | None) -> None:
    """
    Raises:
        ConfigError: no name of an environment variable.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        # The value is not repeated: it may be the key itself.
        fix = "give the name of an environment variable, not the key"
        raise ConfigError(field_name, "...", fix)


def read_key(field_name: str, name: str | None, what: str = "the API key") -> str | None:
    """The key that an environment variable holds; ``None`` for no name.

    Args:
        field_name: the setting that names the variable.
        name: the variable.
        what: what errors call the key.

    Raises:
        ConfigError: the variable is not set, or holds what no header can carry.
    """
    if name is None:
        return None

    key = os.environ.get(name, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(field_name, name, f"set this environment variable to {what}")

    return key

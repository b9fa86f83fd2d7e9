"""Parts that clients of HTTP services share: event loop, retries, addresses and keys."""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import ip_address
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from urllib.parse import urlsplit

from ssp_env.errors import ConfigError, ServiceError, TransientServiceError

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

OVERLOADED = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that is away or has too much to do."""
FIRST_PAUSE, DOUBLINGS = 0.25, 5
"""Seconds before the second call, and how often they double from call to call; jitter adds."""

_sleep = asyncio.sleep
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_lock = threading.Lock()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Blocks until a coroutine is done, which runs on a loop that all clients of a process share.

    A blocking socket's time-out is for each read, which a server that sends a byte now and then
    outlasts; a task is cancelled wherever it waits, also when its caller is interrupted."""
    # Threads that come at once must not start a loop each.
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:  # also in a forked process, which has no thread that runs its parent's
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="ssp-http", daemon=True).start()

    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class Client(Generic[T]):
    """Base of clients that keep connections open, from the first call until it is closed or gone.

    Pickled or copied, one opens its own. Connections belong to a loop: so does a forked process."""

    def __init__(
        self,
        made_from: tuple[Any, ...],
        make: Callable[[], T],
        close: Callable[[T], Coroutine[Any, Any, None]],
    ) -> None:
        self._made_from, self._make = made_from, make
        self._open: list[tuple[asyncio.AbstractEventLoop, T]] = []
        self._close = partial(_close, self._open, close)
        weakref.finalize(self, self._close).atexit = False

    def connected(self) -> T:
        """The connections of the running loop."""
        loop = asyncio.get_running_loop()
        # Connections of another loop are those of the process that has forked this one.
        if not self._open or self._open[0][0] is not loop:
            self._open[:] = [(loop, self._make())]
        return self._open[0][1]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_from

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; a later call opens others."""
        self._close()


def _close(
    opened: list[tuple[asyncio.AbstractEventLoop, T]],
    close: Callable[[T], Coroutine[Any, Any, None]],
) -> None:
    while opened:
        loop, client = opened.pop()
        # Those of a parent process are left alone.
        if loop is _loops.get(os.getpid()):
            asyncio.run_coroutine_threadsafe(close(client), loop)


async def retried(call: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Awaits a call, and again after a growing pause as long as it raises TransientServiceError.

    A pause that would end after so many ``seconds`` is not begun: the last failure is raised as
    ``ServiceError``, whose cause is what ``call`` raised."""
    loop = asyncio.get_running_loop()
    until, calls = loop.time() + seconds, 0
    while True:
        calls += 1
        try:
            return await call()
        except TransientServiceError as error:
            # The jitter is not seeded: nothing that is compared depends on it.
            # Pause n has .25 s 2^(n - 1), 8 s at most, and up to a quarter more.
            grown = FIRST_PAUSE * 2 ** min(calls - 1, DOUBLINGS) * random.uniform(1, 1.25)
            pause = max(grown, error.retry_after or 0.0)
            if loop.time() + pause > until:
                what = f"{error.what} (after {calls} call{'s' if calls > 1 else ''})"
                raise ServiceError(error.service, what, calls) from error
        await _sleep(pause)


def asked_pause(headers: Mapping[str, str]) -> float:
    """Seconds for which a server asks to be left alone, in figures or as a date; 0 where it does
    not say so. ``headers`` find ``retry-after`` in any case, as httpx's do."""
    said = headers.get("retry-after", "")
    try:
        seconds = float(said) if said else 0.0
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            seconds = 0.0
    return seconds if 0 < seconds < inf else 0.0


# -- proxies and addresses ---------------------------------------------------------------------


def http_client(url: str, **options: Any) -> httpx.AsyncClient:
    """A client of one server, with these options of ``httpx.AsyncClient``. It goes through the
    proxy that the environment names, except to a server on this machine.

    Raises ``ConfigError`` for a proxy that httpx cannot use."""
    import httpx  # here: most of what needs this module sends nothing

    # Reading the certificates takes a tenth of a second.
    verify = url.startswith("https")
    if _is_here(urlsplit(url).hostname):
        limits = options.pop("limits", httpx.Limits())
        options["transport"] = httpx.AsyncHTTPTransport(verify=verify, limits=limits)
    try:
        return httpx.AsyncClient(verify=verify, **options)
    except (ImportError, ValueError) as error:
        said = " ".join(str(error).split())
        raise ConfigError("HTTP_PROXY", _proxy_of(url), f"{said}{by_proxy(url)}") from error


def by_proxy(url: str) -> str:
    """What a message about a server adds where a proxy stands before it; else nothing."""
    proxy = _proxy_of(url)
    if proxy is None:
        return ""
    name = urlsplit(url).hostname
    return f" (through the proxy {proxy}; set NO_PROXY={name} to reach {name} without it)"


def _proxy_of(url: str) -> str | None:
    """The proxy that the environment names for an address, without user and password."""
    # Only here, because it brings parsers of mail and HTTP along.
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    # As httpx chooses: the variable of the scheme, else ALL_PROXY.
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _is_here(parts.hostname) or proxy_bypass(parts.netloc):
        return None
    return proxy.rpartition("@")[2].rpartition("//")[2]


def _is_here(host: str | None) -> bool:
    """True of the names and addresses by which a machine reaches itself."""
    try:
        address = ip_address(host or "")
    except ValueError:
        return f".{host}".endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def check_url(name: str, url: str, example: str) -> None:
    """Refuses what is no address of a server, or has a password in it, which is not shown."""
    try:
        good = re.fullmatch(r"https?://[^/\s@?#][^\s@?#]*", url) and urlsplit(url).port != 0
    except ValueError:  # its port is no port, or its brackets do not match
        good = False
    if not good:
        raise ConfigError(name, url.rpartition("@")[2], f"give an address such as {example}")


def check_key_name(name: str, variable: str | None) -> None:
    """Refuses what is no name of an environment variable, unshown, as it may be the key itself."""
    if variable is not None and not variable.isidentifier():
        raise ConfigError(name, "...", "give the name of an environment variable, not the key")


def read_key(name: str, variable: str | None, instead: str = "") -> str | None:
    """The key in an environment variable; ``None`` for no variable. ``name`` is the setting,
    ``instead`` what a user without a key can do."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        fix = f"set this environment variable to the key or token {instead}".strip()
        raise ConfigError(name, variable, fix)
    return key

"""Calls over HTTP: ``Retry-After``, TLS that is not there, and waiting for oneself."""

from __future__ import annotations

import asyncio
import socket
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from ssp_env.errors import UsageError
from ssp_env.net import Caller, NoAnswer, retry_after, shared


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("12", 12),
        (" 0 ", 0),
        ("-3", None),
        ("soon", None),
        ("9" * 400, None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
    ],
)
def test_what_retry_after_asks_for(value: str | None, seconds: float | None) -> None:
    assert retry_after(value) == seconds


def test_retry_after_may_be_a_date_to_come() -> None:
    seconds = retry_after(format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True))
    assert seconds is not None
    assert 3500 <= seconds <= 3601


def test_https_is_not_what_every_server_speaks() -> None:
    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,)).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        caller = Caller(url, None, 1, 100)
        with pytest.raises(NoAnswer, match=r"SSL.*\(is it http://\?\)"):
            shared().run(caller.post(b"", 10.0, "search"))
        caller.close()


def test_a_blocking_call_on_the_loop_that_serves_it_is_refused() -> None:
    async def outer() -> None:
        shared().run(asyncio.sleep(0))

    with pytest.raises(UsageError, match="another thread"):
        shared().run(outer())

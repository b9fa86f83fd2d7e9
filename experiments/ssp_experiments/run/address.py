"""Where Ray is: the cluster that ``RAY_ADDRESS`` names, the folder of its sockets. Needs no Ray."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

from ssp_env.errors import ConfigError, ServiceError

PATIENCE = 6.0
"""Seconds in which a cluster has to answer; Ray itself would try for two minutes."""
SHORT = "/tmp"
_LONGEST = 107 - len("/ray/session_2026-11-28_00-00-00_000000_1234567/sockets/plasma_store")
"""Most bytes of the folder beneath which Ray keeps its sockets: their paths may have 107."""
# A client of HTTP/2 begins with these lines and its settings; a server answers with its own.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
# Type of a frame of settings, which is the fourth of the nine bytes that a frame begins with.
_SETTINGS = 4


def check_ray() -> None:
    """Refuses an environment in which Ray would not start, or not find its cluster."""
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        shorten_sockets()
    elif address != "auto":
        _check_answers(address)


def shorten_sockets() -> None:
    """Has Ray keep its sockets in ``/tmp`` where ``TMPDIR`` is too long for their paths, as it may
    be under Slurm; refused where that cannot be written, or ``RAY_TMPDIR`` itself is too long."""
    for name in ("RAY_TMPDIR", "TMPDIR"):
        folder = os.environ.get(name)
        if folder is None:
            continue
        if len(os.fsencode(folder)) > _LONGEST:
            if name == "RAY_TMPDIR" or not os.access(SHORT, os.W_OK):
                fix = "too long for the paths of Ray's sockets: let RAY_TMPDIR name a folder of "
                fix += f"at most {_LONGEST} characters"
                raise ConfigError(name, folder, fix)
            os.environ["RAY_TMPDIR"] = SHORT
        return


def _check_answers(address: str) -> None:
    """Greets the server of a cluster, which speaks gRPC."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        fix = "give HOST:PORT, as `ray start --head` shows it; without it, Ray starts here"
        raise ConfigError("RAY_ADDRESS", address, fix)
    try:
        with socket.create_connection((host, port), PATIENCE) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.sendall(_HELLO)
            answer = connection.recv(9)
        what = "what answers there is not Ray" if answer[3:4] != bytes([_SETTINGS]) else ""
    except OSError as error:
        what = f"nobody answers ({error})"
    if what:
        fix = "see that `ray start --head` runs there, or unset it: Ray then starts here"
        raise ServiceError("engine", f"RAY_ADDRESS = {address!r}: {what}; {fix}")

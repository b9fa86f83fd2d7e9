"""``ssp view``: serves the page of runs over HTTP, with whatever they have written by now.

Everything is read from the run directories when it is asked for; only the rows of the list are
kept, as bytes, for each version of a step's file."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from experiments.report.collect import described, open_runs
from experiments.report.games import StepFile, chunk, holds, read_step, rows, step_files
from experiments.report.page import json_bytes, page_text
from experiments.run.rundir import RunDirectory
from ssp_env.errors import SSPError
from ssp_env.replay import read_games

FOUND_AT_MOST = 5_000
"""Games that one search names at most."""
_LOCAL = ("127.0.0.1", "localhost", "[::1]")

_Query = dict[str, str]


class Viewer:
    """Answers what the page asks about some runs. Any number of threads may ask at once.

    Args:
        paths: run directories; a run may be going on in each.

    Raises:
        RunError: one is no run directory, or has no figures yet.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = list(paths)
        self._lock = Lock()
        self._rows: dict[StepFile, tuple[str, bytes]] = {}
        self.keys = [run.key for run in open_runs(self._paths, growing=True)]

    def page(self, query: _Query) -> bytes:
        """The page itself, with the figures of now and no games."""
        return page_text(self._state(), {}).encode()

    def state(self, query: _Query) -> bytes:
        """Figures, tables, settings, and which steps have games in which version."""
        return json_bytes(self._state())

    def index(self, query: _Query) -> bytes:
        """The rows of the list for the games of a ``run`` in some ``steps``, joined by commas."""
        steps = {*query.get("steps", "").split(",")}
        files = [file for file in self._files(query) if str(file.step) in steps]
        parts = [b'"%d":%b' % (file.step, self._rows_of(file)) for file in files]
        return b"{" + b",".join(parts) + b"}"

    def games(self, query: _Query) -> bytes:
        """All games of a ``step`` of a ``run``, checked; with ``tokens=1``, their tokens too."""
        return json_bytes(chunk(read_step(self._file(query)), query.get("tokens") == "1"))

    def find(self, query: _Query) -> bytes:
        """Places ``[step, slot]`` of the games of a ``run`` whose texts hold ``text``."""
        found: list[list[int]] = []
        text = query.get("text", "")
        for file in self._files(query):
            found += [[file.step, g.record.slot] for g in read_games(file.path) if holds(g, text)]
            if len(found) >= FOUND_AT_MOST:
                break
        return json_bytes(found[:FOUND_AT_MOST])

    def _state(self) -> dict[str, Any]:
        runs = open_runs(self._paths, growing=True)
        return described(runs, tokens=True, live=True) | {"beside": None}

    def _files(self, query: _Query) -> list[StepFile]:
        place = _number(query, "run")
        if not 0 <= place < len(self._paths):
            raise _Unknown(f"there is no run {place}")
        return step_files(RunDirectory(self._paths[place]).games)

    def _file(self, query: _Query) -> StepFile:
        step = _number(query, "step")
        for file in self._files(query):
            if file.step == step:
                return file
        raise _Unknown(f"step {step} has no games")

    def _rows_of(self, file: StepFile) -> bytes:
        version = file.version
        with self._lock:
            kept = self._rows.get(file)
        if kept is None or kept[0] != version:
            kept = (version, json_bytes(rows(game.record for game in read_step(file))))
            with self._lock:
                self._rows[file] = kept
        return kept[1]


class _Unknown(SSPError):
    """Something is asked for that there is not."""


def open_server(viewer: Viewer, host: str, port: int) -> ThreadingHTTPServer:
    """A server that listens; ``serve_forever`` answers.

    Args:
        viewer: what it serves.
        host: the address to bind.
        port: 0 for a free one.

    Raises:
        SSPError: nobody can listen there.
    """
    asked: dict[str, tuple[str, Callable[[_Query], bytes]]] = {
        "/": ("text/html; charset=utf-8", viewer.page),
        "/api/state": ("application/json", viewer.state),
        "/api/index": ("application/json", viewer.index),
        "/api/games": ("application/json", viewer.games),
        "/api/find": ("application/json", viewer.find),
    }

    class Handler(_Handler):
        routes = asked
        only_local = host in ("127.0.0.1", "localhost", "::1")

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise SSPError(f"--host {host} --port {port}: {error}") from error


class _Handler(BaseHTTPRequestHandler):
    routes: dict[str, tuple[str, Callable[[_Query], bytes]]]
    only_local: bool
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Answers one request."""
        parts = urlsplit(self.path)
        route = self.routes.get(parts.path)
        if self.only_local and (self.headers.get("Host") or "").rsplit(":", 1)[0] not in _LOCAL:
            # A page of a stranger's, whose name was made to point to this machine.
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"this server is for this machine\n")
        elif route is None:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")
        else:
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            self._answer_by(*route, query)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the page itself shows what fails."""

    def _answer_by(self, kind: str, answer: Callable[[_Query], bytes], query: _Query) -> None:
        try:
            status, body = HTTPStatus.OK, answer(query)
        except SSPError as error:
            status = (
                HTTPStatus.NOT_FOUND
                if isinstance(error, _Unknown)
                else HTTPStatus.INTERNAL_SERVER_ERROR
            )
            kind, body = "application/json", json_bytes({"error": " ".join(str(error).split())})
        self._answer(status, kind, body)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
        if status is HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            status, body = HTTPStatus.NOT_MODIFIED, b""

        zipped = len(body) > 1_000 and "gzip" in (self.headers.get("Accept-Encoding") or "")
        if zipped:
            body = gzip.compress(body, 4, mtime=0)

        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-cache")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("ETag", tag)
            if zipped:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the page was closed


def _number(query: _Query, name: str) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise _Unknown(f"{name}={text!r}: a number is wanted")
    return int(text)

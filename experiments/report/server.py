"""``ssp view``: serves the page of runs over HTTP, with what they have written by now.

Everything is read from the run directories when it is asked for; only the rows of the list are
kept, for each version of a step's file."""

from __future__ import annotations

import gzip
import hashlib
import json
import webbrowser
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from experiments.report import games
from experiments.report.page import described, game_html, packed, page_html
from experiments.report.runs import open_runs, step_files
from experiments.run.rundir import RunDirectory
from ssp_env.errors import SSPError
from ssp_env.replay import read_games

LOCAL = ("127.0.0.1", "localhost", "::1")


def view(paths: Sequence[str], host: str, port: int, open: bool) -> int:
    """Serves until Ctrl-C; see :func:`experiments.cli.view`."""
    viewer = Viewer(paths)
    with open_server(viewer, host, port) as server:
        server.daemon_threads = True
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{server.server_port}/"
        print(f"ssp view: {', '.join(viewer.keys)} at {address} (Ctrl-C ends it)", flush=True)
        if open:
            webbrowser.open(address)
        server.serve_forever()
    return 0


class Viewer:
    """Answers requests of the page about some runs, of which any may be going on.

    Raises:
        RunError: one is no run directory, or has no figures yet.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = list(paths)
        self.keys = [run.key for run in open_runs(self._paths)]

    def answer(self, path: str, query: dict[str, str]) -> tuple[str, str]:
        """Content type and body of a request's answer.

        Raises:
            LookupError: there is no such page, run, step or game.
            SSPError: a run cannot be read.
        """
        if path == "/":
            runs = open_runs(self._paths)
            return "text/html", page_html(runs, {"data": packed(described(runs, True))}, live=True)
        if path == "/api/state":
            data: Any = described(open_runs(self._paths), live=True)
        elif path == "/api/index":
            files = self._files(query)
            wanted = {int(step) for step in query["steps"].split(",")} & files.keys()
            data = {step: _rows(files[step], files[step].stat().st_mtime_ns) for step in wanted}
        elif path == "/api/game":
            step, slot = int(query["step"]), int(query["slot"])
            saved = [g for g in read_games(self._files(query)[step]) if g.record.slot == slot]
            data = game_html(self.keys[int(query["run"])], step, saved[0], tokens=True)
        else:
            raise LookupError("there is no such page")
        return "application/json", json.dumps(data)

    def _files(self, query: dict[str, str]) -> dict[int, Path]:
        run = int(query["run"])
        return step_files(RunDirectory(dict(enumerate(self._paths))[run]).games)


@lru_cache(maxsize=100_000)
def _rows(file: Path, version: int) -> list[list[Any]]:
    return [games.row(saved.record) for saved in read_games(file)]


def open_server(viewer: Viewer, host: str, port: int) -> ThreadingHTTPServer:
    """A server that listens; ``serve_forever`` answers.

    Args:
        viewer: answers.
        host: the address to bind.
        port: 0 for a free one.

    Raises:
        SSPError: nobody can listen there.
    """

    class Handler(_Handler):
        answers, only_local = viewer, host in LOCAL

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise SSPError(f"--host {host} --port {port}: {error}") from error


class _Handler(BaseHTTPRequestHandler):
    answers: Viewer
    only_local: bool
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Answers one request."""
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0].strip("[]")
        if self.only_local and host not in LOCAL:
            # A page of a stranger's, whose name was made to point to this machine.
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "this server is for this machine\n")
            return
        try:
            self._send(HTTPStatus.OK, *self.answers.answer(parts.path, query))
        except SSPError as error:
            wrong = json.dumps({"error": " ".join(str(error).split())})
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "application/json", wrong)
        except (LookupError, ValueError) as error:
            wrong = json.dumps({"error": f"there is no such thing: {self.path} ({error})"})
            self._send(HTTPStatus.NOT_FOUND, "application/json", wrong)

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing: the page itself shows what fails."""

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = gzip.compress(text.encode("utf-8", "replace"), 4, mtime=0)
        tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
        if status is HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            status, body = HTTPStatus.NOT_MODIFIED, b""
        try:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-cache")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the page was closed

"""Serves the page of runs over HTTP, with what they have written by now.

Everything is read from the run directories when it is asked for; only the rows of the list are
kept, for each version of a step's file."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ssp_env.errors import SSPError
from ssp_env.replay import read_games
from ssp_experiments.report.page import described, game_html, packed, page_html, row
from ssp_experiments.report.runs import open_runs

LOCAL = ("127.0.0.1", "localhost")


class Viewer(ThreadingHTTPServer):
    """A server of the page of some runs, of which any may be going on; port 0 is a free one."""

    daemon_threads = True

    def __init__(self, paths: Sequence[str], host: str, port: int) -> None:
        self.paths, self.only_local = list(paths), host in LOCAL
        open_runs(paths, live=True)  # raises before there is a server
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise SSPError(f"--host {host} --port {port}: {error}") from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the page was closed
            super().handle_error(request, client_address)

    def answer(self, path: str, query: dict[str, str]) -> tuple[str, str]:
        """Content type and body; a ``LookupError`` where there is no such page, run or game."""
        runs = open_runs(self.paths, live=True)
        if path == "/":
            scripts = {"data": packed(described(runs, live=True))}
            return "text/html", page_html(runs, scripts, live=True)

        data: Any
        if path == "/api/state":
            data = described(runs, live=True)
        elif path == "/api/index":
            files = runs[int(query["run"])].files
            wanted = {int(step) for step in query["steps"].split(",")} & files.keys()
            data = {step: _rows(files[step], files[step].stat().st_mtime_ns) for step in wanted}
        elif path == "/api/game":
            run, step, index = runs[int(query["run"])], int(query["step"]), int(query["index"])
            (saved,) = [game for game in read_games(run.files[step]) if game.record.index == index]
            data = game_html(run.key, step, saved, tokens=True)
        else:
            raise LookupError("there is no such page")
        return "application/json", json.dumps(data)


@lru_cache(maxsize=100_000)
def _rows(file: Path, version: int) -> list[dict[str, Any]]:
    return [row(saved.record) for saved in read_games(file)]


class _Handler(BaseHTTPRequestHandler):
    server: Viewer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        status, kind = HTTPStatus.OK, "application/json"
        if self.server.only_local and self.headers.get("Host", "").rsplit(":", 1)[0] not in LOCAL:
            # A page of a stranger's, whose name was made to point to this machine.
            status, text = HTTPStatus.FORBIDDEN, json.dumps({"error": "only for this machine"})
        else:
            try:
                kind, text = self.server.answer(parts.path, query)
            except SSPError as error:
                status, text = HTTPStatus.INTERNAL_SERVER_ERROR, json.dumps({"error": str(error)})
            except (LookupError, ValueError) as error:
                wrong = f"there is no such thing: {self.path} ({error})"
                status, text = HTTPStatus.NOT_FOUND, json.dumps({"error": wrong})

        body = text.encode("utf-8", "replace")
        packs = "gzip" in self.headers.get("Accept-Encoding", "")
        if packs:
            body = gzip.compress(body, 4)
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if packs:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing: the page itself shows what fails."""

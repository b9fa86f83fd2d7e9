"""The search server against a plain FastAPI endpoint that calls its backend once a request, as
Search-R1's does.

Both serve the same backend in the same run, one process each, on one core; the load comes from
another process on another core. Each client holds one connection and sends its next query (one a
request) when the last is answered. Access logs are off in both, and both run on uvicorn with uvloop
and h11. On a machine that does other things as well, start it under ``chrt -f 5``: real-time
priority keeps the others' work out of the figures.

Backends:

``free``    three fixed passages at no cost: what the server itself costs. ``device``  the same
after 5 ms, one call at a time, however many queries the call has: an encoder on one GPU, whose
            forward pass for a few short queries takes milliseconds whether it is one or some dozens
            (the 5 ms are assumed, not measured).
``remote``  the same after 5 ms, any number of calls at a time: a search service elsewhere, where
batches gain least. ``bm25``    BM25 over wiki-mini without its cache, asked wiki-mini's evaluation
questions."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any

from benchmarks.origin import origin
from ssp_env.search.base import Retriever
from ssp_env.types import Document

BACKENDS = ("free", "device", "remote", "bm25")
SERVERS = ("ours", "fastapi")
COST = 0.005
PORTS = {"ours": 8471, "fastapi": 8472}
PASSAGE = (
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt "
    "ut labore. " * 6
)


def main() -> int:
    """Measures everything and writes it, or plays one part of the measurement in a process of its
    own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--clients", nargs="+", type=int, default=[16, 64])
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="of each measurement, after a second of warm-up"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="measurements of each server, taken in turn"
    )
    parser.add_argument("--part", choices=["ours", "fastapi", "load"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.part == "load":
        print(
            json.dumps(
                _load(settings.port, settings.clients[0], settings.seconds, settings.backends[0])
            )
        )
    elif settings.part is not None:
        {"ours": _serve_ours, "fastapi": _serve_fastapi}[settings.part](
            settings.backends[0], settings.port
        )
    else:
        _measure(settings)
    return 0


def _measure(settings: argparse.Namespace) -> None:

    rows = []
    for backend in settings.backends:
        servers = {name: _start(name, backend) for name in SERVERS}
        try:
            for name in SERVERS:
                _wait_for(PORTS[name])
            for clients in settings.clients:
                rows.append(
                    _compare(
                        backend, clients, settings, {name: servers[name].pid for name in SERVERS}
                    )
                )
                print(json.dumps(rows[-1]), flush=True)
        finally:
            for process in servers.values():
                process.kill()
                process.wait()
    result = {
        **origin("search_server"),
        "scheduling": {os.SCHED_OTHER: "normal", os.SCHED_FIFO: "fifo"}.get(
            os.sched_getscheduler(0), "other"
        ),
        "seconds": settings.seconds,
        "repeats": settings.repeats,
        "stub_seconds_a_call": COST,
        "load_average_at_end": os.getloadavg()[0],
        "rows": rows,
    }
    if settings.out is not None:
        settings.out.write_text(json.dumps(result, indent=2) + "\n")


def _compare(
    backend: str, clients: int, settings: argparse.Namespace, pids: dict[str, int]
) -> dict[str, Any]:
    """Medians over the repeats; the servers take turns, so that what else the machine does hits
    both."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SERVERS}
    for _ in range(settings.repeats):
        for name in SERVERS:
            before = _cpu_seconds(pids[name])
            command = [
                sys.executable,
                "-m",
                "benchmarks.search_server",
                "--part",
                "load",
                "--port",
                str(PORTS[name]),
            ]
            command += [
                "--clients",
                str(clients),
                "--seconds",
                str(settings.seconds),
                "--backends",
                backend,
            ]
            run = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            run["server_cpu_ms"] = (
                1000 * (_cpu_seconds(pids[name]) - before) / run["answers_in_all"]
            )
            runs[name].append(run)
    figures = ("requests_per_second", "p50_ms", "p99_ms", "server_cpu_ms", "generator_cpu_share")
    summary = {
        name: {f: round(median(run[f] for run in runs[name]), 3) for f in figures}
        for name in SERVERS
    }
    ours, plain = summary["ours"], summary["fastapi"]
    return {
        "backend": backend,
        "clients": clients,
        **summary,
        "speedup": round(ours["requests_per_second"] / plain["requests_per_second"], 2),
        "p99_ratio": round(ours["p99_ms"] / plain["p99_ms"], 2),
    }


def _start(name: str, backend: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.search_server", "--part", name]
    return subprocess.Popen([*command, "--port", str(PORTS[name]), "--backends", backend])


def _wait_for(port: int) -> None:
    """Waits until a server answers a search."""
    body = json.dumps({"queries": ["ready?"], "topk": 3, "return_scores": True}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/retrieve", body, {"Content-Type": "application/json"}
    )
    for _ in range(600):
        try:
            urllib.request.urlopen(request, timeout=5).read()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"the server on port {port} does not answer")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _core(which: int) -> None:
    """Pins this process to the first or the last core that it may use."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[which]})


# The two servers


class _Stub:
    """Three fixed passages for any query, after a fixed time."""

    def __init__(self, seconds: float, lock: AbstractContextManager[Any]) -> None:
        self._seconds, self._lock = seconds, lock
        self._ranking = [Document(str(i), f"Title {i}", PASSAGE, 10.0 - i) for i in range(3)]

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        if self._seconds:
            with self._lock:
                time.sleep(self._seconds)
        return [self._ranking[:k] for _ in queries]


def _backend(name: str) -> Retriever:
    if name == "bm25":
        from ssp_env.search.bm25 import BM25Retriever
        from ssp_env.worlds import open_world

        return BM25Retriever(open_world("wiki-mini").corpus, cache_size=0)
    return _Stub(0.0 if name == "free" else COST, Lock() if name == "device" else nullcontext())


def _serve_ours(backend: str, port: int) -> None:
    from ssp_env.search.config import ServerConfig
    from ssp_env.search.server import run_server

    _core(0)
    run_server(lambda: _backend(backend), ServerConfig(port=port))


def _serve_fastapi(backend: str, port: int) -> None:
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    _core(0)
    retriever = _backend(backend)
    app = FastAPI()

    class QueryRequest(BaseModel):
        queries: list[str]
        topk: int | None = None
        return_scores: bool = False

    def retrieve(request: QueryRequest) -> Any:
        rankings = retriever.search(request.queries, request.topk or 3)
        documents = [
            [{"id": d.id, "contents": f'"{d.title}"\n{d.text}'} for d in ranking]
            for ranking in rankings
        ]
        if not request.return_scores:
            return {"result": documents}
        return {
            "result": [
                [{"document": row, "score": d.score} for row, d in zip(rows, ranking, strict=True)]
                for rows, ranking in zip(documents, rankings, strict=True)
            ]
        }

    # A class inside a function is unknown to the annotations of this module.
    retrieve.__annotations__ = {"request": QueryRequest}
    app.post("/retrieve")(retrieve)
    quiet: dict[str, Any] = {"access_log": False, "log_level": "warning"}
    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="h11", **quiet)


# The load


class _Client(asyncio.Protocol):
    """One connection: sends a request, takes the time until its answer is complete, sends the
    next."""

    def __init__(
        self, requests: Sequence[bytes], first: int, seconds: list[tuple[float, float]]
    ) -> None:
        self._requests, self._next, self._seconds = requests, first, seconds
        self._received, self._expected = 0, 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._received = self._expected = 0
        self._next = (self._next + 1) % len(self._requests)
        self._begin = time.perf_counter()
        self._transport.write(self._requests[self._next])

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if not self._expected:
            head, _, _ = data.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"unexpected answer: {data[:300]!r}")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self._expected = len(head) + 4 + int(length)
        if self._received == self._expected:
            now = time.perf_counter()
            self._seconds.append((now, now - self._begin))
            self._send()


def _load(port: int, clients: int, seconds: float, backend: str) -> dict[str, float]:
    import uvloop

    _core(-1)
    result: dict[str, float] = uvloop.run(_drive(port, clients, seconds, _requests(backend)))
    return result


def _requests(backend: str) -> list[bytes]:
    if backend == "bm25":
        from ssp_env.worlds import open_world

        queries = [question.text for question in open_world("wiki-mini").questions(0)]
    else:
        queries = [f"what did number {i} do in the year {1000 + i}?" for i in range(1000)]
    bodies = [
        json.dumps({"queries": [query], "topk": 3, "return_scores": True}).encode()
        for query in queries
    ]
    head = (
        "POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: "
    )
    return [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]


async def _drive(
    port: int, clients: int, seconds: float, requests: list[bytes]
) -> dict[str, float]:
    answers: list[tuple[float, float]] = []
    loop = asyncio.get_running_loop()

    def client(number: int) -> Callable[[], asyncio.Protocol]:
        return lambda: _Client(requests, number * len(requests) // clients, answers)

    transports = [
        (await loop.create_connection(client(i), "127.0.0.1", port))[0] for i in range(clients)
    ]
    await asyncio.sleep(1.0)
    begin, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    end, cpu = time.perf_counter(), time.process_time() - cpu
    for transport in transports:
        transport.abort()
    taken = sorted(taken for at, taken in answers if begin <= at <= end)
    return {
        "requests_per_second": len(taken) / (end - begin),
        "p50_ms": 1000 * taken[len(taken) // 2],
        "p99_ms": 1000 * taken[len(taken) * 99 // 100],
        "generator_cpu_share": cpu / (end - begin),
        "answers_in_all": len(answers),
    }


if __name__ == "__main__":
    sys.exit(main())

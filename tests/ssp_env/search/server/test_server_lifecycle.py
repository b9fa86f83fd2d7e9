"""How the search server starts and stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest
from serverkit import SSP, Served, free_port, ssp_serve, stub


def test_it_listens_once_the_index_is_loaded_and_can_be_stopped_before(tmp_path: Path) -> None:
    with stub(tmp_path / "log", loading=1.5) as served:
        time.sleep(0.5)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{served.url}/healthz")
        served.wait_ready()
        assert httpx.get(f"{served.url}/healthz").text == "ok"
        assert served.stop() == 0
    with stub(tmp_path / "log", loading=60) as served:
        begin = time.monotonic()
        served.stop()
        assert time.monotonic() - begin < 5


class Load:
    """Clients that ask one question after another; what each answer came to."""

    def __init__(self, served: Served, clients: int) -> None:
        self.outcomes: dict[str, str] = {}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(served, name)) for name in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, served: Served, name: int) -> None:
        with httpx.Client(base_url=served.url, timeout=30, verify=False) as client:
            number = 0
            while not self._over.is_set():
                query = f"client {name} question {number}"
                number += 1
                try:
                    answer = client.post("/retrieve", json={"queries": [query], "topk": 1})
                    right = answer.json()["result"][0][0]["id"] == f"{query}/0"
                    self.outcomes[query] = "right" if right else answer.text
                except httpx.TransportError as error:
                    self.outcomes[query] = f"lost: {error!r}"
                    time.sleep(0.01)

    def stop(self) -> None:
        """Waits for the clients."""
        self._over.set()
        for thread in self._threads:
            thread.join(40)


def test_sigterm_under_load_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    with stub(tmp_path / "log", seconds=0.02) as served:
        load = Load(served, 24)
        while len(load.outcomes) < 100:
            time.sleep(0.01)
        assert served.stop() == 0
        load.stop()
        searched = [query for call in served.calls() for query in call]
    assert {load.outcomes[query] for query in searched} == {"right"}


def test_killed_and_started_again_it_answers_on_the_same_port(tmp_path: Path) -> None:
    port = free_port()
    with stub(tmp_path / "log", seconds=0.02, port=port) as served:
        load = Load(served, 8)
        while len(load.outcomes) < 50:
            time.sleep(0.01)
        served.process.kill()
        load.stop()
    assert all(outcome == "right" or "lost" in outcome for outcome in load.outcomes.values())
    with stub(tmp_path / "log", port=port) as served:
        assert served.retrieve("q", topk=1).json()["result"][0][0]["id"] == "q/0"


def test_what_says_nothing_or_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with stub(tmp_path / "log", answer_seconds=1.0) as served, socket.socket() as slow:
        slow.connect(("127.0.0.1", served.port))
        slow.sendall(b"POST /retr")
        assert served.retrieve("hang").status_code == 504
        begin = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - begin < 5


def test_ctrl_c_stops_it_in_order_with_the_status_of_ctrl_c(tmp_path: Path) -> None:
    with ssp_serve(tmp_path / "log", "--world", "small") as served:
        assert served.retrieve("q").status_code == 200
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(10) == 130
        assert "Traceback" not in served.log.read_text()


def serve(*options: str, **environment: str) -> tuple[int, str]:
    """Exit status and standard error of an ``ssp serve`` that does not come to serve."""
    ran = subprocess.run(
        [SSP, "serve", *options],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    return ran.returncode, ran.stderr


def test_a_mistake_ends_it_with_status_2_and_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "1"}\n')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, says in (
            (["--host", "0.0.0.0"], "SSP_SERVE_TOKEN"),
            (["--port", str(taken.getsockname()[1]), "--world", "small"], "in use"),
            (["--world", "wiki-mimi"], "did you mean 'wiki-mini'"),
            (["--corpus", str(broken), "--port", "0"], f"{broken}:1: a passage needs"),
            (["--replicas", "2", "--port", "0"], "--ray"),
            (["--ray", "--port", "0"], "port = 0"),
            (["--max-k", "0"], "max_k = 0"),
        ):
            status, errors = serve(*options)
            assert (status, errors.count("\n")) == (2, 1), errors
            assert says in errors

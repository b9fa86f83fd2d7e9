"""How the search server starts and stops."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
from serverkit import Served, free_port, stub


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
